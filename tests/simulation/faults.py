"""What goes wrong in one run: a list of faults, drawn from a seed, that can be shortened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.host import Agent


class Died(BaseException):
    """The process that made the call died; nothing in it may catch this."""


class Ended(Enum):
    """How a function came to its end: what it caught comes back sooner than what it didn't."""

    WELL = auto()
    FAILED = auto()
    DIED = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Who makes a call: a function or a person by name, or a host."""

    name: str
    host: Agent | None = None


class Kind(StrEnum):
    """The first group strikes at a moment, the second at the next call of a named operation."""

    RECLAIM = "reclaimed with notice by event and metadata"
    RECLAIM_EVENT = "reclaimed with notice by event"
    RECLAIM_METADATA = "reclaimed with notice by metadata"
    RECLAIM_UNTOLD = "reclaimed, only the spot request says so"
    ADVISE = "rebalance recommendation"
    FALSE_NOTICE = "notice by event and metadata, and nothing follows"
    MAINTENANCE = "maintenance announced"
    BELL = "state-change event for nothing"
    STOP = "agent told to stop and started again"
    DIE = "host dies, EC2 sends an event"
    DIE_UNTOLD = "host dies, no event"
    FREEZE = "host freezes"
    REBOOT = "host reboots"
    AGENT_DIES = "agent dies and is started again"
    CUT = "host can't reach the table"
    OUTAGE = "nobody can reach the table"
    BLIND = "EC2 can't be asked"
    DRY = "spot capacity is gone"
    DRY_ALL = "no capacity at all"
    BAD_MAIL = "messages are lost, doubled and late"
    NO_SWEEP = "the sweep doesn't run"
    EXTRA_SWEEP = "two sweeps at once"
    FLEET_ERROR = "the next fleet is refused"
    THROTTLE = "the table throttles every second call of a function"
    UNREAD = "the table leaves rows of one kind unread"
    LAG = "the index doesn't show what is new"
    PARTIAL = "the next fleet brings fewer than were asked for"
    BAD_CHECKPOINT = "a job's newest checkpoint goes bad"
    TORN = "a job's next checkpoint is half-written"
    DRAIN = "a person drains a host"
    CANCEL = "a person cancels a job"
    REQUEUE = "a person requeues a job"
    CRASH = "a job crashes"

    DIES_BEFORE = "function dies before"
    DIES_AFTER = "function dies after"
    REFUSED = "call fails before"
    ANSWER_LOST = "call takes effect, its answer is lost"
    PAUSED = "function is paused before"
    AGENT_DIES_BEFORE = "agent dies right before"
    HOST_FREEZES_AFTER = "host freezes right after"
    HOST_DIES_AFTER = "host dies right after"
    HOST_REBOOTS_AFTER = "host reboots right after"
    AGENT_DIES_AFTER = "agent dies right after"
    REQUEUED_AFTER = "a person requeues the job soon after"
    HOST_ANSWER_LOST = "host's call takes effect, its answer is lost"


AT_A_MOMENT = tuple(Kind)[: list(Kind).index(Kind.DIES_BEFORE)]
AT_A_CALL_OF_A_FUNCTION = (
    Kind.DIES_BEFORE,
    Kind.DIES_AFTER,
    Kind.REFUSED,
    Kind.ANSWER_LOST,
    Kind.PAUSED,
)
AT_A_CALL_OF_A_HOST = (
    Kind.AGENT_DIES_BEFORE,
    Kind.HOST_FREEZES_AFTER,
    Kind.HOST_DIES_AFTER,
    Kind.HOST_REBOOTS_AFTER,
    Kind.AGENT_DIES_AFTER,
    Kind.HOST_ANSWER_LOST,
    Kind.REQUEUED_AFTER,
)
# Ways to lose a host that its owner would call ordinary are drawn more often.
WEIGHTS = {
    Kind.RECLAIM: 3,
    Kind.FREEZE: 3,
    Kind.DIE_UNTOLD: 2,
    Kind.CRASH: 2,
    Kind.REQUEUE: 3,
    Kind.EXTRA_SWEEP: 2,
    Kind.BAD_MAIL: 2,
    Kind.DRY_ALL: 0.5,
}

FUNCTION_CALLS = (
    "rows.read",
    "rows.read",
    "rows.read",
    "rows.commit",
    "rows.commit",
    "rows.commit",
    "rows.commit",
    "rows.commit",
    "rows.commit",
    "jobs.leases",
    "jobs.live",
    "hosts.adopt",
    "hosts.read",
    "hosts.advance",
    "hosts.holds",
    "orders.listing",
    "watch.observe",
    "fleet.launch",
    "fleet.launch",
    "fleet.states",
    "fleet.terminate",
    "fleet.marked",
    "mail.ticket",
    "mail.order",
    "signals.preempt",
)
HOST_CALLS = (
    "leases.claim",
    "leases.claim",
    "leases.renew",
    "leases.seal",
    "leases.seal",
    "leases.release",
    "leases.idle",
    "restore",
    "launch",
    "start",
    "commit",
    "commit",
)
FAULTS_END = 1200.0
LONG = 300.0  # in a world that takes longer, so may its faults


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long faults may last, in seconds; those at a host's call until *slowest*."""

    seconds: tuple[float, ...]
    slowest: float


