"""What can happen to the agent. Events of an attempt carry its key, so that late ones are told."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.domain.lease import Cause, Holds, Lease, LeaseKey
from reprieve.domain.notice import Notice
from reprieve.ports.leases import Claim
from reprieve_agent.estimator import Estimates
from reprieve_agent.state import AckState, Process


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class HoldsRead:
    """An idle beat went through: what the table says this host holds."""

    holds: Holds


@dataclass(frozen=True, slots=True)
class NotAdopted:
    """Functions don't know this host."""


@dataclass(frozen=True, slots=True)
class Isolated:
    """
    No lease call got through for *seconds*.

    *metadata* tells if that service answers, *refused* if the table does, with a refusal
    of us that no retry mends: the role or the table is gone.
    """

    seconds: float
    metadata: bool
    refused: bool = False


@dataclass(frozen=True, slots=True)
class TicketCame:
    """A ticket from the work queue; *receipt* deletes it or gives it back."""

    key: LeaseKey
    receipt: str


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    key: LeaseKey
    claim: Claim


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """The first renewal of a lease: the whole row."""

    key: LeaseKey
    lease: Lease


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The row says that the lease isn't ours."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class Renewed:
    """The renewal asked for went through; it was sent at *sent* on the boot clock."""

    key: LeaseKey
    sent: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """
    Code and checkpoint lie ready; *base* is the manifest restored, None for a fresh start.

    *estimates* are what that one tells about steps and saves on this host.
    """

    key: LeaseKey
    base: str | None
    step: int | None
    estimates: Estimates = field(default_factory=Estimates)


@dataclass(frozen=True, slots=True)
class PreparationFailed:
    """Nothing that another try on this host could mend."""

    key: LeaseKey
    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A checkpoint of the lineage is bad and was passed over."""

    key: LeaseKey
    manifest: str
    reason: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """The lineage is written; *base* is the one that counts, sent at *sent* on the boot clock."""

    key: LeaseKey
    base: str | None
    sent: float


@dataclass(frozen=True, slots=True)
class TooLate:
    """The start was due before *not_after* and came later: renew first."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class Launched:
    key: LeaseKey
    process: Process


@dataclass(frozen=True, slots=True)
class JobReady:
    """The job registered for requests."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class JobProgress:
    key: LeaseKey
    step: int


@dataclass(frozen=True, slots=True)
class JobAcked:
    key: LeaseKey
    request_id: str
    state: AckState
    step: int | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    """A whole folder appeared."""

    key: LeaseKey
    step: int


@dataclass(frozen=True, slots=True)
class JobExited:
    """
    The job's main process is gone.

    *exit_code* is None when nobody saw it; *stopped* if the host's shutdown stopped the job.
    """

    key: LeaseKey
    exit_code: int | None
    detail: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    """No process of the job is left; *found* are the whole steps, *done* is its last word."""

    key: LeaseKey
    found: tuple[int, ...]
    done: int | None


@dataclass(frozen=True, slots=True)
class Committed:
    key: LeaseKey
    step: int
    manifest: str
    digest: str
    bytes: int
    seconds: float
    uploaded: float | None = None  # when the data was in the bucket, on the boot clock
    sent: int | None = None  # of *bytes*, what wasn't in the bucket yet
    sent_seconds: float | None = None
    save_seconds: float | None = None  # how long the job said that its save took


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The folder is no checkpoint after all."""

    key: LeaseKey
    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The outcome is in the lease."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class ReleaseRefused:
    """The lease was closed by somebody else before its outcome could be written."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class Evicted:
    """Nothing of a lost attempt is left on this host."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class NoticeSeen:
    notice: Notice


@dataclass(frozen=True, slots=True)
class GpusFailed:
    """This host's GPUs can't be trusted with another job."""

    fault: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """SIGTERM."""


HostEvent = Tick | HoldsRead | NotAdopted | Isolated | NoticeSeen | GpusFailed | StopAsked
HoldEvent = (
    ClaimAnswered
    | LeaseRead
    | LeaseLost
    | Renewed
    | Prepared
    | PreparationFailed
    | Quarantined
    | Sealed
    | TooLate
    | Released
    | ReleaseRefused
    | Evicted
)
JobEvent = (
    Launched
    | JobReady
    | JobProgress
    | JobAcked
    | CheckpointFound
    | JobExited
    | Swept
    | Committed
    | CommitFailed
)
Event = HostEvent | TicketCame | HoldEvent | JobEvent
