"""When Spot is cheaper, what an interruption wastes, and which hours AWS gives back."""

from __future__ import annotations

import math
from datetime import timedelta

from reprieve.domain.errors import MalformedError

HOUR_SECONDS = 3600.0
FIRST_HOUR = timedelta(hours=1)


def discount(*, spot_usd_per_hour: float, on_demand_usd_per_hour: float) -> float:
    """Return d = 1 - P_s/P_od, a fraction of 1."""
    return 1 - spot_usd_per_hour / _positive(on_demand_usd_per_hour)


def price_multiple(discount: float) -> float:
    """Return P_od/P_s = 1/(1-d): how many Spot hours one on-demand hour pays for."""
    if discount >= 1:
        raise MalformedError(f"a discount of {discount:.0%} leaves no price")
    return 1 / (1 - discount)


def break_even(discount: float) -> float:
    """Return x* = 1/(1-d) - 1: Spot is cheaper while redone work/useful work stays below it."""
    return price_multiple(discount) - 1


def past_break_even(*, redone_seconds: float, useful_seconds: float, discount: float) -> bool:
    """
    Tell whether a job has redone so much that on-demand would have been cheaper.

    A job that redoes without getting anywhere is past it at any discount.
    """
    return redone_seconds > break_even(discount) * useful_seconds


def usd_per_useful_hour(usd_per_hour: float, overhead: float) -> float:
    """Return P(1+ω): what an hour of work that counts costs."""
    return usd_per_hour * (1 + overhead)


def spot_pays(
    *,
    spot_usd_per_hour: float,
    spot_overhead: float,
    on_demand_usd_per_hour: float,
    on_demand_overhead: float = 0.0,
) -> bool:
    """
    Tell whether P_s(1+ω_s) < P_od(1+ω_od); a pool where it doesn't hold is dropped.

    Not academic: in some zones p5 Spot is listed at the on-demand price.
    """
    spot = usd_per_useful_hour(spot_usd_per_hour, spot_overhead)
    return spot < usd_per_useful_hour(on_demand_usd_per_hour, on_demand_overhead)


def free_share(hazard_per_hour: float) -> float:
    """
    Return f = 1 - e^-λ (1+λ): the share of running hours that the first-hour credit pays.

    A Linux Spot instance that EC2 interrupts within its first hour isn't charged
    (AWS, "Billing for interrupted Spot Instances"). Exponential lives of mean 1/λ.
    """
    return 1 - math.exp(-hazard_per_hour) * (1 + hazard_per_hour)


def waits_for_reclaim(*, launched_ago_at_reclaim: timedelta) -> bool:
    """
    Tell whether a host that is done with its final checkpoint should idle until EC2 takes it.

    Within the first hour the reclaim makes all of it free, while terminating by ourselves
    makes it billed; afterwards each idle second costs.
    """
    return launched_ago_at_reclaim < FIRST_HOUR


def charged_seconds(*, lived: timedelta, reclaimed: bool) -> float:
    """
    Return the seconds that AWS bills for an instance: per second, 60 at least.

    *reclaimed* says that EC2 ended it, not we.
    """
    if reclaimed and lived < FIRST_HOUR:
        return 0.0
    return max(lived.total_seconds(), 60.0)


def buffer_to_survive_one_of(pools: int) -> float:
    """Return b = 1/(k-1): the idle share that covers the loss of one of *pools* equal pools."""
    if pools <= 1:
        return math.inf
    return 1 / (pools - 1)


def pools_for_buffer(buffer: float) -> int:
    """Return the fewest equal pools for which idle share *buffer* covers the loss of one."""
    return math.ceil(1 / _positive(buffer) - 1e-9) + 1


def idle_avoided(*, hazard_per_hour: float, dead_seconds: float) -> float:
    """Return λK: the most a warm spare can win for checkpointed work, as a share of its time."""
    return hazard_per_hour / HOUR_SECONDS * dead_seconds


def _positive(value: float) -> float:
    if not value > 0:
        raise MalformedError(f"{value} must be greater than 0")
    return value
