"""Every situation that `decide` can meet, one of each kind, and what carrying it out leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import assert_never

from reprieve.domain.host import Host, HostState, InstanceState
from reprieve.domain.job import Counters, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState, Outcome, Phase
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import Order, OrderState
from reprieve.domain.settlement import (
    Arm,
    Decision,
    End,
    Facts,
    Move,
    Nothing,
    Reorder,
    Resend,
    Unpark,
)
from tests.builders import POOL, a_holder, a_host, a_job, a_lease, a_notice, a_spec, an_order, at

NOW = at(1000)
OUTCOMES = (
    (Outcome.FINISHED, Cause.DONE),
    *((Outcome.FAILED, cause) for cause in Cause),
    *((Outcome.INTERRUPTED, cause) for cause in Cause),
)
HOSTS: dict[str, Host | None] = {
    "no row": None,
    "of another pool": replace(a_host(), pool="other"),
    "ready": a_host(),
    "advised": a_host(notice=a_notice(NoticeKind.REBALANCE)),
    "under maintenance days ahead": a_host(
        notice=a_notice(NoticeKind.MAINTENANCE, reclaimed_at=at(10**6))
    ),
    "draining in time": a_host(
        state=HostState.DRAINING, notice=a_notice(reclaimed_at=at(1060), noticed_at=at(940))
    ),
    "draining too long": a_host(state=HostState.DRAINING, notice=a_notice()),
    "retiring": a_host(state=HostState.RETIRING),
    "gone": a_host(state=HostState.GONE, notice=a_notice()),
}
ORDERS: tuple[Order | None, ...] = (
    None,
    an_order(pool="other"),
    *(an_order(state=state, next_try_at=at(500), outcome="dry") for state in OrderState),
)


def jobs() -> Iterator[Job]:
    """One job in each status, fresh and with every budget but one step from used up."""
    worn = Counters(interruptions=9, launch_failures=9, crashes=3, no_progress=3)
    specs = (a_spec(), a_spec(fallback_pool="steady"), a_spec(fallback_pool=POOL))
    budgets = ((Counters(), specs[0]), *((worn, spec) for spec in specs))
    for status, (counters, spec) in product(JobStatus, budgets):
        due = (None, at(100), at(9000)) if status is JobStatus.PARKED else (None,)
        for next_try_at in due:
            yield a_job(
                status=status, counters=counters, spec=spec, next_try_at=next_try_at, attempt=2
            )


def leases(job: Job) -> Iterator[Lease | None]:
    """No lease, and one in each state: sealed or not, with a new checkpoint and without."""
    yield None
    yield a_lease(job)
    yield a_lease(job, state=LeaseState.CLOSED)
    manifest = "jobs/job-1/manifests/000002-000000000050.json"
    new: dict[str, object] = {"committed_step": 50, "committed_manifest": manifest}
    for sealed, saved, phase in product((1, 2), ({}, new), (Phase.RESTORING, Phase.RUNNING)):
        known = a_lease(
            job, holder=a_holder(), beat=7, step=60, restored_step=40, sealed_attempt=sealed
        )
        known = replace(known, phase=phase, **saved)  # type: ignore[arg-type]
        yield replace(known, state=LeaseState.HELD)
        if phase is not Phase.RUNNING:
            continue  # how far it is says nothing any more once it is over
        for outcome, cause in OUTCOMES:
            yield replace(known, state=LeaseState.DONE, outcome=outcome, cause=cause)


def situations() -> Iterator[Facts]:
    """Return them all; what a decision can't look at in a state of the lease isn't varied."""
    for job in jobs():
        for lease in leases(job):
            for host, instance, silent in _evidence(lease):
                for order in _orders(lease):
                    yield Facts(job, lease, host, instance, silent, order)


def _evidence(lease: Lease | None) -> Iterator[tuple[Host | None, InstanceState, bool]]:
    if lease and lease.state is LeaseState.HELD:
        yield from product(HOSTS.values(), InstanceState, (False, True))
    elif lease and lease.state is LeaseState.DONE:
        last = (HOSTS["no row"], HOSTS["ready"], HOSTS["draining too long"])
        yield from product(last, (InstanceState.UNKNOWN,), (False,))
    else:
        yield None, InstanceState.UNKNOWN, False


def _orders(lease: Lease | None) -> tuple[Order | None, ...]:
    return ORDERS if lease and lease.state is LeaseState.FREE else (None,)


@dataclass(frozen=True, slots=True)
class Carried:
    """The facts after a decision was carried out, as far as its own writes go."""

    facts: Facts
    done: bool


def carried_out(decision: Decision, facts: Facts) -> Carried:
    """Do to *facts* what the use cases do to the rows."""
    match decision:
        case Nothing():
            return Carried(facts, done=True)
        case Move(job) | Resend(job):
            return Carried(replace(facts, job=job), done=False)
        case Reorder(job):
            return Carried(replace(facts, order=_ordered(job)), done=False)
        case Unpark(job, order):
            return Carried(replace(facts, job=job, order=order), done=False)
        case Arm(job, successor):
            return Carried(Facts(job, successor, order=_ordered(job)), done=False)
        case End(job):
            if decision.successor:
                return Carried(Facts(job, decision.successor, order=_ordered(job)), done=False)
            assert facts.lease
            closed = replace(facts.lease, state=LeaseState.CLOSED)
            return Carried(Facts(job, closed), done=False)
        case _:
            assert_never(decision)


def _ordered(job: Job) -> Order:
    return an_order(job.id, job.attempt, pool=job.pool)