LASTING = Lasting((20.0, 70.0, 200.0, 500.0, 900.0), slowest=900.0)
LESS_LASTING = Lasting((20.0, 70.0, 200.0, 500.0, 500.0), slowest=900.0)
# Longer than silence takes to be told, but rarely: most of it is waiting.
SHORTLY = Lasting((5.0, 20.0, 20.0, 70.0, 70.0, 150.0, 450.0), slowest=200.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """*pick* in [0, 1) chooses host or job, *amount* is in seconds, *call* names an operation."""

    at: float
    kind: Kind
    pick: float = 0.0
    amount: float = 0.0
    call: str = ""

    def __str__(self) -> str:
        text = f"{self.kind} {self.call}".strip()
        return f"{text} ({self.amount:.0f} s)" if self.amount else text


@dataclass(frozen=True, slots=True)
class Work:
    """One job: *seconds* of work, a save every *save_every* seconds, *deaf* to requests or not."""

    pool: int
    at: float
    seconds: float
    save_every: float | None
    deaf: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """
    Everything about one run; the same schedule runs the same way to the last step.

    Faults end *ends* seconds after the beginning; what they broke must mend by itself then.
    *boots* is how long an instance takes at least and at most until its agent runs, *restores*
    the same for a checkpoint, *idle* how long a host waits for work, *keep* how many checkpoints
    are kept. *strikes* are faults at the n-th call that functions (or hosts, by their kind) make,
    *lost* is the n-th report that hosts send, and gets lost.
    """

    seed: int
    works: tuple[Work, ...]
    faults: tuple[Fault, ...]
    max_hosts: int = 2
    skews: tuple[float, ...] = (0.0,)
    strikes: tuple[tuple[Kind, int], ...] = ()
    lost: int | None = None
    pools: int = 2
    ends: float = FAULTS_END
    boots: tuple[float, float] = (60.0, 150.0)
    idle: float = 600.0
    restores: tuple[float, float] = (1.0, 30.0)
    keep: int = 3


class Size(StrEnum):
    """How large a drawn world is: most faults need one job, a few need a crowd."""

    SMALL = "small"
    MIDDLE = "middle"
    LARGE = "large"


SIZES = {Size.SMALL: 0.85, Size.MIDDLE: 0.13, Size.LARGE: 0.02}


class Draw(StrEnum):
    """What seeds are drawn into; within one draw a seed keeps its schedule for good."""

    MIXED = "mixed"
    TINY = "tiny"


def draw(seed: int, of: Draw = Draw.MIXED) -> Schedule:
    """Draw the schedule of *seed*."""
    if of is Draw.TINY:
        return _tiny(seed, Random(f"tiny {seed}"))
    rng = Random(f"schedule {seed}")
    size = rng.choices(tuple(SIZES), tuple(SIZES.values()))[0]
    match size:
        case Size.SMALL:
            return _small(seed, rng)
        case Size.MIDDLE:
            return _middle(seed, rng)
        case Size.LARGE:
            return _large(seed, rng)


def _small(seed: int, rng: Random) -> Schedule:
    """One job, sometimes two, in one pool; hosts boot quickly and leave soon."""
    works = tuple(
        Work(
            pool=0,
            at=rng.choice((0.0, 0.0, 60.0)),
            seconds=rng.choice((60.0, 120.0, 240.0)),
            save_every=rng.choice((None, 40.0, 90.0)),
            deaf=rng.random() < 0.1,
        )
        for _ in range(rng.choice((1, 1, 1, 1, 2)))
    )
    return Schedule(
        seed,
        works,
        _faults(rng, rng.randint(1, 4), until=200.0),
        max_hosts=rng.choice((1, 2)),
        skews=_skews(rng, 3),
        pools=1,
        ends=300.0,
        boots=(10.0, 40.0),
        restores=rng.choices(((1.0, 20.0), (400.0, 500.0)), (19, 1))[0],
        idle=140.0,  # more than a notice and its margin, as it must be
    )


def _tiny(seed: int, rng: Random) -> Schedule:
    """One job, sometimes two, of a minute at most, and faults that come and end with it."""
    works = tuple(
        Work(
            pool=0,
            at=rng.choice((0.0, 0.0, 15.0)),
            seconds=rng.choice((20.0, 40.0, 60.0)),
            save_every=rng.choice((None, 20.0, 40.0)),
            deaf=rng.random() < 0.1,
        )
        for _ in range(rng.choice((1, 1, 1, 1, 2)))
    )
    faults = _faults(rng, rng.choice((1, 1, 2, 2, 3)), until=100.0, lasting=SHORTLY)
    return Schedule(
        seed,
        works,
        faults,
        max_hosts=rng.choice((1, 2)),
        skews=_skews(rng, 3),
        pools=1,
        ends=130.0,
        boots=(3.0, 15.0),
        restores=(0.5, 5.0),
        idle=140.0,
    )


def _middle(seed: int, rng: Random) -> Schedule:
    works = tuple(_work(rng, pools=2) for _ in range(rng.choice((1, 1, 1, 2, 2, 3))))
    faults = _faults(rng, rng.randint(1, 9), until=FAULTS_END - 300)
    hosts, skews = rng.choice((1, 2, 2, 3)), _skews(rng, 5)
    return Schedule(seed, works, faults, hosts, skews, keep=rng.choice((1, 2, 3)))


def _large(seed: int, rng: Random) -> Schedule:
    works = tuple(_work(rng, pools=3) for _ in range(rng.randint(4, 8)))
    faults = _faults(rng, rng.randint(8, 20), until=FAULTS_END - 300)
    return Schedule(seed, works, faults, rng.choice((3, 5)), _skews(rng, 7), pools=3)


def _skews(rng: Random, hosts: int) -> tuple[float, ...]:
    return tuple(rng.choice((0.0, 0.0, 40.0, -40.0, 120.0, -120.0)) for _ in range(hosts))


def _work(rng: Random, *, pools: int) -> Work:
    return Work(
        pool=rng.randrange(pools),
        at=rng.choice((0.0, 30.0, 300.0)),
        seconds=rng.choice((120.0, 500.0, 1000.0)),
        save_every=rng.choice((None, 60.0, 150.0)),
        deaf=rng.random() < 0.1,
    )


def _faults(
    rng: Random, count: int, *, until: float, lasting: Lasting | None = None
) -> tuple[Fault, ...]:
    lasts = lasting or (LASTING if until > LONG else LESS_LASTING)
    drawn = [fault for _ in range(count) for fault in _drawn(rng, until, lasts)]
    return tuple(sorted(drawn, key=lambda fault: fault.at))


def _drawn(rng: Random, until: float, lasting: Lasting) -> list[Fault]:
    """Draw a fault, and often another one while the world still deals with the first."""
    first = _fault(rng, until, lasting)
    if rng.random() < 0.05:
        return _late_commit(rng, first.at)
    if rng.random() < 0.5:
        return [first]
    soon = first.at + rng.choice((0.0, 5.0, 40.0, 100.0))
    return [first, replace(_fault(rng, until, lasting), at=soon)]


def _late_commit(rng: Random, at: float) -> list[Fault]:
    """Draw what only the seal survives: a commit that lands when its successor has begun."""
    return [
        Fault(at, Kind.HOST_FREEZES_AFTER, 0.0, rng.uniform(150, 400), "commit"),
        Fault(at, Kind.REQUEUED_AFTER, 0.0, rng.uniform(5, 40), "commit"),
        Fault(at, Kind.HOST_DIES_AFTER, 0.0, 0.0, "start"),
    ]


def _fault(rng: Random, until: float, lasting: Lasting) -> Fault:
    at, pick = rng.uniform(0, until), rng.random()
    group = rng.choice((0, 0, 1, 1, 2))
    if group == 1:
        kind = rng.choice(AT_A_CALL_OF_A_FUNCTION)
        amount = rng.uniform(0.5, 9) if kind is Kind.PAUSED else 0.0
        return Fault(at, kind, pick, amount, rng.choice(FUNCTION_CALLS))
    if group == 2:
        kind = rng.choice(AT_A_CALL_OF_A_HOST)
        slow = kind in {Kind.HOST_FREEZES_AFTER, Kind.REQUEUED_AFTER}
        amount = rng.uniform(20, lasting.slowest) if slow else 0.0
        return Fault(at, kind, pick, amount, rng.choice(HOST_CALLS))
    kind = rng.choices(AT_A_MOMENT, [WEIGHTS.get(kind, 1) for kind in AT_A_MOMENT])[0]
    return Fault(at, kind, pick, rng.choice(lasting.seconds))
