"""
The lease: the one fact about who runs an attempt.

One row per attempt, keyed by attempt and token, so an old host's write can't reach the
row of a newer attempt. Functions arm and close it; the host claims, renews, seals and
releases it. ``beat`` rises with every write, which lets an observer count silence
without comparing two machines' clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from reprieve.domain.economics.hosting import Terms
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.spec import JobSpec


class LeaseState(StrEnum):
    """FREE -> HELD -> DONE, and CLOSED from any of them."""

    FREE = "FREE"  # armed: the ticket of this attempt may be claimed
    HELD = "HELD"  # one boot of one host owns the attempt
    DONE = "DONE"  # the holder released it together with the outcome
    CLOSED = "CLOSED"  # the attempt is over for everyone


class Phase(StrEnum):
    """What the holder is doing, as it said in its last renewal."""

    CLAIMED = "CLAIMED"
    RESTORING = "RESTORING"
    SEALED = "SEALED"
    RUNNING = "RUNNING"
    SAVING = "SAVING"
    UPLOADING = "UPLOADING"


class Outcome(StrEnum):
    """How an attempt ended, written into the lease by the write that releases it."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Cause(StrEnum):
    """Why an attempt ended; the budgets are charged by it."""

    DONE = "done"
    CRASH = "crash"  # charged to max_restarts
    NOTICE = "notice"  # EC2 announced it
    LOST = "lost"  # gone without a word
    SILENT = "silent"  # counted out by the sweep
    REQUEUE = "requeue"  # the job asked for it (exit 75)
    REBOOT = "reboot"  # the host came back as another boot
    STOP = "stop"  # the agent was told to stop
    SETUP_FAILED = "setup failed"
    NO_VALID_CHECKPOINT = "no valid checkpoint"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """Names one attempt of one job, token included."""

    job: str
    attempt: int
    token: str

    def __str__(self) -> str:
        """Return the form kept in HOLDS: ``job#attempt#token``."""
        return f"{self.job}#{self.attempt}#{self.token}"

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """Read what ``str`` wrote."""
        job, attempt, token = text.rsplit("#", 2)
        return cls(job, int(attempt), token)


@dataclass(frozen=True, slots=True)
class Holder:
    """One boot of one host: after a reboot the same instance is another holder."""

    instance_id: str
    boot_id: str

    def __str__(self) -> str:
        """Return ``instance/boot``."""
        return f"{self.instance_id}/{self.boot_id}"

    @classmethod
    def parse(cls, text: str) -> Holder:
        """Read what ``str`` wrote."""
        instance_id, _, boot_id = text.partition("/")
        return cls(instance_id, boot_id)


@dataclass(frozen=True, slots=True)
class Lease:
    """
    The row of one attempt.

    ``sealed_attempt`` and ``base`` are the lineage: the last attempt that sealed, and the
    manifest key it started from (None: from nothing). A row whose ``sealed_attempt`` is
    its own attempt has been sealed, and only then may its job run. ``pointer`` is the
    newest commit that was known on arming: if the bucket then has nothing at all, the
    checkpoints were lost, and the job must not silently begin anew. ``step`` is the last
    step the job reported, ``committed_step`` the last one whose manifest is in the
    bucket, ``restored_step`` the one it began from. ``rate`` is how the job's emergency
    checkpoints had gone before it was armed.
    """

    key: LeaseKey
    pool: str
    spec: JobSpec
    state: LeaseState = LeaseState.FREE
    holder: Holder | None = None
    beat: int = 0
    phase: Phase | None = None
    step: int | None = None
    restored_step: int | None = None
    committed_step: int | None = None
    committed_manifest: str | None = None
    sealed_attempt: int = 0
    base: str | None = None
    pointer: str | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    exit_code: int | None = None
    detail: str = ""
    rate: SuccessRate = field(default_factory=SuccessRate)

    @property
    def sealed(self) -> bool:
        """Whether this attempt fixed its base; only a sealed attempt's commits count."""
        return self.sealed_attempt == self.key.attempt

    @property
    def durable_step(self) -> int | None:
        """The step a next attempt will start from, as far as this row knows."""
        return self.committed_step if self.committed_step is not None else self.restored_step


@dataclass(frozen=True, slots=True)
class Holds:
    """
    Which leases a host holds, and the beat an idle agent raises to show that it lives.

    ``terms`` are what functions told the host when it landed; an idle beat reads them.
    """

    instance_id: str
    leases: frozenset[LeaseKey] = frozenset()
    beat: int = 0
    terms: Terms | None = None
