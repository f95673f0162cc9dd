"""``reprieve logs``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from reprieve.domain.checkpoint import log_key
from reprieve.domain.job import Job
from reprieve_cli.commands.common import Context, find_job, job_argument
from reprieve_cli.errors import AnswerIsNoError, BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import trouble

POLL_SECONDS = 2.0
ANCHOR_BYTES = 1024


@click.command(short_help="Print what a job wrote.")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt; by default the newest.")
@click.pass_obj
def logs(context: Context, /, job_id: str, *, follow: bool, attempt: int | None) -> None:
    """
    Print what JOB wrote to stdout and stderr, as its host copied it to the bucket.

    The copy trails the job by a few seconds; the last one is made when an attempt ends.
    """
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    if attempt is not None and attempt > job.attempt:
        raise BadInputError(f"--attempt {attempt}: {job.id} is at attempt {job.attempt}")
    if follow:
        follow_log(cloud, job, attempt=attempt)
        return
    newest = attempt or _newest(cloud, job)
    body = cloud.objects.read(log_key(job.id, newest)) if newest else None
    if body is None:
        raise AnswerIsNoError(f"{job.id} has written nothing yet: {job.status} ({job.reason})")
    _write(body)


def follow_log(
    cloud: Cloud,
    job: Job,
    *,
    attempt: int | None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write what comes, attempt after attempt, until the job (or *attempt*) is over."""
    at = attempt or _newest(cloud, job) or job.attempt
    tail = _Tail(cloud, log_key(job.id, at))
    while True:
        job = find_job(cloud, job.id)  # before the read: what is over has written its last
        over = job.terminal or job.attempt > at
        body = tail.new()
        if body:
            _write(body)
        elif over and (job.terminal or attempt is not None):
            return
        elif over:
            at += 1
            tail = _Tail(cloud, log_key(job.id, at))
            trouble(f"-- attempt {at}")
        else:
            sleep(POLL_SECONDS)


@dataclass(slots=True)
class _Tail:
    """
    Reads what was added to one log.

    A long log loses its beginning from one copy to the next, so the place where we stopped
    is known by the bytes before it, not by its number alone.
    """

    cloud: Cloud
    key: str
    _at: int = 0
    _before: bytes = b""

    def new(self) -> bytes:
        """Return what came since the last call."""
        seen = len(self._before)
        body = self.cloud.objects.read(self.key, start=self._at - seen) or b""
        if not body.startswith(self._before):
            body = self.cloud.objects.read(self.key) or b""
            found = body.rfind(self._before)
            self._at, seen = 0, found + seen if found >= 0 else 0
        else:
            self._at -= seen
        self._at += len(body)
        self._before = body[-ANCHOR_BYTES:]
        return body[seen:]


def _newest(cloud: Cloud, job: Job) -> int | None:
    """Return the newest attempt that has a log: the current one may not have started."""
    numbers = range(job.attempt, 0, -1)
    found = cloud.objects.sizes(f"jobs/{job.id}/logs/")
    return next((n for n in numbers if log_key(job.id, n) in found), None)


def _write(body: bytes) -> None:
    # As it is: a job may write what no encoding can read.
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
