"""What a try asks for, and when no launch is needed at all."""

from __future__ import annotations

from datetime import timedelta

from reprieve.domain.capacity import Census, NoPlan, backoff, plan_try
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Holds
from reprieve.domain.order import Order, Plan
from tests.builders import HOST, OTHER_HOST, a_host, a_key, a_notice, an_order, at
from tests.usecases.story import a_pool

SUBNETS = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
CLOCK = NoticeClock()


def plan(order: Order | None = None, **changes: object) -> Plan | NoPlan:
    arguments: dict[str, object] = {
        "stack": "Reprieve",
        "subnets": SUBNETS,
        "cold": {},
        "prices": {},
        "hosts": [],
    }
    pool = changes.pop("pool", a_pool())
    return plan_try(order or an_order(), pool, **(arguments | changes))  # type: ignore[arg-type]


def test_a_spot_plan_is_diversified_over_types_and_zones() -> None:
    planned = plan()
    assert isinstance(planned, Plan)
    assert planned.strategy == "price-capacity-optimized"
    asked = {(o.capacity.type, o.capacity.zone) for o in planned.overrides}
    assert asked == {(t, z) for t in ("g5.xlarge", "g6.xlarge") for z in SUBNETS}


def test_cold_pools_are_left_out_and_all_cold_is_no_plan() -> None:
    cold = {CapacityPool("g5.xlarge", "us-east-1a", Market.SPOT): "taken"}
    planned = plan(cold=cold)
    assert isinstance(planned, Plan)
    assert all(o.capacity not in cold for o in planned.overrides)
    everything = {
        CapacityPool(t, z, Market.SPOT): "dry" for t in ("g5.xlarge", "g6.xlarge") for z in SUBNETS
    }
    refused = plan(cold=everything)
    assert isinstance(refused, NoPlan)
    assert "cold" in refused.reason


def test_the_host_cap_is_final_and_the_price_cap_is_not() -> None:
    full = plan(hosts=[a_host(), a_host(OTHER_HOST)])
    assert isinstance(full, NoPlan)
    assert full.final
    dear = plan(prices={(t, z): 9.0 for t in ("g5.xlarge", "g6.xlarge") for z in SUBNETS})
    assert isinstance(dear, NoPlan)
    assert not dear.final
    assert "$9.000/h" in dear.reason


def test_the_on_demand_base_comes_before_every_tier() -> None:
    planned = plan(pool=a_pool(on_demand_base=1))
    assert isinstance(planned, Plan)
    assert planned.market is Market.ON_DEMAND


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
    advised = census(a_host(notice=a_notice()))
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


def test_backoff_doubles_and_is_bounded() -> None:
    waits = [backoff(n, CLOCK) for n in (1, 2, 3, 50)]
    assert waits == [timedelta(minutes=3 * m) for m in (1, 2, 4, 32)]
