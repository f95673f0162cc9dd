"""``reprieve requeue``."""

from __future__ import annotations

import click

from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.errors import AnswerIsNoError
from reprieve_cli.terminal import Terminal


@click.command(short_help="Send a parked or running job on.")
@job_argument
@json_option
@click.pass_obj
def requeue(context: Context, /, job_id: str, terminal: Terminal) -> None:
    """
    Let JOB go on from its newest checkpoint, now.

    A parked job is queued again, a running one is taken off its host. No budget is charged.
    """
    cloud = context.find_cloud()
    before = find_job(cloud, job_id)
    if before.terminal:
        raise AnswerIsNoError(f"{job_id} is over: {before.status} ({before.reason})")
    cloud.settle(job_id, requeued=True)
    job = find_job(cloud, job_id)
    terminal.answer(
        f"{job.id} {job.status}, attempt {job.attempt}",
        {"id": job.id, "status": job.status.value, "attempt": job.attempt},
    )
