"""
A drill scenario: which jobs run, what happens to them, and what must hold.

Times are in seconds of a world whose notice takes 120 s; ``clock_scale`` says how much faster
the drill goes. ``document`` reads scenarios from the YAML files that docs/drills.md describes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprieve.domain.clock import REAL_NOTICE
from reprieve_cli.drill.match import Match


@dataclass(frozen=True, slots=True)
class CapacityOffer:
    """One capacity pool that the world sells; *capacity* None is no limit."""

    type: str
    zone: str
    market: str = "spot"
    price: float | None = None
    capacity: int | None = None
    estimate: int | None = None
    reservation: str | None = None
    """The id of the Capacity Reservation, in the market ``reserved``."""
    reservation_type: str | None = None


@dataclass(frozen=True, slots=True)
class MarketChange:
    """New figures for every capacity pool that *type*, *zone* and *market* leave open."""

    changes: dict[str, Any]
    type: str | None = None
    zone: str | None = None
    market: str | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """
    What is submitted, as ``reprieve submit`` takes it.

    *reference* is the command of the uninterrupted run, if it isn't the same one.
    """

    name: str
    command: tuple[str, ...]
    code: Path | None = None
    setup: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    save_every: str | None = None
    max_restarts: int = 3
    pool: str | None = None
    reference: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class JobState:
    """A job has come that far: everything that is given holds."""

    job: str
    status: tuple[str, ...] = ()
    attempt: int | None = None
    """At least that one."""
    step: int | None = None
    """Its host reported that step or a later one, in the current attempt."""
    committed: int | None = None
    """The bucket holds that step or a later one."""
    event: str | None = None
    """Its timeline holds an event of that kind."""

    def __str__(self) -> str:
        """Return it in words."""
        said = [" or ".join(self.status)] if self.status else []
        said += [f"attempt {self.attempt}"] if self.attempt is not None else []
        said += [f"step {self.step}"] if self.step is not None else []
        said += [f"step {self.committed} committed"] if self.committed is not None else []
        said += [f"event {self.event}"] if self.event else []
        return f"job {self.job}: {', '.join(said) or 'exists'}"


@dataclass(frozen=True, slots=True)
class HostsAlive:
    """That many hosts are pending or running."""

    hosts: Match

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.hosts} hosts alive"


@dataclass(frozen=True, slots=True)
class CallSeen:
    """The world has answered such a call, so many times, or has so many to answer."""

    call: CallPattern
    times: int = 1
    in_flight: bool = False

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.times} calls of {self.call}{' under way' if self.in_flight else ''}"


@dataclass(frozen=True, slots=True)
class WorldSeen:
    """The world's timeline holds an entry of that kind (``reclaimed``, ``terminated``, ...)."""

    kind: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"the world: {self.kind}"


@dataclass(frozen=True, slots=True)
class Passed:
    """So many seconds of the scaled clock are over."""

    seconds: float

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.seconds:g} s"


When = JobState | HostsAlive | CallSeen | WorldSeen | Passed


@dataclass(frozen=True, slots=True)
class CallPattern:
    """AWS calls by service and action; ``*`` is a wildcard in each of the texts."""

    service: str
    action: str
    caller: str = "*"
    resource: str = "*"
    error: str | None = None
    """The error code it was answered with; empty: only calls that went well."""
    key: str | None = None
    """The ``pk/sk`` of an item in a DynamoDB call."""
    parameters: tuple[tuple[str, Match], ...] = ()
    """Paths into the call's parameters, and what must stand there."""
    holding: tuple[str, ...] = ()
    """Parts of the parameters' JSON."""

    def __str__(self) -> str:
        """Return it in words."""
        by = "" if self.caller == "*" else f" by {self.caller}"
        on = "" if self.resource == "*" else f" on {self.resource}"
        on += f" for {self.key}" if self.key else ""
        end = "" if self.error is None else f" that ended with {self.error or 'success'}"
        given = [f"{path} {rule}" for path, rule in self.parameters] + [*self.holding]
        having = f" with {', '.join(given)}" if given else ""
        return f"{self.service} {self.action}{by}{on}{having}{end}"


