"""What follows when EC2 gave fewer hosts than were asked for: one step, from all its codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve.domain.capacity import Cold, Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.order import ErrorClass, FleetAnswer, FleetError, Order, Plan, classify
from reprieve.domain.planning import ANY_TYPE

# In cold times (3 min): what isn't sold somewhere stays so, an address comes free some time.
PLACE_COLD_TIMES = 120
SUBNET_COLD_TIMES = 10


class Next(StrEnum):
    """What becomes of an order that got no host."""

    SAME_PLAN = "the same plan again, later"
    SAME_TIER = "another try of the same tier"
    LATER = "another try of the same tier, later"
    NEXT_TIER = "the next tier"
    NEXT_MARKET = "the next tier of another market"
    WHEN_QUOTA_FREES = "once more when the old host is gone"
    LOOK_BY_TAG = "another try, unless something was launched"
    A_PERSON = "waits for a person"


# When an answer has several codes, the first of these that is among them decides: a fault of
# ours or of the account isn't mended by asking others, and a throttled call has told nothing.
GRAVEST_FIRST = (
    ErrorClass.OURS,
    ErrorClass.PERMISSION,
    ErrorClass.CONFIGURATION,
    ErrorClass.THROTTLE,
    ErrorClass.ENDED,
    ErrorClass.SPOT_LIMIT,
    ErrorClass.LIMIT,
)


def follow(
    answer: FleetAnswer, before: FleetAnswer | None, order: Order, *, old_host_leaves: bool
) -> Next:
    """
    Return what follows for *order* from *answer*; *before* is what the same plan got earlier.

    *old_host_leaves*: a Spot host of the pool is on its way out, whose quota comes free.
    """
    match gravest(answer):
        case ErrorClass.OURS:
            return Next.LOOK_BY_TAG
        case ErrorClass.PERMISSION:
            return Next.A_PERSON
        case ErrorClass.CONFIGURATION:
            return Next.A_PERSON if _said(before, ErrorClass.CONFIGURATION) else Next.SAME_PLAN
        case ErrorClass.THROTTLE:
            # An answer that was one is repeated under its token; only what EC2 didn't take at
            # all may be said in the same words for ever.
            again = answer.refused or not _said(before, ErrorClass.THROTTLE)
            return Next.SAME_PLAN if again else Next.LATER
        case ErrorClass.ENDED:
            return Next.SAME_TIER
        case ErrorClass.SPOT_LIMIT:
            waits = old_host_leaves and not order.waited_for_quota
            return Next.WHEN_QUOTA_FREES if waits else Next.NEXT_MARKET
        case ErrorClass.LIMIT:
            return Next.NEXT_MARKET
        case _:
            return Next.NEXT_TIER


def gravest(answer: FleetAnswer) -> ErrorClass:
    """Return the class that decides; capacity if EC2 gave no reason."""
    classes = {classify(error.code) for error in answer.errors}
    return next((kind for kind in GRAVEST_FIRST if kind in classes), ErrorClass.CAPACITY)


def to_chill(
    plan: Plan, errors: Iterable[FleetError], *, now: datetime, clock: NoticeClock
) -> dict[CapacityPool, Cold]:
    """Return what isn't asked again for a while; who names no pool speaks of all asked."""
    asked = [override.capacity for override in plan.overrides]
    found: dict[CapacityPool, Cold] = {}
    for error in errors:
        pools = [error.capacity] if error.capacity else asked
        match classify(error.code):
            case ErrorClass.CAPACITY:
                cold = Cold(now + clock.cold, error.code or "no capacity")
            case ErrorClass.PLACE if error.capacity:
                cold = Cold(now + clock.cold * PLACE_COLD_TIMES, error.code)
            case ErrorClass.SUBNET if error.capacity:
                cold = Cold(now + clock.cold * SUBNET_COLD_TIMES, error.code)
                zone = error.capacity.zone
                pools = [CapacityPool(ANY_TYPE, zone, market) for market in Market]
            case ErrorClass.PLACE | ErrorClass.SUBNET:
                cold = Cold(now + clock.cold, error.code)
            case _:
                continue
        found |= dict.fromkeys(pools, cold)
    return found


def next_tier(order: Order, pool: Pool, *, other_market: bool = False) -> int | None:
    """Return the tier to ask next, None after the last one."""
    now = pool.tiers[min(order.tier, len(pool.tiers) - 1)].market
    for index in range(order.tier + 1, len(pool.tiers)):
        if not other_market or pool.tiers[index].market is not now:
            return index
    return None


def leaving(hosts: Sequence[Host]) -> list[Host]:
    """Return the Spot hosts on their way out; until they are gone they count for the quota."""
    return [
        host
        for host in hosts
        if host.capacity.market is Market.SPOT
        and host.state in {HostState.DRAINING, HostState.RETIRING}
    ]


def quota_frees_at(hosts: Sequence[Host], *, now: datetime, clock: NoticeClock) -> datetime:
    """Return when the first of those hosts should be gone, its Spot request closed with it."""
    due = [
        host.notice.reclaimed_at
        for host in leaving(hosts)
        if host.notice and host.notice.reclaimed_at
    ]
    first = min(due, default=now)
    return max(first, now) + max(clock.margin, timedelta(seconds=1))


def _said(before: FleetAnswer | None, kind: ErrorClass) -> bool:
    return before is not None and any(classify(error.code) is kind for error in before.errors)
