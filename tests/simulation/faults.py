"""What goes wrong in one run: a list of faults, drawn from a seed, that can be shortened."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random


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
    BAD_CHECKPOINT = "a job's newest checkpoint goes bad"
    CANCEL = "a person cancels a job"
    REQUEUE = "a person requeues a job"
    CRASH = "a job crashes"

    DIES_BEFORE = "function dies before"
    DIES_AFTER = "function dies after"
    REFUSED = "call fails before"
    ANSWER_LOST = "call takes effect, its answer is lost"
    PAUSED = "function is paused before"
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
    "start",
    "commit",
    "commit",
)
# Faults end after twenty minutes; what they broke must mend by itself afterwards.
FAULTS_END = 1200.0


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
    """Everything about one run; the same schedule runs the same way to the last step."""

    seed: int
    works: tuple[Work, ...]
    faults: tuple[Fault, ...]
    max_hosts: int = 2
    skews: tuple[float, ...] = (0.0,)
    strike: tuple[Kind, int] | None = None  # one fault more, at the n-th call that functions make


def draw(seed: int) -> Schedule:
    """Draw the schedule of *seed*."""
    rng = Random(f"schedule {seed}")
    works = tuple(_work(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3))))
    drawn = [fault for _ in range(rng.randint(1, 9)) for fault in _faults(rng)]
    faults = sorted(drawn, key=lambda fault: fault.at)
    skews = tuple(rng.choice((0.0, 0.0, 40.0, -40.0, 120.0, -120.0)) for _ in range(5))
    return Schedule(seed, works, tuple(faults), rng.choice((1, 2, 2, 3)), skews)


def _work(rng: Random) -> Work:
    return Work(
        pool=rng.choice((0, 0, 1)),
        at=rng.choice((0.0, 30.0, 300.0)),
        seconds=rng.choice((120.0, 500.0, 1000.0)),
        save_every=rng.choice((None, 60.0, 150.0)),
        deaf=rng.random() < 0.1,
    )


def _faults(rng: Random) -> list[Fault]:
    """Draw a fault, and often another one while the world still deals with the first."""
    first = _fault(rng)
    if rng.random() < 0.05:
        return _late_commit(rng, first.at)
    if rng.random() < 0.5:
        return [first]
    return [first, replace(_fault(rng), at=first.at + rng.choice((0.0, 5.0, 40.0, 100.0, 300.0)))]


def _late_commit(rng: Random, at: float) -> list[Fault]:
    """Draw what only the seal survives: a commit that lands when its successor has begun."""
    return [
        Fault(at, Kind.HOST_FREEZES_AFTER, 0.0, rng.uniform(150, 400), "commit"),
        Fault(at, Kind.REQUEUED_AFTER, 0.0, rng.uniform(5, 40), "commit"),
        Fault(at, Kind.HOST_DIES_AFTER, 0.0, 0.0, "start"),
    ]


def _fault(rng: Random) -> Fault:
    at, pick = rng.uniform(0, FAULTS_END - 300), rng.random()
    group = rng.choice((0, 0, 1, 1, 2))
    if group == 1:
        kind = rng.choice(AT_A_CALL_OF_A_FUNCTION)
        amount = rng.uniform(0.5, 9) if kind is Kind.PAUSED else 0.0
        return Fault(at, kind, pick, amount, rng.choice(FUNCTION_CALLS))
    if group == 2:
        kind = rng.choice(AT_A_CALL_OF_A_HOST)
        slow = kind in {Kind.HOST_FREEZES_AFTER, Kind.REQUEUED_AFTER}
        amount = rng.uniform(20, 900) if slow else 0.0
        return Fault(at, kind, pick, amount, rng.choice(HOST_CALLS))
    kind = rng.choices(AT_A_MOMENT, [WEIGHTS.get(kind, 1) for kind in AT_A_MOMENT])[0]
    return Fault(at, kind, pick, rng.choice((20.0, 70.0, 200.0, 500.0, 900.0)))
