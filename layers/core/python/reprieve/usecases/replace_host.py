"""
Fill orders: are hosts needed at all, what to ask for, and what to make of the answers.

One order costs four calls: a listing of its pool, the commit of a plan, the fleet, the
commit of what came. The listing may be a moment old and only proposes; both commits carry
the conditions that make them true. When one of them doesn't hold, the rows are read
strongly and the order is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve.domain.capacity import Pool
from reprieve.domain.errors import ReprieveError
from reprieve.domain.order import Order, OrderState
from reprieve.ports.orders import Listing
from reprieve.ports.rows import OrderKey, PutOrder, Wanted
from reprieve.protocol import OrderMessage
from reprieve.usecases.filling import Filling
from reprieve.usecases.known_pool import Filled, Means, closed


@dataclass(slots=True)
class Opened:
    """The orders of a batch by pool, each pool as listed, and what is done already."""

    orders: dict[str, list[Order]] = field(default_factory=dict)
    listings: dict[str, Listing] = field(default_factory=dict)
    done: dict[OrderKey, Filled] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplaceHost:
    """The use case; safe to repeat at any point."""

    means: Means
    pools: Mapping[str, Pool]

    def __call__(self, job: str, attempt: int, pool: str = "") -> Filled:
        """
        Fill one order or say why not.

        Raises ``UnknownOutcomeError`` when EC2 didn't answer or throttled: the message
        comes back and the stored plan is sent again word for word.
        """
        (filled,) = self.fill([OrderMessage(job, attempt, "", pool)])
        if filled.failure:
            raise filled.failure
        return filled

    def fill(self, messages: Sequence[OrderMessage]) -> list[Filled]:
        """
        Fill a batch: like orders of a pool share one plan, and each has its own result.

        One that fails comes back alone, by its ``failure``.
        """
        opened = Opened()
        self._open(messages, opened)
        for name, orders in opened.orders.items():
            filling = Filling(self.means, self.pools[name], opened.listings[name])
            opened.done |= filling.run(orders)
        return [opened.done[message.job, message.attempt] for message in messages]

    def _open(self, messages: Sequence[OrderMessage], opened: Opened) -> None:
        """Find the open orders in the listings of their pools; what isn't there is read."""
        unknown: list[OrderKey] = []
        for message in messages:
            key = (message.job, message.attempt)
            listing = self._listing(message.pool or self._only_pool(), opened)
            order = listing.orders.get(key) if listing else None
            if order and order.state is OrderState.OPEN:
                self._take(order, opened)
            else:
                unknown.append(key)
        if not unknown:
            return
        read = self.means.rows.read(Wanted(orders=frozenset(unknown)))
        for key in dict.fromkeys(unknown):
            try:
                self._read(key, read.order(*key), opened)
            except ReprieveError as error:
                opened.done[key] = Filled(None, str(error), failure=error)

    def _only_pool(self) -> str:
        return next(iter(self.pools)) if len(self.pools) == 1 else ""

    def _listing(self, pool: str, opened: Opened) -> Listing | None:
        if pool not in self.pools:
            return None
        if pool not in opened.listings:
            opened.listings[pool] = self.means.orders.listing(pool)
        return opened.listings[pool]

    def _read(self, key: OrderKey, order: Order | None, opened: Opened) -> None:
        if order is None:
            opened.done[key] = Filled(None, "no such order")
        elif order.pool not in self.pools:
            opened.done[key] = self._unconfigured(order)
        elif order.state is OrderState.UNFILLED:
            opened.done[key] = Filled(order, f"order is {order.state}")
        else:
            self._listing(order.pool, opened)
            self._take(order, opened)

    def _take(self, order: Order, opened: Opened) -> None:
        standing = opened.orders.setdefault(order.pool, [])
        if order.key not in {known.key for known in standing}:
            standing.append(order)

    def _unconfigured(self, order: Order) -> Filled:
        reason = f"pool {order.pool} isn't configured any more"
        if order.state is not OrderState.OPEN:
            return Filled(order, reason)
        over = closed(order, reason, now=self.means.now())
        self.means.rows.commit([PutOrder(over, was=order)])
        return Filled(over, reason)
