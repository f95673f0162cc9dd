"""Where the jobs behind a pool's orders want their hosts from, as their money and time say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reprieve.domain.capacity import Tier
from reprieve.domain.economics.deadline import Move
from reprieve.domain.host import Market
from reprieve.domain.job import Job
from reprieve.domain.order import Order
from reprieve.domain.steering import Steer, before_asking, without_spot
from reprieve.ports.rows import AddEvents, OrderKey, Write
from reprieve.usecases.known_pool import Known


@dataclass(frozen=True, slots=True)
class Steering:
    """The step; what it decided is told together with the plan that follows."""

    known: Known
    _steers: dict[OrderKey, Steer] = field(default_factory=dict)

    def first(self, orders: Iterable[Order]) -> list[Order]:
        """Return *orders*, each at the tier that its job is better served from."""
        return [self._at_its_tier(order) for order in orders]

    def waits(self, order: Order, tier: int) -> Steer | None:
        """Return why *order* waits for Spot instead of going on to *tier*, if it does."""
        job, means = self.known.jobs.get(order.job), self.known.means
        if job is None or tier != self._paid:
            return None
        steer = without_spot(job, self.known.pool, now=means.now(), clock=means.clock)
        if steer is None or steer.move is Move.WAIT:
            return steer
        self._steers[order.key] = steer
        return None

    def switches(self, order: Order) -> bool:
        """Whether it shall bring a Spot host beside an on-demand one: Spot or nothing."""
        job = self.known.jobs.get(order.job)
        return order.switch and job is not None and order.attempt == job.attempt + 1

    def told(self, order: Order) -> tuple[Write, ...]:
        """Return the timeline's line about what steers *order*."""
        steer = self._steers.get(order.key)
        if steer is None:
            return ()
        return (AddEvents(order.job, (steer.event(self.known.means.now(), order.attempt),)),)

    def _at_its_tier(self, order: Order) -> Order:
        """
        Send an order past Spot, if that is what its job needs.

        Where on-demand had nothing the last time, Spot comes first again.
        """
        job, paid, means = self.known.jobs.get(order.job), self._paid, self.known.means
        if job is None or paid is None or order.tier >= paid:
            return order
        if order.failures % 2 or self.switches(order):
            return order
        steer = before_asking(
            job, self.known.pool, self._spot_usd(job), now=means.now(), clock=means.clock
        )
        if steer is None:
            return order
        self._steers[order.key] = steer
        return replace(order, tier=paid)

    @property
    def _paid(self) -> int | None:
        tiers = self.known.pool.tiers
        return tiers.index(Tier.ON_DEMAND) if Tier.ON_DEMAND in tiers else None

    def _spot_usd(self, job: Job) -> Mapping[tuple[str, str], float]:
        """Return Spot's prices, for a job that has lost enough to compare them."""
        return self.known.prices(Market.SPOT) if job.steps_lost > job.forgiven else {}
