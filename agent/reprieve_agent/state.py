"""What the agent knows, in values that are written to disk before they are acted upon."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from reprieve.domain.economics.hosting import SaveCost, Terms
from reprieve.domain.lease import Cause, Lease, LeaseKey, Outcome, Phase
from reprieve.domain.notice import Channel, Notice
from reprieve.ports.leases import Progress
from reprieve_agent.estimator import Estimates


class Stage(StrEnum):
    """How far one attempt got on this host."""

    CLAIMING = "CLAIMING"  # its ticket is being tried
    CLAIMED = "CLAIMED"  # won: the row with the spec is being read
    PREPARING = "PREPARING"  # code, setup and checkpoint are on their way
    SEALING = "SEALING"  # the base is chosen and being written into the lease
    STARTING = "STARTING"  # sealed: the process is being started
    RUNNING = "RUNNING"
    CLOSING = "CLOSING"  # the process is gone: what it left is being committed
    RELEASING = "RELEASING"  # the outcome is being written into the lease
    EVICTING = "EVICTING"  # the lease is lost: whatever still runs is being killed


PHASES = {
    Stage.CLAIMING: Phase.CLAIMED,
    Stage.CLAIMED: Phase.CLAIMED,
    Stage.PREPARING: Phase.RESTORING,
    Stage.SEALING: Phase.RESTORING,
    Stage.STARTING: Phase.SEALED,
    Stage.RUNNING: Phase.RUNNING,
    Stage.CLOSING: Phase.UPLOADING,
    Stage.RELEASING: Phase.UPLOADING,
    Stage.EVICTING: Phase.UPLOADING,
}


class RequestKind(StrEnum):
    """What a running job is asked for."""

    CHECKPOINT = "checkpoint"  # save and go on
    CHECKPOINT_EXIT = "checkpoint_exit"  # save and leave


class AckState(StrEnum):
    """What a job says about a request."""

    SAVING = "saving"
    SAVED = "saved"
    DECLINED = "declined"
    FAILED = "failed"


class Mark(StrEnum):
    """Stages of a save, in the order of the receipt."""

    REQUESTED = "requested"
    ACCEPTED = "accepted"
    SAVED = "saved"
    QUIESCED = "quiesced"
    UPLOADED = "uploaded"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Request:
    """
    One request to the job, and how far it got. All times are on the boot clock.

    ``since`` is when the notice was seen, ``save_by`` when a save must have ended so that
    its upload still fits, ``deadline`` when the work must have ended. *unasked*: no save
    would be durable in time, so the job isn't told and trains on; *verdict* says why.
    """

    id: str
    kind: RequestKind
    cause: Cause
    reason: str
    since: float
    save_by: float
    deadline: float
    term_at: float
    ack: AckState | None = None
    ack_step: int | None = None
    termed: bool = False
    killed: bool = False
    linger_until: float | None = None
    unasked: bool = False
    verdict: str = ""
    marks: tuple[tuple[str, float], ...] = ()

    @property
    def open(self) -> bool:
        """Whether the job still owes an answer."""
        return not self.unasked and self.ack in {None, AckState.SAVING}

    @property
    def exits(self) -> bool:
        """Whether the job was told to leave."""
        return self.kind is RequestKind.CHECKPOINT_EXIT


@dataclass(frozen=True, slots=True)
class Process:
    """
    The job's processes, safe against a reused pid.

    ``keeper`` is the small process of ours that outlives the agent and writes down how
    the job ended; ``pid`` is the job's main process, once it is known.
    """

    keeper: int
    keeper_ticks: int
    pid: int | None = None
    ticks: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, as it will stand in the lease."""

    outcome: Outcome
    cause: Cause
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Tenure:
    """One attempt on this host, from its ticket to its release."""

    key: LeaseKey
    stage: Stage
    since: float
    receipt: str | None = None
    lease: Lease | None = None
    base: str | None = None
    base_step: int | None = None
    base_fixed: bool = False  # the row names the base: no other may be chosen
    process: Process | None = None
    request: Request | None = None
    last_request: float | None = None
    save_every: float | None = None  # seconds between periodic saves, None: never
    last_save: float | None = None  # when the job's newest checkpoint was found
    durable_at: float | None = None  # when what is durable of this attempt was saved
    cost: SaveCost = field(default_factory=SaveCost)
    estimates: Estimates = field(default_factory=Estimates)
    advices: int = 0
    periodic: int = 0
    step: int | None = None
    ready: bool = False
    found: tuple[int, ...] = ()  # whole steps on disk, newer than the newest commit
    uploading: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()
    committed_step: int | None = None
    committed_manifest: str | None = None
    committed_digest: str | None = None
    upload_bytes: int | None = None
    upload_seconds: float | None = None
    swept: bool = False
    done_step: int | None = None
    exit_code: int | None = None
    exit_detail: str = ""
    stopped: bool = False
    ending: Ending | None = None

    @property
    def newest(self) -> int | None:
        """The newest step that isn't in the bucket yet."""
        return max(self.found, default=None)

    @property
    def save_due(self) -> float | None:
        """When the job is to be asked for its next periodic save, on the boot clock."""
        every = self.save_every
        if every is None or not self.ready or self.request or self.stage is not Stage.RUNNING:
            return None
        # A job that saves by itself often enough is never asked.
        return max(self.since, self.last_request or 0.0, self.last_save or 0.0) + every

    @property
    def hooked(self) -> bool:
        """Whether a request may be answered: the job said a word of the contract, or it saves."""
        profiled = self.lease is not None and bool(self.lease.spec.profile)
        saved = self.last_save is not None or self.committed_step is not None
        return profiled or saved or self.ready or self.step != self.base_step

    def committed_at_least(self, step: int) -> bool:
        """Whether *step* or a later one is in the bucket."""
        return self.committed_step is not None and self.committed_step >= step

    def durable(self, step: int | None) -> bool:
        """Whether a save is in the bucket; a job that names no step means its newest."""
        return not self.found if step is None else self.committed_at_least(step)

    @property
    def progress(self) -> Progress:
        """What a renewal tells about it."""
        phase = PHASES[self.stage]
        if self.stage is Stage.RUNNING and self.request and self.request.exits:
            phase = Phase.SAVING
        return Progress(
            phase=phase,
            step=self.step,
            restored_step=self.base_step,
            committed_step=self.committed_step,
            committed_manifest=self.committed_manifest,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """
    The notice that stands. ``since`` and ``reclaim`` are on the boot clock.

    ``reclaim`` is when the host is expected to go, None for mere advice. While *pending*
    it goes so late that the job may go on. ``heard`` is when each channel first told of it.
    """

    notice: Notice
    since: float
    reclaim: float | None = None
    pending: bool = False
    heard: tuple[tuple[str, float], ...] = ()

    @property
    def going(self) -> bool:
        """Whether the host is to be emptied now."""
        return self.notice.takes_the_host and not self.pending

    def hearing(self, channel: Channel, now: float) -> Standing:
        """Return it with *channel* heard, if that is the first time."""
        if any(name == channel for name, _ in self.heard):
            return self
        return replace(self, heard=(*self.heard, (channel.value, now)))


@dataclass(frozen=True, slots=True)
class State:
    """
    Everything the agent decides on.

    ``adopted`` means that functions know the host and that it holds nothing it doesn't run;
    ``terms`` are what they told it of its odds.
    """

    boot_id: str
    idle_since: float
    adopted: bool = False
    tenure: Tenure | None = None
    standing: Standing | None = None
    barred_until: float | None = None
    stop_by: float | None = None
    leaving: bool = False
    unwell: str = ""  # what is wrong with its GPUs
    terms: Terms | None = None

    @property
    def stopping(self) -> bool:
        """Whether the agent was told to stop."""
        return self.stop_by is not None

    @property
    def going(self) -> bool:
        """Whether this host won't be there much longer."""
        return self.stopping or (self.standing is not None and self.standing.going)

    @property
    def wants_work(self) -> bool:
        """Whether a ticket may be tried."""
        return (
            self.adopted
            and self.tenure is None
            and self.standing is None
            and self.barred_until is None
            and not self.stopping
            and not self.leaving
            and not self.unwell
        )

    @property
    def follows(self) -> LeaseKey | None:
        """The lease to renew."""
        held = self.tenure and self.tenure.stage not in {Stage.CLAIMING, Stage.EVICTING}
        return self.tenure.key if self.tenure and held else None
