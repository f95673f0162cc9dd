"""Whether a pool is short of hosts, and whose order takes a launch."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.capacity import (
    Census,
    Demand,
    Strategy,
    Supply,
    Tier,
    to_launch,
    unserved,
)
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Host, HostState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Holds
from reprieve.domain.needs import NOTHING, Needs
from reprieve.domain.notice import NoticeKind
from tests.builders import HOST, SPOT_A, a_host, a_key, a_notice, an_order, at
from tests.usecases.story import a_pool

BIG = Needs(gpu_memory_mib=40_000)  # an L40S holds it, an A10G doesn't
CLOCK = NoticeClock()


def census(
    *hosts: Host, jobs: int = 1, beat: int = 1, silent: frozenset[str] = frozenset()
) -> Census:
    return Census(
        jobs=[(f"job-{n}", JobStatus.QUEUED) for n in range(jobs)],
        hosts=hosts,
        holds={h.instance_id: Holds(h.instance_id, beat=beat) for h in hosts},
        silent=silent,
        orders=[],
    )


def test_one_idle_host_covers_one_waiting_job() -> None:
    assert census(a_host()).deficit(now=at(0), clock=CLOCK) == 0
    assert census(a_host(), jobs=2).deficit(now=at(0), clock=CLOCK) == 1


def test_a_booting_host_counts_only_while_booting_is_normal() -> None:
    booting = census(a_host(), beat=0)
    assert booting.deficit(now=at(299), clock=CLOCK) == 0
    assert booting.deficit(now=at(301), clock=CLOCK) == 1


def test_hosts_that_are_busy_silent_draining_or_advised_are_no_supply() -> None:
    busy = census(a_host())
    busy = Census(
        busy.jobs, busy.hosts, {HOST: Holds(HOST, frozenset({a_key()}), 1)}, busy.silent, []
    )
    assert busy.deficit(now=at(0), clock=CLOCK) == 1
    silent = census(a_host(), silent=frozenset({HOST}))
    assert silent.deficit(now=at(0), clock=CLOCK) == 1
    assert census(a_host(state=HostState.DRAINING)).deficit(now=at(0), clock=CLOCK) == 1
    advised = census(a_host(notice=a_notice(NoticeKind.REBALANCE)))
    assert advised.deficit(now=at(10), clock=CLOCK) == 1
    assert advised.deficit(now=at(3600), clock=CLOCK) == 0


def test_an_order_leaves_itself_out_of_the_supply() -> None:
    own, other = an_order("job-0"), an_order("job-1")
    counted = Census(
        [("job-0", JobStatus.QUEUED), ("job-1", JobStatus.QUEUED)],
        [],
        {},
        frozenset(),
        [own, other],
    )
    assert counted.deficit(now=at(0), clock=CLOCK) == 0
    assert counted.deficit(now=at(0), clock=CLOCK, without=own) == 1


def test_every_tier_buys_in_one_market_and_the_on_demand_base_comes_first() -> None:
    assert [tier.market for tier in Tier] == [
        Market.SPOT,
        Market.SPOT,
        Market.RESERVED,
        Market.ON_DEMAND,
    ]
    pool = a_pool(on_demand_base=1)
    assert pool.tier(0, []) is Tier.ON_DEMAND
    sure = a_host(capacity=replace(SPOT_A, market=Market.ON_DEMAND))
    assert pool.tier(0, [sure]) is Tier.SPOT
    assert pool.tier(9, [sure]) is Tier.ON_DEMAND
    assert pool.strategy is Strategy.PRICE_CAPACITY


def test_a_host_that_cannot_hold_a_job_is_no_supply_for_it() -> None:
    small, large = Supply(type="g5.xlarge"), Supply(type="g6e.xlarge")

    assert unserved([Demand("a", BIG)], [small]) == [Demand("a", BIG)]
    assert unserved([Demand("a", BIG)], [small, large]) == []


def test_nobody_is_left_out_while_there_is_a_way_to_serve_all() -> None:
    # The first would take the large host if it came first; the second needs it.
    wishes = [Demand("any", NOTHING), Demand("big", BIG)]
    hosts = [Supply(type="g6e.xlarge"), Supply(type="g5.xlarge")]

    assert unserved(wishes, hosts) == []
    assert unserved([*wishes, Demand("late", NOTHING)], hosts) == [Demand("late", NOTHING)]


def test_what_another_order_brings_serves_its_own_job_and_those_like_it() -> None:
    coming = Supply(job="big", needs=BIG)
    assert unserved([Demand("big", BIG)], [coming]) == []
    assert unserved([Demand("other", BIG)], [coming]) == []
    assert unserved([Demand("any")], [Supply(job="big", needs=NOTHING)]) == []
    other = Demand("other", Needs(gpus=8))
    assert unserved([other], [coming]) == [other]


def test_a_census_counts_only_hosts_that_hold_the_job() -> None:
    idle = census(a_host())
    picky = replace(idle, needs={"job-0": BIG})
    assert idle.deficit(now=at(0), clock=CLOCK) == 0
    assert picky.deficit(now=at(0), clock=CLOCK) == 1


def test_of_like_orders_so_many_launch_as_are_missing_and_the_most_at_risk_first() -> None:
    orders = [an_order(f"job-{n}", at_risk=risk) for n, risk in enumerate((5, 100, 20))]

    assert [o.job for o in to_launch(orders, [], [])] == ["job-1", "job-2", "job-0"]
    one_idle = [Supply(type="g5.xlarge")]
    assert len(to_launch(orders, [], one_idle)) == 2
    # Somebody else waits too, and takes the idle host.
    assert len(to_launch(orders, [Demand("elsewhere")], one_idle)) == 3
    assert to_launch(orders, [], [Supply(type="g5.xlarge")] * 3) == []


def test_equal_risks_are_served_in_the_order_of_waiting() -> None:
    late, early = an_order("late", created_at=at(5)), an_order("early", created_at=at(1))
    assert [o.job for o in to_launch([late, early], [], [])] == ["early", "late"]


def test_a_buffer_keeps_hosts_beyond_the_demand() -> None:
    order = an_order("job-0")
    idle = [Supply(type="g5.xlarge")]
    assert to_launch([order], [], idle) == []
    assert to_launch([order], [], idle, buffer=1) == [order]
    assert to_launch([order], [], idle * 2, buffer=1) == []
