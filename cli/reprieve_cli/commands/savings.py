"""``reprieve savings``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reprieve_cli.commands.common import Context, find_job, json_option
from reprieve_cli.errors import BadInputError
from reprieve_cli.terminal import Terminal

if TYPE_CHECKING:
    from reprieve_cli.savings import Savings


@click.command(short_help="Say what jobs cost, and what they would have on demand.")
@click.argument("job_ids", metavar="[JOB]...", nargs=-1)
@json_option
@click.pass_obj
def savings(context: Context, /, job_ids: tuple[str, ...], terminal: Terminal) -> None:
    """Say what JOBs cost so far, by default all that aren't over, beside the same on demand."""
    from reprieve_cli import savings as money

    cloud = context.find_cloud()
    live = [job for pool in cloud.stack.pools for job, _ in cloud.jobs.live(pool).jobs]
    jobs = [find_job(cloud, job_id) for job_id in job_ids or live]
    if not jobs:
        raise BadInputError("no job is running: name those that are over")
    attempts = [row for job in jobs for row in cloud.jobs.attempts(job.id)]
    hosts = cloud.hosts.read({row.instance_id for row in attempts if row.instance_id})
    found = money.of_attempts(attempts, hosts, now=cloud.now())
    if not terminal.json:
        terminal.table(
            ("TRY", "TYPE", "MARKET", "HOURS", "USEFUL", "COST", "FREE", "ON DEMAND"),
            [
                (
                    str(row.attempt),
                    row.type,
                    row.market,
                    f"{row.hours:.2f}",
                    f"{row.useful_hours:.2f}",
                    _usd(row.usd),
                    _usd(row.free_usd),
                    _usd(row.on_demand_usd),
                )
                for row in found.rows
            ],
        )
        if found.unpriced:
            terminal.line(f"{found.unpriced} without a known price, in neither sum")
        terminal.line(money.SOURCES)
    terminal.answer(_answer(found), found.document())


def _answer(found: Savings) -> str:
    if found.share is None:
        return "nothing ran yet whose price is known"
    return (
        f"${found.usd:.2f} spent, ${found.on_demand_usd:.2f} on demand for the same work: "
        f"{abs(found.share):.0%} {'saved' if found.share >= 0 else 'more'}"
    )


def _usd(usd: float | None) -> str:
    return "-" if usd is None else f"${usd:.2f}"
