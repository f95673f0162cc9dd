"""A job and the only moves it can make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.errors import IllegalTransitionError
from reprieve.domain.lease import Cause, LeaseKey, Outcome
from reprieve.domain.spec import JobSpec


class JobStatus(StrEnum):
    """Where a job stands. Every job is in a terminal state or waits visibly."""

    QUEUED = "QUEUED"  # its attempt is armed, no host has it
    STARTING = "STARTING"  # claimed: code and checkpoint are on their way
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"  # its host is under notice; a checkpoint is being written
    PARKED = "PARKED"  # waits with a reason and a next try, or needs you
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


S = JobStatus
TERMINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})

# The table is the documentation. A lease can be found further on than the job row says
# (reports overtake each other), so every live status may reach every later one.
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    S.QUEUED: frozenset({S.STARTING, S.RUNNING, S.DRAINING, S.PARKED}) | TERMINAL,
    S.STARTING: frozenset({S.RUNNING, S.DRAINING, S.QUEUED, S.PARKED}) | TERMINAL,
    S.RUNNING: frozenset({S.DRAINING, S.QUEUED, S.PARKED}) | TERMINAL,
    S.DRAINING: frozenset({S.QUEUED, S.PARKED}) | TERMINAL,
    S.PARKED: frozenset({S.QUEUED, S.STARTING, S.RUNNING, S.DRAINING}) | TERMINAL,
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Counters:
    """Four separate budgets; an interruption is never charged as a crash."""

    interruptions: int = 0
    launch_failures: int = 0
    crashes: int = 0
    no_progress: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """The newest commit that functions know of; the manifest in the bucket is the proof."""

    step: int
    manifest: str


@dataclass(frozen=True, slots=True)
class Job:
    """
    The job's row. ``version`` guards every write; ``attempt`` and ``token`` name its lease.

    ``ticket_at`` is when the current attempt's ticket was last put on the queue, written
    before it is sent: a lost ticket is found by its age. ``rate`` counts emergency
    checkpoints, those that were tried and those that held. ``on_demand`` says why its hosts
    are asked for on demand first, empty if they aren't. ``forgiven`` are the lost steps that
    a person has seen and waved through.
    """

    id: str
    name: str
    pool: str
    spec: JobSpec
    token: str
    created_at: datetime
    updated_at: datetime
    ticket_at: datetime
    attempt: int = 1
    status: JobStatus = JobStatus.QUEUED
    version: int = 1
    reason: str = ""
    needs_you: bool = False
    next_try_at: datetime | None = None
    checkpoint: CheckpointRef | None = None
    counters: Counters = field(default_factory=Counters)
    steps_lost: int = 0
    rate: SuccessRate = field(default_factory=SuccessRate)
    on_demand: str = ""
    forgiven: int = 0

    @property
    def terminal(self) -> bool:
        """Whether the job is over."""
        return self.status in TERMINAL

    @property
    def lease_key(self) -> LeaseKey:
        """The lease of the current attempt."""
        return LeaseKey(self.id, self.attempt, self.token)

    def to(self, status: JobStatus, *, reason: str) -> Self:
        """Return the job moved to *status*; raise ``IllegalTransitionError`` if it can't."""
        if status is not self.status and status not in TRANSITIONS[self.status]:
            raise IllegalTransitionError(f"job {self.id}", self.status, status)
        return replace(self, status=status, reason=reason)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a job on one host: history for people, never read by a decision."""

    job: str
    n: int
    instance_id: str | None = None
    instance_type: str | None = None
    zone: str | None = None
    market: str | None = None
    usd_per_hour: float | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    restored_step: int | None = None
    last_step: int | None = None
    committed_step: int | None = None
    steps_lost: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline behind ``why``: what happened, and the facts with it."""

    at: datetime
    kind: str
    text: str
    attempt: int | None = None
    data: dict[str, str | int | float | bool | None] = field(default_factory=dict)