@dataclass(frozen=True, slots=True)
class HostRef:
    """The host of a job (of its *attempt*, by default the current one), the nth, or several."""

    of: str | None = None
    attempt: int | None = None
    nth: int | None = None
    """Of those launched, the first one is 1."""
    zone: str | None = None
    """Every host that is alive in that zone."""
    every: bool = False
    """Every host that is alive."""

    def __str__(self) -> str:
        """Return it in words."""
        if self.every:
            return "every host"
        if self.zone is not None:
            return f"every host in {self.zone}"
        if self.of is None:
            return f"host number {self.nth}"
        return f"the host of {self.of}" + (f", attempt {self.attempt}" if self.attempt else "")


@dataclass(frozen=True, slots=True)
class HostAction:
    host: HostRef
    do: str
    channels: tuple[str, ...] | None = None
    action: str | None = "terminate"
    """None: the notice doesn't say."""
    in_seconds: float | None = None
    reclaim: bool = True
    events: bool = True
    what: str | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        """Return it in words."""
        via = f" by {' and '.join(self.channels)}" if self.channels else ""
        return f"{self.do} {self.host}{via}" + (f" ({self.what})" if self.what else "")


@dataclass(frozen=True, slots=True)
class JobAction:
    job: str
    do: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.do} {self.job}"


@dataclass(frozen=True, slots=True)
class ObjectAction:
    """*step* None is the newest checkpoint of the job; *file* None is its manifest."""

    do: str
    job: str
    step: int | None = None
    file: str | None = None
    key: str | None = None
    body: str = ""
    bytes: int = 1
    """How many ``truncate`` takes off the end."""

    def __str__(self) -> str:
        """Return it in words."""
        part = self.key or f"{self.file or 'the manifest'} of {self.job}"
        return f"{self.do} {part}" + (f" at step {self.step}" if self.step is not None else "")


@dataclass(frozen=True, slots=True)
class MessageAction:
    """A message in a queue of the stack, *times* times, filled in like an event."""

    queue: str
    body: Any
    times: int = 1
    pool: str | None = None
    """Whose work queue; the first one by default."""

    def __str__(self) -> str:
        """Return it in words."""
        return f"message for {self.queue}, {self.times} times"


@dataclass(frozen=True, slots=True)
class WorldAction:
    """How the world is from now on: its lags, in seconds of the scaled clock, and its quotas."""

    settings: dict[str, Any]

    def __str__(self) -> str:
        """Return it in words."""
        return "the world: " + ", ".join(f"{k} {v}" for k, v in self.settings.items())


@dataclass(frozen=True, slots=True)
class EventAction:
    """A raw event, delivered *times* times; ``${host:JOB}``, ``${job:JOB}``, ``${now}`` in it."""

    body: Any
    times: int = 1

    def __str__(self) -> str:
        """Return it in words."""
        kind = self.body.get("detail-type", "?") if isinstance(self.body, dict) else "?"
        return f"event {kind!r}, {self.times} times"


@dataclass(frozen=True, slots=True)
class FaultAction:
    """A fault for the world, word for word but for the clock."""

    fault: dict[str, Any]

    def __str__(self) -> str:
        """Return it in words."""
        then = self.fault["then"]
        effects = ", ".join(map(_effect, then if isinstance(then, list) else [then]))
        return f"fault for {self.fault['service']} {self.fault['action']}: {effects}"


def _effect(described: dict[str, Any]) -> str:
    """Return one effect of a fault in a few words."""
    said = []
    for name, value in described.items():
        match name:
            case "error":
                said.append(f"error {' '.join(str(part) for part in value.values())}")
            case "reply":
                said.append("a reply of its own")
            case "pass":
                said.append("none")
            case _:
                said.append(f"{name.replace('_', ' ')} {value}")
    return " and ".join(said)


@dataclass(frozen=True, slots=True)
class PoolsAction:
    changes: tuple[MarketChange, ...]

    def __str__(self) -> str:
        """Return it in words."""
        return f"{len(self.changes)} change{'s' * (len(self.changes) > 1)} of the market"


