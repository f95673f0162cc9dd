"""Submit and cancel: what people do to jobs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve.domain.errors import ReprieveError, StaleError, UnknownOutcomeError
from reprieve.domain.job import Attempt, Event, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState
from reprieve.domain.spec import JobSpec
from reprieve.ports.cloud import Mail
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.protocol import Ticket
from reprieve.usecases.settle import new_token, place_order

TRIES = 5
NAME_LENGTH = 32


class NoSuchJobError(ReprieveError):
    """No job has this id."""


def job_id(name: str) -> str:
    """Return ``name-xxxxxxxx``: readable, unique, safe in keys and tags."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")
    return f"{slug or 'job'}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Submit:
    """Store the job and arm its first attempt, then send its ticket and its order."""

    jobs: JobStore
    orders: OrderStore
    mail: Mail
    now: Callable[[], datetime]

    def __call__(self, *, name: str, pool: str, spec: JobSpec) -> Job:
        """Return the queued job. What is lost after the first write, the sweep sends again."""
        now = self.now()
        job = Job(
            id=job_id(name),
            name=name,
            pool=pool,
            spec=spec,
            token=new_token(),
            created_at=now,
            updated_at=now,
            ticket_at=now,
            reason="submitted",
        )
        self.jobs.submit(job, Lease(job.lease_key, pool, spec))
        self.jobs.add_events(job.id, [Event(now, "submitted", f"submitted to pool {pool}", 1)])
        self.mail.ticket(pool, Ticket(job.id, job.attempt, job.token))
        place_order(self.orders, self.mail, job, job.attempt, reason="submitted", now=now)
        return job


@dataclass(frozen=True, slots=True)
class Cancel:
    """Close the job and its lease in one write; the host's next renewal is refused."""

    jobs: JobStore
    now: Callable[[], datetime]

    def __call__(self, job_id: str) -> Job:
        """Return the job as it ended; one that was over already is returned as it is."""
        for remaining in reversed(range(TRIES)):
            job = self.jobs.read(job_id)
            if job is None:
                message = f"no job {job_id}"
                raise NoSuchJobError(message)
            if job.terminal:
                return job
            try:
                return self._close(job)
            except (StaleError, UnknownOutcomeError):
                if not remaining:
                    raise
        raise AssertionError  # the last round returned or raised

    def _close(self, job: Job) -> Job:
        now = self.now()
        lease = self.jobs.lease(job.lease_key)
        if lease is None:
            message = f"job {job.id} has no lease row"
            raise StaleError(message)
        cancelled = replace(
            job.to(JobStatus.CANCELLED, reason="cancelled"),
            updated_at=now,
            next_try_at=None,
            needs_you=False,
        )
        stored = self._store(cancelled, lease)
        self.jobs.add_events(job.id, [Event(now, "cancelled", "cancelled", job.attempt)])
        return stored

    def _store(self, job: Job, lease: Lease) -> Job:
        if lease.state is LeaseState.CLOSED:
            # Parked until somebody says so: its attempt has ended, only the job is left to end.
            return self.jobs.update(job)
        ended = Attempt(
            job.id,
            job.attempt,
            ended_at=job.updated_at,
            cause=Cause.OPERATOR,
            restored_step=lease.restored_step,
            last_step=lease.step,
            committed_step=lease.committed_step,
        )
        return self.jobs.end_attempt(job, lease, successor=None, ended=ended)
