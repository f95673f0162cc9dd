"""Rows: one read of everything that a decision needs, one commit of everything that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from reprieve.domain.capacity import Cold
from reprieve.domain.economics.hosting import Terms
from reprieve.domain.economics.switches import Policy
from reprieve.domain.errors import StaleError
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause, Holds, Lease, LeaseState, Phase
from reprieve.domain.order import FleetAnswer, Launched, OrderState, Try
from reprieve.ports.leases import Claim, Progress
from reprieve.ports.rows import (
    AddEvents,
    Chill,
    CloseLease,
    DropHold,
    NoteAttempt,
    PutHolds,
    PutHost,
    PutJob,
    PutLease,
    PutOrder,
    PutTry,
    Snapshot,
    Unchanged,
    Wanted,
    Write,
)
from tests.builders import (
    HOST,
    NOON,
    OTHER_HOST,
    POOL,
    SPOT_A,
    SPOT_B,
    a_holder,
    a_host,
    a_job,
    a_key,
    a_lease,
    a_notice,
    a_plan,
    an_attempt,
    an_event,
    an_order,
    at,
)
from tests.contract.stores import Stores

JOB, LEASE, HOST_ROW, ORDER = a_job(), a_lease(), a_host(), an_order()
TRY = Try("job-1", 1, 1, a_plan(), NOON)
COLD = Cold(at(180), "empty")
EVERYTHING = Wanted(
    jobs=frozenset({"job-1", "job-9"}),
    leases=frozenset({LEASE.key, a_key(attempt=2, token="t2"), a_key("job-9")}),
    hosts=frozenset({HOST, OTHER_HOST}),
    holds=frozenset({HOST, OTHER_HOST}),
    orders=frozenset({("job-1", 1), ("job-1", 2)}),
    tries=frozenset({("job-1", 1, 1), ("job-1", 1, 2)}),
    colds=frozenset({(POOL, SPOT_A), (POOL, SPOT_B)}),
)


def fill(stores: Stores, *more: Write) -> None:
    """Store one row of each kind."""
    stores.rows.commit(
        [
            PutJob(JOB, new=True),
            PutLease(LEASE),
            PutHost(HOST_ROW, new=True),
            PutHolds(HOST),
            PutOrder(ORDER, was=None),
            PutTry(TRY, new=True),
            Chill(POOL, SPOT_A, COLD),
            *more,
        ]
    )


def claimed(stores: Stores) -> Lease:
    """Return the lease of job-1 as HOST holds it."""
    fill(stores)
    assert stores.leases.claim(LEASE.key, a_holder()) is Claim.WON
    return stores.rows.read(EVERYTHING).leases[LEASE.key]


def everything(stores: Stores) -> Snapshot:
    return stores.rows.read(EVERYTHING)


def test_one_read_finds_rows_of_every_kind_whole_and_leaves_out_what_is_not_there(
    stores: Stores,
) -> None:
    fill(stores)

    assert everything(stores) == Snapshot(
        jobs={"job-1": JOB},
        leases={LEASE.key: LEASE},
        hosts={HOST: HOST_ROW},
        holds={HOST: Holds(HOST)},
        orders={("job-1", 1): ORDER},
        tries={("job-1", 1, 1): TRY},
        colds={(POOL, SPOT_A): COLD},
        read=EVERYTHING,
    )
    assert stores.rows.read(Wanted()) == Snapshot()


def test_more_rows_than_a_call_takes_are_read_all_the_same(stores: Stores) -> None:
    ids = frozenset(f"i-{n:03d}" for n in range(120))
    for instance_id in ids:
        stores.rows.commit([PutHost(a_host(instance_id), new=True), PutHolds(instance_id)])

    seen = stores.rows.read(Wanted(hosts=ids, holds=ids))

    assert seen.hosts.keys() == seen.holds.keys() == ids


def test_a_job_and_a_host_are_stored_as_their_next_version(stores: Stores) -> None:
    fill(stores)
    running = JOB.to(JobStatus.RUNNING, reason="started")
    draining = HOST_ROW.advanced(HostState.DRAINING, reason="notice", notice=a_notice())

    stores.rows.commit([PutJob(running), PutHost(draining)])

    seen = everything(stores)
    assert seen.jobs["job-1"] == replace(running, version=2)
    assert (seen.hosts[HOST], seen.hosts[HOST].version) == (draining, 2)


def test_the_end_of_an_attempt_is_one_commit(stores: Stores) -> None:
    held = claimed(stores)
    following = replace(JOB, attempt=2, token="t2")
    successor = a_lease(following, sealed_attempt=1, base="m1")

    stores.rows.commit(
        [
            PutJob(following),
            CloseLease(held),
            PutLease(successor),
            DropHold(HOST, held.key),
            PutOrder(an_order(attempt=2), was=None),
            NoteAttempt(an_attempt(cause=Cause.NOTICE, steps_lost=3)),
            AddEvents("job-1", (an_event(1), an_event(1, "ended"))),
        ]
    )

    seen = everything(stores)
    assert seen.jobs["job-1"] == replace(following, version=2)
    assert seen.leases == {
        held.key: replace(held, state=LeaseState.CLOSED, beat=held.beat + 1),
        successor.key: successor,
    }
    assert seen.holds[HOST] == Holds(HOST)
    assert seen.orders["job-1", 2] == an_order(attempt=2)
    assert stores.jobs.attempts("job-1") == [an_attempt(cause=Cause.NOTICE, steps_lost=3)]
    assert stores.jobs.events("job-1") == [an_event(1), an_event(1, "ended")]
    assert stores.leases.claim(successor.key, a_holder()) is Claim.WON


def job_moved(stores: Stores) -> Sequence[Write]:
    fill(stores)
    stores.rows.commit([PutJob(JOB.to(JobStatus.RUNNING, reason="started"))])
    return [PutJob(JOB)]


def job_exists(stores: Stores) -> Sequence[Write]:
    fill(stores)
    return [PutJob(a_job(token="t9"), new=True)]


def job_missing(_stores: Stores) -> Sequence[Write]:
    return [PutJob(JOB)]


def lease_armed(stores: Stores) -> Sequence[Write]:
    fill(stores)
    return [PutLease(replace(LEASE, base="other"))]


def lease_renewed(stores: Stores) -> Sequence[Write]:
    held = claimed(stores)
    stores.leases.renew(held.key, a_holder(), Progress(Phase.RUNNING))
    return [CloseLease(held)]


def lease_closed(stores: Stores) -> Sequence[Write]:
    held = claimed(stores)
    stores.rows.commit([CloseLease(held)])
    return [CloseLease(replace(held, beat=held.beat + 1))]


def lease_missing(_stores: Stores) -> Sequence[Write]:
    return [CloseLease(LEASE)]


def host_moved(stores: Stores) -> Sequence[Write]:
    fill(stores, AddEvents("job-1", (an_event(),)))
    stores.rows.commit([PutHost(HOST_ROW)])
    return [PutHost(HOST_ROW.advanced(HostState.DRAINING, reason="late"))]


def host_exists(stores: Stores) -> Sequence[Write]:
    fill(stores)
    return [PutHost(a_host(pool="large"), new=True), PutHolds(HOST)]


def order_raised(stores: Stores) -> Sequence[Write]:
    fill(stores)
    stores.rows.commit([PutOrder(replace(ORDER, try_n=2), was=ORDER)])
    return [PutOrder(replace(ORDER, state=OrderState.LANDED), was=ORDER)]


def order_landed(stores: Stores) -> Sequence[Write]:
    fill(stores)
    stores.rows.commit([PutOrder(replace(ORDER, state=OrderState.LANDED), was=ORDER)])
    return [PutOrder(replace(ORDER, state=OrderState.UNFILLED), was=ORDER)]


def order_exists(stores: Stores) -> Sequence[Write]:
    fill(stores)
    return [PutOrder(an_order(reason="second"), was=None)]


def plan_stored(stores: Stores) -> Sequence[Write]:
    fill(stores)
    return [PutTry(replace(TRY, plan=a_plan(strategy="other")), new=True)]


def plan_missing(_stores: Stores) -> Sequence[Write]:
    return [PutTry(replace(TRY, answer=FleetAnswer()))]


def checked_job_moved(stores: Stores) -> Sequence[Write]:
    job_moved(stores)
    return [Unchanged(JOB)]


def checked_host_moved(stores: Stores) -> Sequence[Write]:
    host_moved(stores)
    return [Unchanged(HOST_ROW)]


def checked_lease_renewed(stores: Stores) -> Sequence[Write]:
    fill(stores)
    stores.leases.claim(LEASE.key, a_holder())
    return [Unchanged(LEASE)]


def checked_order_raised(stores: Stores) -> Sequence[Write]:
    order_raised(stores)
    return [Unchanged(ORDER)]


def checked_host_claimed(stores: Stores) -> Sequence[Write]:
    claimed(stores)
    return [Unchanged(Holds(HOST))]


def checked_host_released(stores: Stores) -> Sequence[Write]:
    held = claimed(stores)
    stores.rows.commit([DropHold(HOST, held.key)])
    return [Unchanged(Holds(HOST, frozenset({held.key})))]


BROKEN = [
    job_moved,
    job_exists,
    job_missing,
    lease_armed,
    lease_renewed,
    lease_closed,
    lease_missing,
    host_moved,
    host_exists,
    order_raised,
    order_landed,
    order_exists,
    plan_stored,
    plan_missing,
    checked_job_moved,
    checked_host_moved,
    checked_lease_renewed,
    checked_order_raised,
    checked_host_claimed,
    checked_host_released,
]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("broken", BROKEN)
def test_one_row_that_is_not_as_it_was_read_stops_the_whole_commit(
    stores: Stores, broken: Callable[[Stores], Sequence[Write]], *, alone: bool
) -> None:
    writes = list(broken(stores))
    if not alone:
        writes += [
            PutHost(a_host(OTHER_HOST), new=True),
            AddEvents("job-1", (an_event(9, "late"),)),
            Chill(POOL, SPOT_B, COLD),
        ]
    before = everything(stores), stores.jobs.events("job-1")

    with pytest.raises(StaleError):
        stores.rows.commit(writes)

    assert (everything(stores), stores.jobs.events("job-1")) == before


def test_checks_that_hold_let_the_rest_pass(stores: Stores) -> None:
    held = claimed(stores)
    stores.leases.idle(HOST)  # the beat of what it holds moves by itself

    stores.rows.commit(
        [
            Unchanged(JOB),
            Unchanged(HOST_ROW),
            Unchanged(held),
            Unchanged(ORDER),
            Unchanged(Holds(HOST, frozenset({held.key}))),
            PutTry(replace(TRY, answer=FleetAnswer((Launched("i-1", SPOT_A),)))),
        ]
    )

    answer = everything(stores).tries["job-1", 1, 1].answer
    assert answer == FleetAnswer((Launched("i-1", SPOT_A),))


def test_an_answer_leaves_the_stored_plan_word_for_word(stores: Stores) -> None:
    fill(stores)

    stores.rows.commit([PutTry(replace(TRY, plan=a_plan(strategy="other"), answer=FleetAnswer()))])

    assert everything(stores).tries["job-1", 1, 1] == replace(TRY, answer=FleetAnswer())


def test_a_second_adoption_leaves_what_the_host_holds(stores: Stores) -> None:
    held = claimed(stores)
    stores.leases.idle(HOST)

    stores.rows.commit([PutHolds(HOST)])

    assert everything(stores).holds[HOST] == Holds(HOST, frozenset({held.key}), 1)


def test_what_a_host_was_told_on_landing_comes_with_its_beat_and_stays(stores: Stores) -> None:
    told = Terms(hazard_per_hour=0.125, launched_at=NOON, off=(Policy.ADVICE, Policy.INTERVAL))
    stores.rows.commit([PutHost(a_host(), new=True), PutHolds(HOST, told)])
    stores.rows.commit([PutHolds(HOST)])

    assert stores.leases.idle(HOST) == Holds(HOST, beat=1, terms=told)


def test_what_only_a_stranger_let_go_is_no_row_of_ours(stores: Stores) -> None:
    stores.rows.commit([DropHold(HOST, LEASE.key)])

    assert everything(stores).holds == {}


def test_the_last_word_about_a_cold_pool_counts(stores: Stores) -> None:
    fill(stores)

    stores.rows.commit([Chill(POOL, SPOT_A, Cold(at(60), "notice"))])

    assert everything(stores).colds == {(POOL, SPOT_A): Cold(at(60), "notice")}


def test_an_event_said_twice_in_one_commit_is_stored_once(stores: Stores) -> None:
    said = an_event(2, "noticed", attempt=1, data={"channel": "event", "lead": 120.5})

    stores.rows.commit([AddEvents("job-1", (said, said)), AddEvents("job-1", (said,))])
    stores.rows.commit([AddEvents("job-1", (said,))])

    assert stores.jobs.events("job-1") == [said]


def test_an_event_handled_twice_is_stored_once_with_its_last_lag(stores: Stores) -> None:
    early, late = (
        an_event(2, "notice", data={"channel": "event", "lag_seconds": lag}) for lag in (0.5, 15.25)
    )

    stores.rows.commit([AddEvents("job-1", (early,))])
    stores.rows.commit([AddEvents("job-1", (late,))])

    assert stores.jobs.events("job-1") == [late]


def test_nothing_to_write_is_no_call(stores: Stores) -> None:
    stores.rows.commit([])
    stores.rows.commit([AddEvents("job-1", ())])

    assert stores.jobs.events("job-1") == []
