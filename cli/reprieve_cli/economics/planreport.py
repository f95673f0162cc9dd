"""A plan as a table, as one line, and as JSON."""

from __future__ import annotations

import math
from typing import Any

from reprieve_cli.economics.forecast import Forecast, Option, Spread
from reprieve_cli.economics.listed import ADVISOR_DATE, PRICES_DATE
from reprieve_cli.terminal import Terminal

TEN = 10
SHOWN = 12  # ways worth a line on a terminal; --json has all


def document(plan: Forecast, *, refused: str | None, finishes: float | None) -> dict[str, Any]:
    """Return ``plan --json``; what has no value is null."""
    due = plan.deadline
    return {
        "job": plan.job.name,
        "work_hours": plan.job.work_hours,
        "refused": refused,
        "chance_of_ever_finishing": finishes,
        "recommended": plan.best.name if plan.best and not refused else None,
        "spot": [_option(option) for option in plan.spot],
        "on_demand": _option(plan.on_demand) if plan.on_demand else None,
        "deadline": due
        and {
            "hours": due.hours,
            "feasible": due.feasible,
            "on_demand_when_slack_below_hours": due.switch_slack_hours,
            "at_most_usd": due.on_demand_usd,
        },
        "warnings": list(plan.warnings),
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "type": option.type,
        "zone": option.zone or None,
        "market": "spot" if option.spot else "on-demand",
        "usd_per_hour": option.usd_per_hour,
        "interval_seconds": _finite(option.interval_seconds),
        "fits_in_notice": option.fits,
        "largest_state_gb": option.largest_gigabytes,
        "recall": option.recall,
        "hazard_per_hour": option.history.hazard_per_hour if option.spot else 0.0,
        "no_interruption": option.no_interruption,
        "interruptions": option.interruptions,
        "overhead": _finite(option.overhead),
        "finishes": option.finishes,
        "hours": _spread(option.hours),
        "usd": _spread(option.usd),
        "on_time": option.on_time,
        "break_even": option.break_even,
        "pays": option.pays if option.spot else None,
        "advisor_band": option.listed.band if option.spot else None,
    }


def _spread(value: Spread | None) -> dict[str, float] | None:
    if value is None:
        return None
    return {"mean": value.mean, "p5": value.p5, "p50": value.p50, "p95": value.p95}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def tell(terminal: Terminal, plan: Forecast) -> None:
    """Say the plan to a person."""
    job = plan.job
    due = job.deadline_hours
    terminal.line(
        f"{job.name}: {job.work_hours:,.1f} h of work"
        + (f" on {job.hosts} hosts" if job.hosts > 1 else "")
        + (f", due in {due:g} h" if due else "")
        + f", {job.region}"
    )
    terminal.line(
        f"- on-demand prices of {PRICES_DATE} (us-east-1), Spot from the Advisor's savings of "
        f"{ADVISOR_DATE}, unless the job file says otherwise",
        indent=2,
    )
    if plan.deadline:
        terminal.line(
            f"- to be sure of the deadline, go on demand once less than "
            f"{plan.deadline.switch_slack_hours:.1f} h of slack is left: nothing does that by "
            "itself yet",
            indent=2,
        )
    terminal.line()
    late = ("DUE",) if due else ()
    terminal.table(
        ("WHERE", "$/H", "SAVE", "NONE", "INT.", "HOURS", "DOLLARS", *late, "REDO"),
        [
            _cells(option, late=bool(late))
            for option in [*plan.spot[:SHOWN], *([plan.on_demand] if plan.on_demand else [])]
        ],
    )
    if len(plan.spot) > SHOWN:
        terminal.line(f"and {len(plan.spot) - SHOWN} dearer ones (--json has all)")
    terminal.line(
        "SAVE: time between checkpoints. NONE: chance of no interruption. INT.: interruptions "
        "expected. HOURS, DOLLARS: median (middle 90 %). "
        + ("DUE: chance on Spot alone. " if due else "")
        + "REDO: work that may be repeated before on-demand is cheaper."
    )
    terminal.line()


def _cells(option: Option, *, late: bool) -> tuple[str, ...]:
    return (
        option.name if option.spot else "on demand",
        f"{option.usd_per_hour:.3f}",
        _every(option) if option.spot else "-",
        f"{option.no_interruption:.0%}",
        f"{option.interruptions:.1f}",
        _range(option.hours),
        _range(option.usd),
        *(("-" if option.on_time is None else f"{option.on_time:.0%}",) if late else ()),
        "-" if option.break_even is None else f"{option.break_even:.0%}",
    )


def _every(option: Option) -> str:
    if math.isinf(option.interval_seconds):
        return "never"
    return f"{option.interval_seconds / 60:.0f} min"


def _range(value: Spread | None) -> str:
    """Return median and middle 90 %, with the digits that matter."""
    if value is None:
        return "-"
    digits = 2 if value.p95 < TEN else 0 if value.p5 >= TEN else 1
    return f"{value.p50:,.{digits}f} ({value.p5:,.{digits}f}-{value.p95:,.{digits}f})"


def answer(plan: Forecast) -> str:
    """Return the last line: where to run, how often to save, what it takes."""
    best, sure = plan.best, plan.on_demand
    beside = ""
    if sure and sure.usd and sure.hours:
        beside = f"on demand ${sure.usd.mean:,.2f} in {sure.hours.mean:,.1f} h"
    if best is None or best.usd is None or best.hours is None:
        return f"no Spot pool pays: {beside}" if beside else "nothing here has a price"
    saved = ""
    if sure and sure.usd:
        saved = f", {1 - best.usd.mean / sure.usd.mean:.0%} saved"
    return (
        f"Spot on {best.name}, a checkpoint every {_every(best)}: ${best.usd.mean:,.2f} in "
        f"{best.hours.mean:,.1f} h{saved}; {beside or 'on-demand price unknown'}"
    )
