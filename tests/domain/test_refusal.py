"""One step follows from an answer without a host, whatever the mix of its codes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve.domain.capacity import Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import CapacityPool, HostState, Market
from reprieve.domain.order import ErrorClass, FleetAnswer, FleetError
from reprieve.domain.refusal import (
    Next,
    follow,
    gravest,
    leaving,
    next_tier,
    quota_frees_at,
    to_chill,
)
from tests.builders import SPOT_A, SPOT_B, a_host, a_notice, a_plan, an_order, at
from tests.usecases.story import a_pool

CLOCK = NoticeClock()


def said(*codes: str, refused: bool = False) -> FleetAnswer:
    return FleetAnswer(errors=tuple(FleetError(code) for code in codes), refused=refused)


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ((), ErrorClass.CAPACITY),
        (("UnfulfillableCapacity", "Unsupported"), ErrorClass.CAPACITY),
        (("InsufficientInstanceCapacity", "RequestLimitExceeded"), ErrorClass.THROTTLE),
        (("VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"), ErrorClass.SPOT_LIMIT),
        (("RequestLimitExceeded", "InvalidAMIID.NotFound"), ErrorClass.CONFIGURATION),
        (("UnauthorizedOperation", "IdempotentParameterMismatch"), ErrorClass.OURS),
    ],
)
def test_of_several_codes_the_gravest_decides(codes: tuple[str, ...], kind: ErrorClass) -> None:
    assert gravest(said(*codes)) is kind


CONFIG, THROTTLED = said("InvalidAMIID.NotFound"), said("RequestLimitExceeded")


@pytest.mark.parametrize(
    ("answer", "before", "step"),
    [
        (said("InsufficientInstanceCapacity"), None, Next.NEXT_TIER),
        (said("BrandNewLimit"), None, Next.NEXT_TIER),
        (said("Unsupported"), None, Next.NEXT_TIER),
        (said("SpotMaxPriceTooLow"), None, Next.NEXT_TIER),
        (said("VcpuLimitExceeded"), None, Next.NEXT_MARKET),
        (said("UnauthorizedOperation"), None, Next.A_PERSON),
        (said("IdempotentParameterMismatch"), None, Next.LOOK_BY_TAG),
        (said("IdempotentInstanceTerminated"), None, Next.SAME_TIER),
        (CONFIG, None, Next.SAME_PLAN),
        (CONFIG, THROTTLED, Next.SAME_PLAN),
        (CONFIG, CONFIG, Next.A_PERSON),
        (THROTTLED, None, Next.SAME_PLAN),
        (THROTTLED, THROTTLED, Next.LATER),
        (replace(THROTTLED, refused=True), THROTTLED, Next.SAME_PLAN),
    ],
)
def test_each_class_has_its_step(
    answer: FleetAnswer, before: FleetAnswer | None, step: Next
) -> None:
    assert follow(answer, before, an_order(), old_host_leaves=False) is step


def test_spot_quota_is_waited_for_once_and_only_while_a_host_leaves() -> None:
    full = said("MaxSpotInstanceCountExceeded")
    waited = an_order(waited_for_quota=True)

    assert follow(full, None, an_order(), old_host_leaves=True) is Next.WHEN_QUOTA_FREES
    assert follow(full, None, waited, old_host_leaves=True) is Next.NEXT_MARKET
    assert follow(full, None, an_order(), old_host_leaves=False) is Next.NEXT_MARKET


def test_quota_comes_free_when_the_first_leaving_host_is_gone() -> None:
    going = a_host(state=HostState.DRAINING, notice=a_notice())
    sure = a_host(
        "i-1", state=HostState.DRAINING, capacity=replace(SPOT_A, market=Market.ON_DEMAND)
    )

    assert leaving([going, sure, a_host("i-2")]) == [going]
    assert quota_frees_at([going, sure], now=at(10), clock=CLOCK) == at(120 + 15)
    unnoticed = a_host(state=HostState.RETIRING)
    assert quota_frees_at([unnoticed], now=at(10), clock=CLOCK) == at(10 + 15)


def test_what_is_cold_and_for_how_long_follows_from_the_code() -> None:
    errors = [
        FleetError("InsufficientInstanceCapacity", capacity=SPOT_A),
        FleetError("Unsupported", capacity=SPOT_B),
        FleetError("MaxSpotInstanceCountExceeded", capacity=SPOT_B),
    ]
    cold = to_chill(a_plan(), errors, now=at(0), clock=CLOCK)

    assert {pool: spell.until for pool, spell in cold.items()} == {
        SPOT_A: at(180),
        SPOT_B: at(0) + timedelta(hours=6),
    }


def test_a_refusal_that_names_no_pool_speaks_of_all_that_were_asked() -> None:
    cold = to_chill(a_plan(), [FleetError("UnfulfillableCapacity")], now=at(0), clock=CLOCK)
    assert set(cold) == {SPOT_A, SPOT_B}


def test_a_full_subnet_takes_its_zone_out_in_every_market() -> None:
    full = FleetError("InsufficientFreeAddressesInSubnet", capacity=SPOT_A)
    cold = to_chill(a_plan(), [full], now=at(0), clock=CLOCK)

    assert set(cold) == {CapacityPool("*", "us-east-1a", market) for market in Market}
    assert {spell.until for spell in cold.values()} == {at(1800)}


def test_the_next_tier_may_have_to_be_of_another_market() -> None:
    pool = a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER, Tier.ON_DEMAND))
    assert next_tier(an_order(), pool) == 1
    assert next_tier(an_order(), pool, other_market=True) == 2
    assert next_tier(an_order(tier=2), pool) is None
    assert next_tier(an_order(tier=9), pool) is None
