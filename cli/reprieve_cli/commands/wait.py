"""``reprieve wait``."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import click

from reprieve.domain.job import Job, JobStatus
from reprieve_cli import documents, phrases, timeline
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.commands.status import answer
from reprieve_cli.errors import AnswerIsNoError, BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

POLL_SECONDS = 1.0


@click.command(short_help="Wait until a job is over, and tell what happens meanwhile.")
@job_argument
@click.option("--timeout", metavar="TIME", help="Give up after this: 90s, 10m, 12h.")
@json_option
@click.pass_obj
def wait(context: Context, /, job_id: str, timeout: str | None, terminal: Terminal) -> None:
    """
    Wait until JOB is over. Exit status 0 if it SUCCEEDED; 1 if it didn't, or needs you.

    Ctrl-C stops the waiting, not the job.
    """
    limit = _limit(timeout)
    cloud = context.find_cloud()
    job = follow(cloud, find_job(cloud, job_id), terminal, limit=limit)
    if not job.terminal and not job.needs_you:
        raise AnswerIsNoError(f"{job.id} is still {job.status} after {timeout}: {job.reason}")
    document = documents.status(job, cloud.jobs.attempts(job.id), cloud.objects)
    terminal.answer(answer(job, cloud.jobs.lease(job.lease_key)), document)
    if job.status is not JobStatus.SUCCEEDED:
        raise click.exceptions.Exit(1)


def follow(
    cloud: Cloud,
    job: Job,
    terminal: Terminal,
    *,
    limit: timedelta | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """Tell what is new until *job* is over, needs a person, or *limit* has passed."""
    story = timeline.Story(cloud, job.id, brief=True)
    give_up = cloud.now() + limit if limit is not None else None
    with terminal.working(_where(cloud, job)) as show:
        while True:
            job = find_job(cloud, job.id)
            over = job.terminal or job.needs_you or (give_up and cloud.now() >= give_up)
            for line in story.news(before=None if over else cloud.now() - timeline.HOLD_BACK):
                terminal.line(str(line), indent=timeline.INDENT)
            if over:
                return job
            show(_where(cloud, job))
            sleep(POLL_SECONDS)


def _where(cloud: Cloud, job: Job) -> str:
    return answer(job, cloud.jobs.lease(job.lease_key))


def _limit(text: str | None) -> timedelta | None:
    if text is None:
        return None
    limit = phrases.parse_duration(text)
    if limit is None or limit < timedelta():
        raise BadInputError(f"--timeout {text!r} is no length of time: write 90s, 10m or 12h")
    return limit
