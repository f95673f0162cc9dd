"""
The schedules that taught the rules, each as short as it can be told.

Each case names the rule that it needs: with it the schedule keeps every promise, and without
it breaks one; where a second rule would hold it, too, it names none. *noise* seeds (delays,
picks) are tried for that, since a case must not hang on one order of the things it doesn't name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.simulation.faults import Fault, Kind, Schedule, Work

BROKEN = 0.05  # picks a machine that stops while EC2 goes on calling it running


@dataclass(frozen=True, slots=True)
class Case:
    """*rule* is the name that `mutations` knows it by; None where two rules hold it."""

    rule: str | None
    schedule: Schedule
    noise: int = 20

    def told(self, seed: int) -> Schedule:
        """Return the schedule with other noise."""
        return replace(self.schedule, seed=seed)


def work(
    seconds: float = 60.0,
    *,
    at: float = 0.0,
    save_every: float | None = None,
    deaf: bool = False,
) -> Work:
    """Return a job of the first pool."""
    return Work(pool=0, at=at, seconds=seconds, save_every=save_every, deaf=deaf)


def small(
    *faults: Fault,
    works: tuple[Work, ...] = (work(),),
    restores: tuple[float, float] = (1.0, 20.0),
    skews: tuple[float, ...] = (0.0,),
    max_hosts: int = 2,
    idle: float = 140.0,
) -> Schedule:
    """Return a schedule of one small pool."""
    return Schedule(
        0,
        works,
        faults,
        max_hosts=max_hosts,
        skews=skews,
        pools=1,
        ends=300.0,
        boots=(10.0, 40.0),
        idle=idle,
        restores=restores,
    )


LATE_COMMIT = small(
    Fault(80.0, Kind.HOST_FREEZES_AFTER, 0.0, 90.0, "commit"),
    Fault(80.0, Kind.REQUEUED_AFTER, 0.0, 5.0, "commit"),
    Fault(80.0, Kind.HOST_DIES_AFTER, 0.0, 0.0, "start"),
    works=(work(240.0, save_every=40.0), work(10.0)),
)
DOUBLED = Fault(0.0, Kind.BAD_MAIL, 0.0, 280.0)

CASES: dict[str, Case] = {
    # A finishes and releases; a duplicate of ticket 1 arrives; C claims attempt 1 again.
    "a duplicate of an old ticket runs a finished job again": Case(
        "a claim takes over a released lease",
        small(
            DOUBLED,
            Fault(100.0, Kind.NO_SWEEP, 0.0, 150.0),
            works=(work(150.0, at=1.0), work(20.0, at=1.0)),
        ),
        noise=100,
    ),
    # A claims; a person cancels; A must be free for the next job, and terminable.
    "a cancelled job blocks its host for ever": Case(
        None,  # were it blocked, it would leave, and the next host serve
        small(
            Fault(90.0, Kind.CANCEL),
            works=(work(240.0), work(at=20.0)),
            max_hosts=1,
        ),
    ),
    # A claims, deletes the ticket and dies before any report.
    "a host that claims and dies unheard leaves a job that every ticket is refused for": Case(
        "settle believes the job's row",
        small(Fault(0.0, Kind.HOST_DIES_AFTER, 0.0, 0.0, "leases.claim")),
    ),
    # A finishes, releases and leaves; the sweep runs before the report.
    "the sweep, faster than the report, requeues a job that is done": Case(
        "the outcome is only in the report", small(DOUBLED), noise=30
    ),
    # A freezes inside a commit; B starts from nothing and commits; A thaws and commits.
    "a host frozen inside a commit thaws after its successor began": Case(
        "the lineage isn't sealed", LATE_COMMIT, noise=60
    ),
    # A seals and freezes; B finishes the job; A thaws and starts.
    "a host frozen between claim and start runs a job that another finished": Case(
        "a start isn't checked",
        small(
            Fault(0.0, Kind.HOST_FREEZES_AFTER, 0.0, 250.0, "launch"),
            Fault(0.0, Kind.REQUEUED_AFTER, 0.0, 5.0, "launch"),
            works=(work(), work(10.0)),
        ),
    ),
    # A claims; a person cancels; A runs on and can never be terminated.
    "a cancelled job runs on": Case(
        "a cancel leaves the lease",
        small(Fault(90.0, Kind.CANCEL), works=(work(240.0),)),
    ),
    # An event comes again after its time, while A lives.
    "a late event takes the lease of a living host": Case(
        "a bell is evidence", small(Fault(100.0, Kind.BELL), works=(work(240.0),))
    ),
    # A notice is delivered again after its time, while A lives.
    "a notice that comes again after its time takes the lease of a living host": Case(
        "a bell is evidence",
        small(
            Fault(79.0, Kind.BAD_MAIL, 0.0, 2.0),
            Fault(80.0, Kind.DRAIN, 0.0, 20.0),
            works=(work(400.0),),
        ),
        noise=60,
    ),
    # The table is out for a while, and no host can renew.
    "an outage of the table makes healthy hosts silent": Case(
        "silence is told by the holder's clock",
        # It ends right before a sweep, which no host's renewal comes before.
        small(Fault(80.0, Kind.OUTAGE, 0.0, 219.0), works=(work(300.0),)),
    ),
    # Clocks differ by two minutes.
    "a clock that is off makes a healthy host silent": Case(
        "silence is told by the holder's clock",
        small(works=(work(240.0),), skews=(-120.0,)),
    ),
    # A large checkpoint takes longer to restore than silence takes to be counted.
    "a host that restores for long loses its job": Case(
        "a restoring host doesn't renew", small(restores=(450.0, 500.0))
    ),
    # CreateFleet succeeds; the function dies; the order is delivered again.
    "a redelivery that plans anew buys a second instance": Case(
        "plans aren't stored",
        small(
            Fault(0.0, Kind.DIES_AFTER, 0.0, 0.0, "fleet.launch"),
            Fault(50.0, Kind.RECLAIM_EVENT, 0.6),
            works=(work(240.0), work(240.0, at=10.0)),
        ),
    ),
    # No host is to be had for attempt 2, and attempt 1 is still saving.
    "an order that fails while its job drains is forgotten": Case(
        None,  # an order that is lost is placed again by the sweep
        small(
            Fault(80.0, Kind.RECLAIM), Fault(80.0, Kind.DRY_ALL, 0.0, 100.0), works=(work(240.0),)
        ),
    ),
    # The order landed, and its host died before it served anybody.
    "a landed order whose host died leaves its job waiting for ever": Case(
        "a landed order is service", small(Fault(4.0, Kind.DIE, 0.0))
    ),
    # The idle host hangs, and a new job is told that one is idle.
    "an idle host that hangs keeps a job waiting for ever": Case(
        "silent hosts are supply",
        small(Fault(140.0, Kind.DIE_UNTOLD, BROKEN), works=(work(), work(at=170.0)), max_hosts=1),
    ),
    # The host is told to go; a job comes while a function is about to terminate it.
    "a host that was told to go takes a job with it": Case(
        "a host that goes may claim",
        small(
            Fault(140.0, Kind.STOP),
            Fault(170.0, Kind.PAUSED, 0.0, 9.0, "fleet.terminate"),
            works=(work(20.0), work(at=181.0)),
            max_hosts=1,
        ),
    ),
    # An idle agent is stopped and started again; what it said before arrives when it has a job.
    "a host is terminated with the job that it has just claimed": Case(
        "hosts are terminated in one step",
        small(
            Fault(139.0, Kind.BAD_MAIL, 0.0, 1.5),
            Fault(140.0, Kind.STOP),
            works=(work(20.0), work(240.0, at=141.0)),
            max_hosts=1,
        ),
        noise=60,
    ),
    # The table takes a claim; the answer is lost.
    "a claim whose answer was lost is held by a host that doesn't know": Case(
        "a lost answer is a lost claim",
        small(Fault(0.0, Kind.HOST_ANSWER_LOST, 0.0, 0.0, "leases.claim"), idle=600.0),
    ),
    # Every ticket of the attempt is lost.
    "a job whose ticket was lost waits for ever": Case(
        "a ticket is sent once", small(DOUBLED, works=(work(at=1.0),)), noise=60
    ),
    # The notice is told by event and metadata, and the host is gone two minutes later.
    "an interruption is charged twice": Case(
        "a notice is charged", small(Fault(80.0, Kind.RECLAIM), works=(work(240.0),))
    ),
    # As above: the late commit is newer than anything in the lineage.
    "a job points at a branch that nobody continued": Case(
        "the pointer takes any commit", LATE_COMMIT, noise=60
    ),
    # B began from A's last checkpoint, and has long committed its own.
    "what an attempt began from is collected": Case(
        "only the newest is kept",
        replace(
            small(Fault(200.0, Kind.REBOOT), works=(work(1500.0, save_every=40.0),)), ends=900.0
        ),
    ),
    # The event was dropped with a stranger, the metadata are silent.
    "a reclaim that only the Spot request tells of is missed": Case(
        "Spot requests aren't read",
        small(Fault(80.0, Kind.RECLAIM_UNTOLD), works=(work(240.0),)),
    ),
    # EC2 announces an interruption and never reclaims.
    "a host that EC2 doesn't take back stays for ever": Case(
        "a drained host waits for ever", small(Fault(80.0, Kind.FALSE_NOTICE))
    ),
}
