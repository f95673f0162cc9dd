"""``reprieve why``."""

from __future__ import annotations

import click

from reprieve_cli import documents, timeline
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.commands.status import answer, attempts_table
from reprieve_cli.terminal import Terminal


@click.command(short_help="Tell a job's story: who saw what, and what was done.")
@job_argument
@json_option
@click.pass_obj
def why(context: Context, /, job_id: str, terminal: Terminal) -> None:
    """Tell what happened to JOB: notices and who saw them first, checkpoints, hosts, losses."""
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    events = cloud.jobs.events(job.id)
    attempts = cloud.jobs.attempts(job.id)
    heard = timeline.channels(events)
    orders = timeline.orders(cloud, job)
    if not terminal.json:
        for line in timeline.Story(cloud, job.id).news():
            terminal.line(str(line), indent=timeline.INDENT)
        if heard:
            terminal.line()
        for notice in heard:
            terminal.line(str(notice), indent=2)
        if attempts:
            terminal.line()
            attempts_table(attempts, terminal, now=cloud.now())
    terminal.answer(
        answer(job, cloud.jobs.lease(job.lease_key)),
        {
            "id": job.id,
            "status": job.status.value,
            "reason": job.reason,
            "events": [documents.event(row) for row in events],
            "channels": [documents.heard(one) for one in heard],
            "attempts": [documents.attempt(row) for row in attempts],
            "orders": [documents.order(head, tries) for head, tries in orders],
        },
    )
