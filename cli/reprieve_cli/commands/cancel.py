"""``reprieve cancel``."""

from __future__ import annotations

import click

from reprieve.domain.job import JobStatus
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.errors import AnswerIsNoError
from reprieve_cli.terminal import Terminal


@click.command(short_help="Stop a job for good.")
@job_argument
@json_option
@click.pass_obj
def cancel(context: Context, /, job_id: str, terminal: Terminal) -> None:
    """Close JOB and its lease in one write; its host stops it at the next renewal."""
    from reprieve.usecases.submit import Cancel

    cloud = context.find_cloud()
    find_job(cloud, job_id)
    job = Cancel(rows=cloud.rows, now=cloud.now)(job_id)
    if job.status is not JobStatus.CANCELLED:
        raise AnswerIsNoError(f"{job.id} was over already: {job.status} ({job.reason})")
    terminal.answer(f"{job.id} CANCELLED", {"id": job.id, "status": job.status.value})
