"""What a tier asks for, and a reason for everything that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve.domain.capacity import Cold, Pool, Strategy, Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.pools import History
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.needs import NOTHING, Needs
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import Member
from reprieve.domain.planning import (
    MAX_MEMBERS,
    MAX_OVERRIDES,
    Proposal,
    View,
    free_spare_slot,
    impossible,
    ladder,
    lived,
    plan,
    under_notice,
    with_the_living,
)
from tests.builders import OTHER_HOST, SPOT_A, SPOT_B, a_host, a_notice, at
from tests.usecases.story import a_pool

SUBNETS = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
CLOCK = NoticeClock()
ALL = {(t, z) for t in ("g5.xlarge", "g6.xlarge") for z in SUBNETS}


def view(**changes: Any) -> View:
    return View(**({"subnets": SUBNETS} | changes))


def propose(
    pool: Pool | None = None,
    *,
    needs: Needs = NOTHING,
    tier: int = 0,
    wanted: int = 1,
    now: float = 0,
    **known: Any,
) -> Proposal:
    return plan(
        needs, pool or a_pool(), view(**known), tier=tier, now=at(now), clock=CLOCK, wanted=wanted
    )


def asked(proposal: Proposal) -> set[tuple[str, str]]:
    return {(offer.capacity.type, offer.capacity.zone) for offer in proposal.offers}


def why(proposal: Proposal, kind: str, zone: str | None = None) -> str:
    return next(left.why for left in proposal.left_out if (left.type, left.zone) == (kind, zone))


def spot(usd: float, keys: Iterable[tuple[str, str]] = ALL) -> dict[str, Any]:
    return {"usd": {Market.SPOT: dict.fromkeys(keys, usd)}}


def noticed(
    kind: NoticeKind = NoticeKind.INTERRUPTION, capacity: CapacityPool = SPOT_A, **changes: Any
) -> Host:
    state = HostState.READY if kind is NoticeKind.REBALANCE else HostState.DRAINING
    return a_host(capacity=capacity, notice=a_notice(kind), **({"state": state} | changes))


# Spot


def test_a_spot_plan_is_diversified_over_types_and_zones() -> None:
    proposal = propose()
    assert asked(proposal) == ALL
    assert proposal.hosts == 1

    sent = proposal.plan([Member("job-1", 1, 1)], a_pool(), stack="Reprieve")
    assert sent.strategy == "price-capacity-optimized"
    assert sent.market is Market.SPOT
    assert {(o.capacity.type, o.capacity.zone) for o in sent.overrides} == ALL


def test_what_is_costly_to_restart_is_bought_where_capacity_is_deepest() -> None:
    pool = a_pool(strategy=Strategy.CAPACITY)
    sent = propose(pool).plan([Member("job-1", 1, 1)], pool, stack="Reprieve")
    assert sent.strategy == "capacity-optimized"


def test_cold_pools_are_left_out_and_all_cold_is_no_plan() -> None:
    cold = {SPOT_A: Cold(at(180), "InsufficientInstanceCapacity")}
    proposal = propose(cold=cold)
    assert asked(proposal) == ALL - {("g5.xlarge", "us-east-1a")}
    assert why(proposal, "g5.xlarge", "us-east-1a") == "InsufficientInstanceCapacity"
    assert asked(propose(cold=cold, now=180)) == ALL

    everything = {CapacityPool(t, z, Market.SPOT): Cold(at(180), "dry") for t, z in ALL}
    refused = propose(cold=everything)
    assert not refused.offers
    assert refused.reason == "all 4 spot capacity pools are cold"
    assert not refused.final
    assert asked(propose(cold=everything, tier=1)) == ALL  # on demand isn't cold for that


def test_a_zone_without_addresses_is_left_out_whole() -> None:
    full = {CapacityPool("*", "us-east-1a", Market.SPOT): Cold(at(60), "subnet full")}
    assert {zone for _, zone in asked(propose(cold=full))} == {"us-east-1b"}


@pytest.mark.parametrize("kind", [NoticeKind.INTERRUPTION, NoticeKind.HIBERNATE])
def test_a_zone_that_is_being_taken_back_waits_while_others_have_room(kind: NoticeKind) -> None:
    proposal = propose(hosts=[noticed(kind)], now=10)

    assert asked(proposal) == {("g5.xlarge", "us-east-1b"), ("g6.xlarge", "us-east-1b")}
    assert why(proposal, "g5.xlarge", "us-east-1a").startswith(f"{kind} notice of")
    assert why(proposal, "g6.xlarge", "us-east-1a") == "its zone is being taken back"


def test_in_the_only_zone_its_other_pools_are_asked_all_the_same() -> None:
    proposal = propose(hosts=[noticed()], now=10, subnets={"us-east-1a": "subnet-a"})
    assert asked(proposal) == {("g6.xlarge", "us-east-1a")}


def test_every_pool_under_a_notice_is_cold_and_not_only_the_last() -> None:
    hosts = [noticed(), noticed(capacity=SPOT_B, instance_id=OTHER_HOST)]
    cold = under_notice(hosts, now=at(10), clock=CLOCK)
    assert set(cold) == {SPOT_A, SPOT_B}
    # Both zones are being taken back, so neither is shunned, but both pools are cold.
    assert asked(propose(hosts=hosts, now=10)) == ALL - {(c.type, c.zone) for c in (SPOT_A, SPOT_B)}
    assert asked(propose(hosts=hosts, now=181)) == ALL


def test_advice_keeps_its_pool_out_and_no_whole_zone() -> None:
    advised = noticed(NoticeKind.REBALANCE)
    proposal = propose(hosts=[advised], now=60)
    assert asked(proposal) == ALL - {("g5.xlarge", "us-east-1a")}
    assert asked(propose(hosts=[advised], now=CLOCK.advice.total_seconds())) == ALL


@pytest.mark.parametrize("kind", [NoticeKind.MAINTENANCE, NoticeKind.DRAIN, NoticeKind.SCALE_IN])
def test_a_notice_of_one_host_alone_says_nothing_of_its_pool(kind: NoticeKind) -> None:
    assert asked(propose(hosts=[noticed(kind)], now=10)) == ALL


def test_types_that_cannot_hold_the_job_are_not_asked_for() -> None:
    proposal = propose(needs=Needs(precision="fp8"))
    assert {kind for kind, _ in asked(proposal)} == {"g6.xlarge"}
    assert "fp8 takes 8.9" in why(proposal, "g5.xlarge")

    nothing = propose(needs=Needs(gpus=8))
    assert nothing.reason.startswith("none of the 2 types can hold 8 GPUs")
    assert impossible(Needs(gpus=8), a_pool()).startswith("none of the 2 types")
    assert not impossible(Needs(gpus=1), a_pool())


def test_the_best_bargain_comes_first_and_the_unknown_last() -> None:
    usd = {
        Market.SPOT: {
            ("g5.xlarge", "us-east-1a"): 0.40,
            ("g5.xlarge", "us-east-1b"): 0.38,
            ("g6.xlarge", "us-east-1a"): 0.30,
        }
    }
    # Cheap, but three of four launches came to nothing.
    history = {("g6.xlarge", "us-east-1a"): History(launches_tried=12, launches_won=3)}

    proposal = propose(usd=usd, history=history)

    assert [(o.capacity.type, o.capacity.zone[-1]) for o in proposal.offers] == [
        ("g5.xlarge", "b"),
        ("g5.xlarge", "a"),
        ("g6.xlarge", "a"),
        ("g6.xlarge", "b"),
    ]


def test_a_spot_price_like_on_demand_with_interruptions_on_top_is_no_bargain() -> None:
    dear = propose(**spot(1.0))  # g5.xlarge costs 1.006 on demand, g6.xlarge 0.8048
    assert not dear.offers
    assert "no less than $1.006 on demand" in why(dear, "g5.xlarge", "us-east-1a")
    # Elsewhere on-demand may cost more than the catalogue says: nothing to compare with.
    far = propose(subnets={"sa-east-1a": "subnet-a"}, **spot(1.0, [("g5.xlarge", "sa-east-1a")]))
    assert len(far.offers) == 2


def test_a_request_is_bounded() -> None:
    types = tuple(f"x{n}.large" for n in range(50))
    assert len(propose(a_pool(types=types)).offers) == MAX_OVERRIDES


# Caps


def test_the_host_cap_is_final_and_the_price_cap_is_not() -> None:
    full = propose(hosts=[a_host(), a_host(OTHER_HOST)])
    assert full.final
    assert full.at_cap
    assert full.reason == "pool small is at its cap of 2 hosts"
    leaving = propose(hosts=[a_host(), a_host(OTHER_HOST, state=HostState.DRAINING)])
    assert leaving.offers

    dear = propose(a_pool(max_usd_per_hour=0.5), **spot(0.6))
    assert not dear.final
    assert dear.reason == "spot costs $0.600/h or more, the pool's cap leaves $0.500/h"


def test_the_hosts_of_one_plan_share_what_the_caps_leave() -> None:
    pool = a_pool(max_hosts=20, max_usd_per_hour=1.0)
    assert propose(pool, wanted=4, **spot(0.3)).hosts == 3
    assert propose(pool, wanted=2, **spot(0.3)).hosts == 2
    one_cheap = spot(0.6)
    one_cheap["usd"][Market.SPOT]["g5.xlarge", "us-east-1a"] = 0.4
    both = propose(pool, wanted=2, **one_cheap)
    assert both.hosts == 2
    assert asked(both) == {("g5.xlarge", "us-east-1a")}
    assert propose(a_pool(max_hosts=3), wanted=9, hosts=[a_host()]).hosts == 2
    assert propose(a_pool(max_hosts=99), wanted=50).hosts == MAX_MEMBERS


# Tiers


def test_wider_asks_for_larger_types_no_dearer_than_the_pool_on_demand() -> None:
    pool = a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER))
    usd = {("g6.2xlarge", "us-east-1a"): 0.5, ("g5.4xlarge", "us-east-1a"): 1.2}

    wider = propose(pool, tier=1, usd={Market.SPOT: usd})

    assert asked(wider) == ALL | {("g6.2xlarge", "us-east-1a")}
    assert why(wider, "g5.4xlarge", "us-east-1a") == (
        "$1.200/h, and the dearest type of the pool is $1.006 on demand"
    )
    assert why(wider, "g6.4xlarge", "us-east-1a") == "wider, and its price isn't known"


def test_wider_goes_where_capacity_is_taken_back_but_not_into_the_same_pools() -> None:
    pool = a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER))
    assert asked(propose(pool, tier=1, hosts=[noticed()], now=10)) == ALL - {
        ("g5.xlarge", "us-east-1a")
    }


def test_wider_makes_possible_what_the_pools_own_types_cannot_hold() -> None:
    big = Needs(gpu_memory_mib=40_000)
    assert impossible(big, a_pool())
    assert not impossible(big, a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER)))


def test_a_reservation_is_named_and_not_priced() -> None:
    pool = a_pool(
        tiers=(Tier.RESERVED,),
        reservations=("cr-0aaaaaaaaaaaaaaaa",),
        reservation_types=("on-demand-capacity-reservation",),
        max_usd_per_hour=0.1,
    )
    proposal = propose(pool, usd={Market.RESERVED: dict.fromkeys(ALL, 9.0)})
    sent = proposal.plan([Member("job-1", 1, 1)], pool, stack="Reprieve")

    assert asked(proposal) == ALL
    assert sent.market is Market.RESERVED
    assert sent.reservations == ("cr-0aaaaaaaaaaaaaaaa", "on-demand-capacity-reservation")


def test_the_on_demand_base_comes_before_every_tier() -> None:
    assert propose(a_pool(on_demand_base=1)).tier is Tier.ON_DEMAND


def test_the_ladder_shows_every_tier_once_and_stops_at_a_cap() -> None:
    pool = a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER, Tier.ON_DEMAND))
    tiers = [p.tier for p in ladder(NOTHING, pool, view(), now=at(0), clock=CLOCK)]
    assert tiers == list(pool.tiers)

    base = ladder(NOTHING, replace(pool, on_demand_base=1), view(), now=at(0), clock=CLOCK)
    assert [p.tier for p in base] == [Tier.ON_DEMAND]

    hosts = [a_host(), a_host(OTHER_HOST)]
    assert len(ladder(NOTHING, pool, view(hosts=hosts), now=at(0), clock=CLOCK)) == 1


# History and churn


def test_a_hosts_life_is_its_pools_history_also_while_it_lasts() -> None:
    taken = noticed(launched_at=at(0))
    assert lived(taken, at(7200)) == History(
        hours=2.0, interruptions=1, launches_tried=1, launches_won=1
    )
    known = {("g5.xlarge", "us-east-1a"): History(hours=1.0, launches_tried=3)}
    alive = a_host(launched_at=at(0))
    sure = a_host(OTHER_HOST, capacity=replace(SPOT_A, market=Market.ON_DEMAND))
    assert with_the_living(known, [alive, sure], at(3600)) == {
        ("g5.xlarge", "us-east-1a"): History(hours=2.0, launches_tried=4, launches_won=1)
    }


def test_the_churn_budget_is_so_many_slots_an_hour() -> None:
    pool = a_pool(spares_per_hour=2)
    first = free_spare_slot(pool, {}, now=at(0))
    assert first is not None
    used = {first: Cold(at(0) + timedelta(hours=1), "spare for job-1")}
    second = free_spare_slot(pool, used, now=at(0))
    assert second is not None
    assert second != first
    used[second] = Cold(at(60) + timedelta(hours=1), "spare for job-2")
    assert free_spare_slot(pool, used, now=at(3599)) is None
    assert free_spare_slot(pool, used, now=at(3600)) == first
    assert free_spare_slot(a_pool(), {}, now=at(0)) is None
