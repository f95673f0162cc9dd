"""OrderStore: one order per attempt, one plan per try, and no try that is raised twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import StaleError
from reprieve.domain.host import HostState
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.needs import Needs
from reprieve.domain.order import FleetAnswer, FleetError, Launched, OrderState, Try
from reprieve.ports.orders import Listing
from reprieve.ports.rows import Alive, Chill, PutQuotes, PutTry, Remember
from tests.builders import (
    HOST,
    NOON,
    OTHER_HOST,
    POOL,
    SPOT_A,
    SPOT_B,
    a_host,
    a_job,
    a_lease,
    a_notice,
    a_plan,
    an_order,
    at,
)
from tests.contract.stores import Stores


def test_the_first_order_for_an_attempt_stands(stores: Stores) -> None:
    first, second = an_order(reason="rebalance"), an_order(reason="interruption")

    assert stores.orders.place(first) == (first, True)
    assert stores.orders.place(second) == (first, False)

    assert stores.orders.read("job-1", 1) == first
    assert stores.orders.read("job-1", 2) is None


def test_an_order_reads_back_whole(stores: Stores) -> None:
    order = an_order(
        state=OrderState.UNFILLED,
        try_n=3,
        tier=1,
        outcome="no capacity",
        failures=7,
        needs_you=True,
        next_try_at=at(300),
        updated_at=at(0.5),
    )

    stores.orders.place(order)

    assert stores.orders.read("job-1", 1) == order


@pytest.mark.parametrize("state", list(OrderState))
def test_an_update_needs_the_state_and_the_try_that_were_read(
    stores: Stores, state: OrderState
) -> None:
    was = an_order(state=state)
    stores.orders.place(was)
    raised = replace(was, state=OrderState.OPEN, try_n=2, updated_at=at(1))

    stores.orders.update(raised, was=was)
    with pytest.raises(StaleError):
        stores.orders.update(replace(raised, outcome="late"), was=was)

    assert stores.orders.read("job-1", 1) == raised


def test_an_update_refuses_another_state_at_the_same_try(stores: Stores) -> None:
    was = an_order()
    stores.orders.place(was)
    landed = replace(was, state=OrderState.LANDED)
    stores.orders.update(landed, was=was)

    with pytest.raises(StaleError):
        stores.orders.update(replace(was, state=OrderState.UNFILLED), was=was)

    assert stores.orders.read("job-1", 1) == landed


def test_an_order_that_was_never_placed_cannot_be_updated(stores: Stores) -> None:
    with pytest.raises(StaleError):
        stores.orders.update(an_order(try_n=2), was=an_order())

    assert stores.orders.read("job-1", 1) is None


def test_an_order_is_listed_while_it_waits_and_again_when_it_is_reopened(stores: Stores) -> None:
    order = an_order()
    stores.orders.place(order)

    for state, listed in [
        (OrderState.LANDED, False),
        (OrderState.OPEN, True),
        (OrderState.UNFILLED, True),
        (OrderState.NOT_NEEDED, False),
    ]:
        changed = replace(order, state=state)
        stores.orders.update(changed, was=order)
        order = changed
        assert stores.jobs.live(POOL).orders == ((("job-1", 1),) if listed else ())


def test_a_listing_shows_a_whole_pool_in_one_call(stores: Stores) -> None:
    job, order = a_job(), an_order(needs=Needs(gpus=2), at_risk=7)
    stores.jobs.submit(job, a_lease(job))
    stores.jobs.submit(over := a_job("job-2", status=JobStatus.FAILED), a_lease(over))
    stores.orders.place(order)
    stores.orders.place(an_order("job-3", state=OrderState.LANDED))
    stores.hosts.adopt(host := a_host(notice=a_notice()))
    stores.hosts.adopt(a_host(OTHER_HOST, state=HostState.GONE))
    stores.pools.chill(POOL, SPOT_A, until=at(180), why="dry")
    stores.rows.commit([Chill(POOL, SPOT_B, Cold(at(60), "taken"))])
    for _ in range(2):
        stores.rows.commit([Remember(POOL, SPOT_B, History(hours=1.5, launches_tried=1))])
    quotes = Quotes.of({("g5.xlarge", "us-east-1a"): 0.4}, at=at(5))
    stores.rows.commit([PutQuotes(POOL, quotes)])

    assert stores.orders.listing(POOL) == Listing(
        jobs={"job-1": job},
        hosts={HOST: host},
        orders={("job-1", 1): order},
        cold={SPOT_A: Cold(at(180), "dry"), SPOT_B: Cold(at(60), "taken")},
        history={(SPOT_B.type, SPOT_B.zone): History(hours=3.0, launches_tried=2)},
        quotes=quotes,
    )
    assert stores.orders.listing("elsewhere") == Listing()


@pytest.mark.parametrize(
    ("job", "attempt", "alive"),
    [
        (a_job(), 1, True),
        (a_job(), 2, True),  # ordered on a notice, while attempt 1 still runs
        (a_job(attempt=2), 1, False),
        (a_job(), 3, False),
        (a_job(status=JobStatus.CANCELLED), 1, False),
        (a_job(status=JobStatus.SUCCEEDED), 2, False),
        (a_job(status=JobStatus.PARKED), 1, True),
        (a_job("job-9"), 1, False),
    ],
)
def test_a_plan_is_for_an_attempt_that_is_alive_or_comes_next(
    stores: Stores, job: Job, attempt: int, *, alive: bool
) -> None:
    stores.jobs.submit(job, a_lease(job))
    row = Try("job-1", attempt, 1, a_plan(attempt=attempt), NOON)
    writes = [PutTry(row, new=True), Alive("job-1", attempt)]

    if alive:
        stores.rows.commit(writes)
    else:
        with pytest.raises(StaleError):
            stores.rows.commit(writes)

    assert list(stores.orders.tries("job-1", attempt)) == ([row] if alive else [])


def test_the_first_plan_of_a_try_stands_word_for_word(stores: Stores) -> None:
    first, second = a_plan(), a_plan(strategy="capacity-optimized")

    assert stores.orders.store_plan(first) == first
    standing = stores.orders.store_plan(second)

    assert standing == first
    assert standing.client_token == first.client_token


def test_tries_are_kept_with_ec2s_answers_in_order(stores: Stores) -> None:
    plans = [a_plan(try_n=n) for n in (2, 10, 1)]
    for plan in plans:
        stores.orders.store_plan(plan)
    answer = FleetAnswer(
        (Launched("i-1", SPOT_A),),
        (FleetError("InsufficientInstanceCapacity", "none left", SPOT_B), FleetError("Throttling")),
    )

    stores.orders.answer(plans[0], answer)

    assert stores.orders.tries("job-1", 1) == [
        Try("job-1", 1, 1, plans[2], NOON),
        Try("job-1", 1, 2, plans[0], NOON, answer),
        Try("job-1", 1, 10, plans[1], NOON),
    ]
    assert list(stores.orders.tries("job-1", 2)) == []


def test_an_answer_without_a_plan_is_refused(stores: Stores) -> None:
    with pytest.raises(StaleError):
        stores.orders.answer(a_plan(), FleetAnswer())

    assert list(stores.orders.tries("job-1", 1)) == []


def test_unparking_stores_the_job_and_its_raised_try_together(stores: Stores) -> None:
    job = a_job(status=JobStatus.PARKED, needs_you=True)
    stores.jobs.submit(job, a_lease(job))
    was = an_order(state=OrderState.UNFILLED)
    stores.orders.place(was)
    raised = replace(was, state=OrderState.OPEN, try_n=2)

    stored = stores.orders.unpark(
        job.to(JobStatus.QUEUED, reason="next try is due"), raised, was=was
    )

    assert stored.version == job.version + 1
    assert stores.jobs.read("job-1") == stored
    assert stores.orders.read("job-1", 1) == raised


def test_unparking_places_the_first_order_of_an_attempt(stores: Stores) -> None:
    job = a_job(status=JobStatus.PARKED)
    stores.jobs.submit(job, a_lease(job))

    stores.orders.unpark(job.to(JobStatus.QUEUED, reason="operator"), an_order(), was=None)

    assert stores.orders.read("job-1", 1) == an_order()


@pytest.mark.parametrize("broken", ["version", "try", "state", "exists"])
def test_unparking_with_one_broken_condition_changes_nothing(stores: Stores, broken: str) -> None:
    job = a_job(status=JobStatus.PARKED)
    stores.jobs.submit(job, a_lease(job))
    was = an_order(state=OrderState.UNFILLED)
    stores.orders.place(was)
    raised = replace(was, state=OrderState.OPEN, try_n=2)
    queued = job.to(JobStatus.QUEUED, reason="next try is due")
    if broken == "version":
        stores.jobs.update(queued)
    before = stores.jobs.read("job-1"), stores.orders.read("job-1", 1)

    with pytest.raises(StaleError):
        stores.orders.unpark(
            queued,
            raised,
            was={
                "version": was,
                "try": replace(was, try_n=5),
                "state": replace(was, state=OrderState.OPEN),
                "exists": None,
            }[broken],
        )

    assert (stores.jobs.read("job-1"), stores.orders.read("job-1", 1)) == before
