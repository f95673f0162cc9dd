"""``reprieve simulate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.errors import BadInputError
from reprieve_cli.terminal import Terminal

if TYPE_CHECKING:
    from reprieve_cli.economics.policies import Policy
    from reprieve_cli.economics.scenario import Job, World


@click.command(short_help="Try policies on traces of real Spot capacity.")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="NAME|FILE",
    help="us-west-2 (default), bamboo-p3, bamboo-g4dn, bamboo-a100, or your own; repeatable.",
)
@click.option(
    "--polarity",
    metavar="TEXT",
    help="What 1 means in a file that doesn't say: 1=available or 1=preempted.",
)
@click.option(
    "--job",
    "kind",
    default="small",
    show_default=True,
    metavar="small|large|FILE",
    help="Its checkpoint, boot and restore times.",
)
@click.option("--work-hours", type=click.FloatRange(0.1, 10_000), metavar="H", help="Its length.")
@click.option("--recall", type=click.FloatRange(0, 1), help="Share of saves that beat the notice.")
@click.option(
    "--deadline-hours", type=click.FloatRange(0.1, 10_000), metavar="H", help="When it is due."
)
@click.option("--gang", type=click.IntRange(1, 1000), metavar="N", help="Its hosts.")
@click.option("--jobs", type=click.IntRange(1, 1000), default=1, help="Length of the queue.")
@click.option("--hosts", type=click.IntRange(1, 1000), default=1, help="Jobs run at a time.")
@click.option(
    "--silent-losses-per-hour",
    type=click.FloatRange(0, 10),
    default=0.0,
    help="Hosts lost without any notice.",
)
@click.option(
    "--delivery-seconds",
    type=click.FloatRange(0, 600),
    default=5.0,
    show_default=True,
    help="From EC2's notice until the host knows.",
)
@click.option(
    "--history-hours",
    type=click.FloatRange(0, 10_000),
    default=24.0,
    show_default=True,
    help="What the account has seen of the pools before; 0 is a new one.",
)
@click.option(
    "--spot-usd",
    type=click.FloatRange(0.0001, 1e5),
    default=0.918,
    show_default=True,
    help="Of one host for an hour.",
)
@click.option(
    "--on-demand-usd",
    type=click.FloatRange(0.0001, 1e5),
    default=3.06,
    show_default=True,
    help="The same.",
)
@click.option("--credit/--no-credit", default=True, help="Whether a lost first hour is free.")
@click.option("--policy", "names", multiple=True, metavar="NAME", help="Only these; repeatable.")
@click.option("--starts", type=click.IntRange(1, 100_000), default=300, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw it: .png, .svg or .pdf; of several traces each gets its own file.",
)
@json_option
@click.pass_obj
def simulate(_context: Context, /, terminal: Terminal, **given: Any) -> None:
    """
    Run Reprieve's own policy and behavioural models of peers over the same starts.

    Reprieve decides by its own domain code; which pools are asked is the deployed function
    itself (docs/economics.md says what else is). The peers are models of what they document,
    not their code. The same seed gives the same digits.
    """
    from reprieve_cli.economics import plots, progress, report, study, traces

    if given["jobs"] > 1 and given["deadline_hours"]:
        raise BadInputError("--deadline-hours is of one job: leave out --jobs")
    plot: Path | None = given["plot"] and plots.checked(given["plot"])
    policies = _policies(given["names"])
    names = given["traces"] or (traces.DEFAULT,)
    job = _job(given)
    scenarios = [
        study.Scenario(
            trace=traces.load(name, polarity=given["polarity"]),
            job=job,
            world=_world(given, least_horizon_hours=5 * job.work_hours * given["jobs"]),
            starts=given["starts"],
            seed=given["seed"],
            jobs=given["jobs"],
            slots=given["hosts"],
        )
        for name in names
    ]
    documents = []
    last = ""
    with progress.bar(len(scenarios) * len(policies) * given["starts"]) as told:
        for scenario in scenarios:
            rows = study.study(scenario, policies, told=told)
            pairs = study.pairs(scenario, rows)
            documents.append(report.document(scenario, rows, pairs))
            last = report.answer(rows)
            if not terminal.json:
                report.tell(terminal, scenario, rows, pairs)
            if plot:
                path = plot if len(scenarios) == 1 else _own_file(plot, scenario.trace.name)
                plots.study(path, scenario, rows, pairs)
                if not terminal.json:
                    terminal.line(f"drawn: {path}")
    terminal.answer(last, documents[0] if len(documents) == 1 else {"scenarios": documents})


def _policies(names: tuple[str, ...]) -> list[Policy]:
    from reprieve_cli.economics.policies import POLICIES, VARIANTS

    known = POLICIES | VARIANTS
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadInputError(f"no policy {unknown[0]}: choose from {', '.join(known)}")
    return [known[name] for name in names] if names else list(POLICIES.values())


def _job(given: dict[str, Any]) -> Job:
    from reprieve_cli.economics.jobfile import simulated
    from reprieve_cli.economics.scenario import JOBS

    job = JOBS.get(given["kind"]) or simulated(Path(given["kind"]))
    changes = {
        "work_hours": given["work_hours"],
        "recall": given["recall"],
        "deadline_hours": given["deadline_hours"],
        "hosts": given["gang"],
    }
    return replace(job, **{name: value for name, value in changes.items() if value is not None})


def _world(given: dict[str, Any], *, least_horizon_hours: float) -> World:
    from reprieve_cli.economics.scenario import World

    return World(
        horizon_hours=max(World().horizon_hours, least_horizon_hours),
        spot_usd_per_hour=given["spot_usd"],
        on_demand_usd_per_hour=given["on_demand_usd"],
        delivery_seconds=given["delivery_seconds"],
        first_hour_credit=given["credit"],
        silent_losses_per_hour=given["silent_losses_per_hour"],
        history_hours=given["history_hours"],
    )


def _own_file(plot: Path, name: str) -> Path:
    return plot.with_name(f"{plot.stem}-{name}{plot.suffix}")
