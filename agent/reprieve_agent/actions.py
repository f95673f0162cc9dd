"""
What the agent does. Each action can be carried out again: after a crash it will be.

The answer to an action is an event, if it has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprieve.domain.lease import Cause, Lease, LeaseKey
from reprieve.ports.leases import Progress
from reprieve.protocol import ReportKind, Scalar
from reprieve_agent.estimator import Estimates
from reprieve_agent.state import Ending, Process, Request


@dataclass(frozen=True, slots=True)
class TryClaim:
    """Answered by ``ClaimAnswered``."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class DeleteTicket:
    receipt: str


@dataclass(frozen=True, slots=True)
class ReturnTicket:
    """Make the ticket visible to others at once."""

    receipt: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """
    Fetch code and checkpoint. Answered by ``Prepared`` or ``PreparationFailed``.

    With *exactly* only ``lease.base`` may be restored, because the row already names it.
    """

    key: LeaseKey
    lease: Lease
    exactly: bool = False


@dataclass(frozen=True, slots=True)
class AbortPreparation:
    key: LeaseKey


@dataclass(frozen=True, slots=True)
class WriteSeal:
    """Answered by ``Sealed`` or ``LeaseLost``."""

    key: LeaseKey
    base: str | None


@dataclass(frozen=True, slots=True)
class RenewNow:
    """Answered by ``Renewed`` or ``LeaseLost``."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class Launch:
    """
    Start the job, unless it runs already. Answered by ``Launched``, ``TooLate`` or ``JobExited``.

    *not_after* is on the boot clock: a start that a freeze delayed beyond it must not happen.
    """

    key: LeaseKey
    lease: Lease
    base: str | None
    base_step: int | None
    not_after: float


@dataclass(frozen=True, slots=True)
class Attach:
    """Watch a job that an earlier run of the agent started."""

    key: LeaseKey
    lease: Lease
    base: str | None
    committed: str | None
    process: Process


@dataclass(frozen=True, slots=True)
class Ask:
    """Write the request, then wake the processes that registered for it."""

    key: LeaseKey
    request: Request
    process: Process | None
    wake: bool = True


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM, to the main process only: a group-wide one kills data workers first."""

    key: LeaseKey
    process: Process


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to every process of the job."""

    key: LeaseKey
    process: Process | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Kill what the job left running, then look at what it left on disk. Answered by ``Swept``."""

    key: LeaseKey
    process: Process | None


@dataclass(frozen=True, slots=True)
class Upload:
    """
    Verify, upload and commit one step. Answered by ``Committed`` or ``CommitFailed``.

    *estimates*, with what this upload adds to them, are left to the next host.
    """

    key: LeaseKey
    step: int
    estimates: Estimates = field(default_factory=Estimates, compare=False)


@dataclass(frozen=True, slots=True)
class AbortUploads:
    """Stop the uploads of *steps*, or all of them."""

    key: LeaseKey
    steps: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Prune:
    """Delete local checkpoints that newer committed ones made superfluous."""

    key: LeaseKey
    committed: int


@dataclass(frozen=True, slots=True)
class Release:
    """Answered by ``Released`` or ``ReleaseRefused``."""

    key: LeaseKey
    ending: Ending
    exit_code: int | None
    progress: Progress


@dataclass(frozen=True, slots=True)
class ReleaseStray:
    """Give up, as interrupted, a lease that this host holds and doesn't run."""

    key: LeaseKey
    cause: Cause


@dataclass(frozen=True, slots=True)
class Evict:
    """Kill, abort, forget. Answered by ``Evicted``."""

    key: LeaseKey
    process: Process | None


@dataclass(frozen=True, slots=True)
class Wipe:
    """Delete the attempt's files."""

    key: LeaseKey


@dataclass(frozen=True, slots=True)
class SendReport:
    kind: ReportKind
    key: LeaseKey | None = None
    data: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leave:
    """Flush what is to be said and end; *shutdown* takes the host down too."""

    reason: str
    shutdown: bool


Action = (
    TryClaim
    | DeleteTicket
    | ReturnTicket
    | Prepare
    | AbortPreparation
    | WriteSeal
    | RenewNow
    | Launch
    | Attach
    | Ask
    | Terminate
    | Kill
    | Sweep
    | Upload
    | AbortUploads
    | Prune
    | Release
    | ReleaseStray
    | Evict
    | Wipe
    | SendReport
    | Leave
)
