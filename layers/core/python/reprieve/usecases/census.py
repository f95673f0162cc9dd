"""Count a pool: the index names the rows, strong reads say what they are."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.capacity import Census
from reprieve.domain.order import Order, OrderState
from reprieve.ports.hosts import HostStore
from reprieve.ports.jobs import JobStore, Live
from reprieve.ports.orders import OrderStore


@dataclass(frozen=True, slots=True)
class TakeCensus:
    """The use case. Only the sweep counts silence; elsewhere *silent* is empty."""

    jobs: JobStore
    hosts: HostStore
    orders: OrderStore

    def __call__(self, pool: str) -> Census:
        """Return the pool's census now."""
        return self.of(self.jobs.live(pool))

    def of(self, live: Live, *, silent: frozenset[str] = frozenset()) -> Census:
        """Return the census of what *live* names."""
        ids = [instance_id for instance_id, _ in live.hosts]
        orders: list[Order] = []
        for job, attempt in live.orders:
            order = self.orders.read(job, attempt)
            if order and order.state is OrderState.OPEN:
                orders.append(order)
        return Census(
            jobs=live.jobs,
            hosts=list(self.hosts.read(ids).values()),
            holds=self.hosts.holds(ids),
            silent=silent,
            orders=orders,
        )
