"""OrderStore: orders and the plans of their tries, by name and as a whole pool lists them."""

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
from reprieve.ports.rows import Alive, Chill, PutQuotes, PutTry, Remember, Write
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
from tests.stored import place, plan, submit


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

    place(stores.rows, order)

    assert stores.orders.read("job-1", 1) == order


def test_an_order_is_listed_while_it_waits_and_again_when_it_is_reopened(stores: Stores) -> None:
    order = an_order()
    place(stores.rows, order)

    for state, listed in [
        (OrderState.LANDED, False),
        (OrderState.OPEN, True),
        (OrderState.UNFILLED, True),
        (OrderState.NOT_NEEDED, False),
    ]:
        changed = replace(order, state=state)
        place(stores.rows, changed, was=order)
        order = changed
        assert stores.jobs.live(POOL).orders == ((("job-1", 1),) if listed else ())


def test_a_listing_shows_a_whole_pool_in_one_call(stores: Stores) -> None:
    job, order = a_job(), an_order(needs=Needs(gpus=2), at_risk=7)
    submit(stores.rows, job, a_lease(job))
    over = a_job("job-2", status=JobStatus.FAILED)
    submit(stores.rows, over, a_lease(over))
    place(stores.rows, order)
    place(stores.rows, an_order("job-3", state=OrderState.LANDED))
    stores.hosts.adopt(host := a_host(notice=a_notice()))
    stores.hosts.adopt(a_host(OTHER_HOST, state=HostState.GONE))
    stores.rows.commit([Chill(POOL, SPOT_A, Cold(at(180), "dry"))])
    stores.rows.commit([Chill(POOL, SPOT_B, Cold(at(60), "taken"))])
    life = History(hours=1.5, launches_tried=1, advised=1, advised_rightly=1)
    for _ in range(2):
        stores.rows.commit([Remember(POOL, SPOT_B, life)])
    quotes = Quotes.of({("g5.xlarge", "us-east-1a"): 0.4}, at=at(5))
    stores.rows.commit([PutQuotes(POOL, quotes)])

    assert stores.orders.listing(POOL) == Listing(
        jobs={"job-1": job},
        hosts={HOST: host},
        orders={("job-1", 1): order},
        cold={SPOT_A: Cold(at(180), "dry"), SPOT_B: Cold(at(60), "taken")},
        history={(SPOT_B.type, SPOT_B.zone): life + life},
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
    submit(stores.rows, job, a_lease(job))
    row = Try("job-1", attempt, 1, a_plan(attempt=attempt), NOON)
    writes: list[Write] = [PutTry(row, new=True), Alive("job-1", attempt)]

    if alive:
        stores.rows.commit(writes)
    else:
        with pytest.raises(StaleError):
            stores.rows.commit(writes)

    assert list(stores.orders.tries("job-1", attempt)) == ([row] if alive else [])


def test_tries_are_kept_with_ec2s_answers_in_order(stores: Stores) -> None:
    plans = [a_plan(try_n=n) for n in (2, 10, 1)]
    answer = FleetAnswer(
        (Launched("i-1", SPOT_A),),
        (FleetError("InsufficientInstanceCapacity", "none left", SPOT_B), FleetError("Throttling")),
    )

    for stored in plans:
        plan(stores.rows, stored, answer if stored.try_n == 2 else None)

    assert stores.orders.tries("job-1", 1) == [
        Try("job-1", 1, 1, plans[2], NOON),
        Try("job-1", 1, 2, plans[0], NOON, answer),
        Try("job-1", 1, 10, plans[1], NOON),
    ]
    assert list(stores.orders.tries("job-1", 2)) == []
