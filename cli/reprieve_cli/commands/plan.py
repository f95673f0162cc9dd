"""``reprieve plan``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprieve_cli.commands.common import Context, find_job, json_option
from reprieve_cli.errors import Exit
from reprieve_cli.terminal import Terminal

if TYPE_CHECKING:
    from reprieve_cli.economics.forecast import Forecast
    from reprieve_cli.economics.jobfile import PlannedJob


@click.command(short_help="Say what a job would cost, and when it would end.")
@click.argument("what", metavar="FILE|JOB")
@click.option("--work-hours", type=click.FloatRange(0.01, 100_000), metavar="H")
@click.option("--deadline-hours", type=click.FloatRange(0.01, 100_000), metavar="H")
@click.option("--force", is_flag=True, help="Plan Spot also for a job that can't resume.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw cost and end by pool: .png, .svg or .pdf.",
)
@json_option
@click.pass_obj
def plan(
    context: Context,
    /,
    *,
    what: str,
    work_hours: float | None,
    deadline_hours: float | None,
    force: bool,
    plot: Path | None,
    terminal: Terminal,
) -> None:
    """
    Plan a job file, or the next run of a job that is over: interval, cost, end, per pool.

    Nothing is started. A job that can't resume is refused on Spot, unless forced, with the
    chance that it ever finishes.
    """
    from reprieve_cli.economics import forecast, planreport, plots

    if plot:
        plots.checked(plot)
    job = _job(context, what)
    job = replace(
        job,
        work_hours=work_hours or job.work_hours,
        deadline_hours=deadline_hours or job.deadline_hours,
    )
    found = forecast.forecast(job)
    finishes = None
    refused = None
    if job.checkpoints is None and found.spot:
        calmest = max(found.spot, key=lambda option: option.no_interruption)
        finishes = forecast.ever_finishes(job, calmest.history)
        refused = None if force else _refusal(found, finishes)
    if not terminal.json:
        planreport.tell(terminal, found)
    for warning in found.warnings:
        terminal.warn(warning)
    if plot:
        plots.plan(plot, found)
    late = found.deadline is not None and not found.deadline.feasible
    last = refused or planreport.answer(found)
    if finishes is not None and not refused:
        last += f"; the chance that it ever finishes on Spot is {finishes:.0%}"
    terminal.answer(last, planreport.document(found, refused=refused, finishes=finishes))
    if refused or late:
        raise click.exceptions.Exit(Exit.NO)


def _job(context: Context, what: str) -> PlannedJob:
    from reprieve_cli.economics import finished, jobfile

    path = Path(what)
    if path.suffix in {".yaml", ".yml", ".json"} or path.is_file():
        return jobfile.load(path)
    cloud = context.find_cloud()
    return finished.planned(cloud, find_job(cloud, what))


def _refusal(found: Forecast, finishes: float) -> str:
    job = found.job
    limit = f"by its deadline of {job.deadline_hours:g} h" if job.deadline_hours else "in 30 days"
    sure = found.on_demand
    instead = f"run it on demand (${sure.usd.mean:,.2f})" if sure and sure.usd else "run on demand"
    return (
        f"refused: {job.name} has no checkpoint hook, so on Spot the chance that it ever "
        f"finishes ({limit}) is {finishes:.0%}; make it resume (docs/job-contract.md), "
        f"{instead}, or --force"
    )
