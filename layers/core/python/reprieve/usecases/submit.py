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
from reprieve.domain.settlement import Facts
from reprieve.domain.spec import JobSpec
from reprieve.ports.cloud import Mail
from reprieve.ports.rows import (
    AddEvents,
    NoteAttempt,
    PutJob,
    PutLease,
    Rows,
    Snapshot,
    Write,
)
from reprieve.protocol import Ticket
from reprieve.usecases.effects import Effects, closing, ordered
from reprieve.usecases.settle import facts_of, new_token, read_job

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
    """Store the job, arm its first attempt and order a host for it; then send what follows."""

    rows: Rows
    mail: Mail
    now: Callable[[], datetime]

    def __call__(self, *, name: str, pool: str, spec: JobSpec) -> Job:
        """Return the queued job. What is lost after the commit, the sweep sends again."""
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
        said = Event(now, "submitted", f"submitted to pool {pool}", 1)
        stored = Effects(
            (
                PutJob(job, new=True),
                PutLease(Lease(job.lease_key, pool, spec)),
                AddEvents(job.id, (said,)),
            ),
            tickets=((pool, Ticket(job.id, job.attempt, job.token, spec.needs)),),
        ) + ordered(job, job.attempt, stands=None, reason="submitted", now=now)
        self.rows.commit(stored.writes)
        stored.send(self.mail)
        return job


@dataclass(frozen=True, slots=True)
class Cancel:
    """Close the job and its lease in one commit; the host's next renewal is refused."""

    rows: Rows
    now: Callable[[], datetime]

    def __call__(self, job_id: str) -> Job:
        """Return the job as it ended; one that was over already is returned as it is."""
        for remaining in reversed(range(TRIES)):
            facts = facts_of(read_job(self.rows, job_id, Snapshot()), job_id)
            if facts is None:
                message = f"no job {job_id}"
                raise NoSuchJobError(message)
            if facts.job.terminal:
                return facts.job
            try:
                return self._close(facts)
            except (StaleError, UnknownOutcomeError):
                if not remaining:
                    raise
        raise AssertionError  # the last round returned or raised

    def _close(self, facts: Facts) -> Job:
        now, lease = self.now(), facts.lease
        if lease is None:
            message = f"job {facts.job.id} has no lease row"
            raise StaleError(message)
        job = replace(
            facts.job.to(JobStatus.CANCELLED, reason="cancelled"),
            updated_at=now,
            next_try_at=None,
            needs_you=False,
        )
        said = Event(now, "cancelled", "cancelled", job.attempt)
        writes: list[Write] = [PutJob(job), AddEvents(job.id, (said,))]
        # Parked until somebody says so: its attempt has ended, only the job is left to end.
        if lease.state is not LeaseState.CLOSED:
            writes += [*closing(lease), NoteAttempt(_ended(job, lease))]
        self.rows.commit(writes)
        return replace(job, version=job.version + 1)


def _ended(job: Job, lease: Lease) -> Attempt:
    return Attempt(
        job.id,
        job.attempt,
        ended_at=job.updated_at,
        cause=Cause.OPERATOR,
        restored_step=lease.restored_step,
        last_step=lease.step,
        committed_step=lease.committed_step,
    )