@dataclass(frozen=True, slots=True)
class WaitAction:
    until: When
    within: float | None = None

    def __str__(self) -> str:
        """Return it in words."""
        return f"wait for {self.until}"


Action = (
    EventAction
    | FaultAction
    | HostAction
    | JobAction
    | MessageAction
    | ObjectAction
    | PoolsAction
    | WaitAction
    | WorldAction
)


@dataclass(frozen=True, slots=True)
class Step:
    """One action, *at* a time since the start, or *when* something holds, or at once."""

    action: Action
    at: float | None = None
    when: When | None = None


@dataclass(frozen=True, slots=True)
class Identical:
    """*file* of the last checkpoint has the same bytes as after an uninterrupted run, or not."""

    file: str
    same: bool = True


@dataclass(frozen=True, slots=True)
class Moment:
    """Something in the job's timeline (*event*), or in the world's (*world*)."""

    event: str | None = None
    world: str | None = None

    def __str__(self) -> str:
        """Return it in words."""
        return self.event or f"the world's {self.world}"


@dataclass(frozen=True, slots=True)
class Span:
    """From the first such moment to the first one after it: seconds of the scaled clock."""

    start: Moment
    end: Moment
    seconds: Match


@dataclass(frozen=True, slots=True)
class JobExpected:
    fields: dict[str, Match] = field(default_factory=dict)
    """Of the job's status document."""
    counters: dict[str, Match] = field(default_factory=dict)
    attempts: tuple[dict[str, Match], ...] = ()
    """One mapping for each attempt, the first one first."""
    resumes_proven: bool = False
    """Each later attempt began at a step above 0 whose manifest and files the bucket holds."""
    identical: Identical | None = None
    step_log: str | None = None
    """The file in the checkpoint in which the job wrote each step it made."""
    events: tuple[str, ...] = ()
    """Kinds, or parts of the text, that its timeline holds in this order, others between them."""
    event_counts: dict[str, Match] = field(default_factory=dict)
    """How often each of them is in it."""
    times: tuple[Span, ...] = ()
    never: tuple[str, ...] = ()
    warned: Match | None = None
    """What ``submit`` warned of."""


@dataclass(frozen=True, slots=True)
class CallExpected:
    call: CallPattern
    count: Match
    distinct: str | None = None
    """Count the different values of this parameter, not the calls."""


@dataclass(frozen=True, slots=True)
class Expected:
    jobs: dict[str, JobExpected] = field(default_factory=dict)
    calls: tuple[CallExpected, ...] = ()
    instances: dict[str, Match] = field(default_factory=dict)
    """``alive`` at the end, ``launched`` in all, and ``zone NAME``, ``market NAME``, ``type NAME``
    among these."""
    queues: dict[str, Match] = field(default_factory=dict)
    metrics: dict[str, Match] = field(default_factory=dict)
    """The sum of what the functions emitted since the start."""
    seconds: Match | None = None
    """How long the whole took, of the scaled clock."""


@dataclass(frozen=True, slots=True)
class Scenario:
    path: Path
    name: str
    clock_scale: float
    jobs: tuple[JobPlan, ...]
    steps: tuple[Step, ...]
    expect: Expected
    pools: tuple[CapacityOffer, ...] | None = None
    """Everything that can be bought; None: everything there is."""
    description: str = ""
    stack: dict[str, Any] | None = None
    """What the stack is deployed with, as in cdk.json's ``reprieve``; None: the usual."""
    world: WorldAction | None = None
    """How the world is from the start."""

    @property
    def submitted_later(self) -> frozenset[str]:
        """Name the jobs that a step submits."""
        actions = [step.action for step in self.steps]
        return frozenset(a.job for a in actions if isinstance(a, JobAction) and a.do == "submit")

    @property
    def notice_seconds(self) -> float:
        """The length of EC2's notice on the drill's clock."""
        return REAL_NOTICE.total_seconds() * self.clock_scale

    def real(self, seconds: float) -> float:
        """Return how many real seconds *seconds* of the scaled clock take."""
        return seconds * self.clock_scale
