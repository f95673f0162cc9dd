"""The results of a study as tables, as one line, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reprieve_cli.economics.study import Estimate, Pair, Row, Scenario
from reprieve_cli.terminal import Terminal

OURS = "reprieve"


def document(scenario: Scenario, rows: Sequence[Row], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return ``simulate --json`` of one scenario; what has no value is null."""
    return {
        "scenario": scenario.name,
        "n": scenario.starts,
        "seed": scenario.seed,
        "assumptions": list(scenario.trace.assumptions),
        "policies": {row.policy.name: _policy(row) for row in rows},
        "paired": {
            pair.peer: {
                "cost_saving": _estimate(pair.cost),
                "makespan_saving": _estimate(pair.makespan),
                "lost_work_avoided": pair.lost,
            }
            for pair in pairs
        },
    }


def _policy(row: Row) -> dict[str, Any]:
    return {
        "label": row.policy.label,
        "cost_per_useful_gpu_hour": row.usd_per_useful_gpu_hour,
        "cost_index": row.cost_index.mean if row.cost_index else None,
        "makespan_hours": row.makespan_hours.mean if row.makespan_hours else None,
        "makespan_p95_hours": row.makespan_p95_hours,
        "lost_hours": row.lost_hours.mean,
        "finish_rate": row.finish_rate,
        "deadline_misses": row.deadline_misses,
        "goodput": row.goodput,
        "interruptions": row.interruptions,
        "launches": row.launches,
        "failed_launches": row.failed_launches,
        "ci95": {
            "cost_index": _estimate(row.cost_index),
            "makespan_hours": _estimate(row.makespan_hours),
            "lost_hours": _estimate(row.lost_hours),
        },
    }


def _estimate(value: Estimate | None) -> dict[str, float | None] | None:
    if value is None:
        return None
    return {"mean": value.mean, "starts": value.starts, "blocks": value.blocks}


def tell(
    terminal: Terminal, scenario: Scenario, rows: Sequence[Row], pairs: Sequence[Pair]
) -> None:
    """Say a scenario to a person."""
    job = scenario.job
    due = job.deadline_hours
    terminal.line(
        f"{scenario.trace.name}: {len(scenario.trace.pools)} pools, "
        f"{scenario.trace.seconds / 3600:,.1f} h; {job.name} job of {job.work_hours:g} h, "
        f"{scenario.starts} starts, seed {scenario.seed}"
    )
    for assumption in scenario.trace.assumptions:
        terminal.line(f"- {assumption}", indent=2)
    terminal.line()
    late = ("LATE",) if due else ()
    terminal.table(
        ("$/GPU-H", "INDEX", "HOURS", "LOST H", "DONE", *late, "POLICY"),
        [_cells(row, late=bool(late)) for row in rows],
    )
    if pairs:
        terminal.line()
        terminal.line(
            f"{OURS} against each policy that always finished, start by start: saved share, "
            "± 95 % over starts (± over blocks of one job's length)"
        )
        terminal.table(
            ("DOLLARS", "TIME", "LOST WORK", "AGAINST"),
            [
                (
                    _share(pair.cost),
                    _share(pair.makespan),
                    "-" if pair.lost is None else f"{pair.lost:+.0%}",
                    pair.peer,
                )
                for pair in pairs
            ],
        )
    terminal.line()


def _cells(row: Row, *, late: bool) -> tuple[str, ...]:
    usd, index = row.usd_per_useful_gpu_hour, row.cost_index
    around = f" ±{index.starts * usd / index.mean:.3f}" if usd and index else ""
    return (
        "-" if usd is None else f"{usd:.3f}{around}",
        "-" if index is None else f"{index.mean:.3f}",
        _mean(row.makespan_hours, 1),
        f"{row.lost_hours.mean:.2f}",
        f"{row.finish_rate:.0%}",
        *((str(row.deadline_misses),) if late else ()),
        row.policy.name,
    )


def _mean(value: Estimate | None, digits: int) -> str:
    return "-" if value is None else f"{value.mean:.{digits}f} ±{value.starts:.{digits}f}"


def _share(value: Estimate) -> str:
    wide = "" if value.blocks is None else f" (±{100 * value.blocks:.1f})"
    return f"{100 * value.mean:+.1f} ±{100 * value.starts:.1f}{wide} %"


def answer(rows: Sequence[Row]) -> str:
    """Return the last line: what ours came to, and whether a peer beats it in both."""
    own = next((row for row in rows if row.policy.name == OURS), None)
    if own is None or own.cost_index is None or own.makespan_hours is None:
        return f"{len(rows)} policies simulated"
    cost, hours = own.cost_index, own.makespan_hours
    better = [
        row.policy.name
        for row in rows
        if not row.policy.ours
        and row.cost_index
        and row.makespan_hours
        and row.cost_index.mean <= cost.mean
        and row.makespan_hours.mean <= hours.mean
    ]
    verdict = (
        f"{', '.join(better)} at once as cheap and as fast"
        if better
        else "no other policy here is at once as cheap and as fast"
    )
    return (
        f"{OURS}: ${own.usd_per_useful_gpu_hour:.3f} per useful GPU-hour, "
        f"{hours.mean:.1f} h, {own.lost_hours.mean:.2f} h lost; {verdict}"
    )
