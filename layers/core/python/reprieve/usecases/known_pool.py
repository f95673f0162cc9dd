"""What a run over one pool's orders works with, and what it knows; its steps share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

from reprieve.domain.capacity import Cold, Pool, Quotes, Tier, counted
from reprieve.domain.catalogue import wider
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import ReprieveError, StaleError, UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.job import Job
from reprieve.domain.lease import Holds, Lease
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Order, OrderState
from reprieve.domain.planning import View
from reprieve.ports.cloud import Fleet
from reprieve.ports.orders import Listing, OrderStore
from reprieve.ports.rows import OrderKey, PutOrder, PutQuotes, Rows, Snapshot, Unchanged
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle

MOST_PROOFS = 90  # of a transaction's 100 actions
REREADS = 3  # of one order whose rows keep changing
QUOTES_TRUSTED = timedelta(hours=1)  # EC2 moves Spot prices slowly


@dataclass(frozen=True, slots=True)
class Filled:
    """
    What became of an order in this run.

    *at_cap*: the pool's own limit on hosts stood in the way. *failure* is set when the
    message must come back.
    """

    order: Order | None
    reason: str
    launched: tuple[Launched, ...] = ()
    refused: tuple[FleetError, ...] = ()
    at_cap: bool = False
    failure: ReprieveError | None = None


@dataclass(frozen=True, slots=True)
class Means:
    """What filling works with."""

    stack: str
    subnets: Mapping[str, str]
    rows: Rows
    orders: OrderStore
    fleet: Fleet
    settle: Settle
    retire: Retire
    clock: NoticeClock
    now: Callable[[], datetime]


@dataclass(slots=True)
class Known:
    """One pool as this run has come to know it: listed first, read where that mattered."""

    means: Means
    pool: Pool
    listing: Listing
    jobs: dict[str, Job]
    hosts: dict[str, Host]
    cold: dict[CapacityPool, Cold]
    leases: dict[OrderKey, Lease] = field(default_factory=dict)
    done: dict[OrderKey, Filled] = field(default_factory=dict)
    refused: dict[OrderKey, tuple[FleetError, ...]] = field(default_factory=dict)
    _usd: dict[Market, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    _rereads: Counter[OrderKey] = field(default_factory=Counter)

    @classmethod
    def of(cls, means: Means, pool: Pool, listing: Listing) -> Self:
        """Begin with what the index shows."""
        return cls(
            means, pool, listing, dict(listing.jobs), dict(listing.hosts), dict(listing.cold)
        )

    def learn(self, read: Snapshot) -> None:
        """Take what strong reads said over what was listed."""
        self.jobs |= read.jobs
        for instance_id, host in read.hosts.items():
            self.hosts[instance_id] = host
            if host.state is HostState.GONE:
                del self.hosts[instance_id]

    def view(self, index: int) -> View:
        """Return what a plan of tier *index* is made of."""
        market = self.pool.tier(index, counted(self.hosts.values())).market
        return View(
            subnets=self.means.subnets,
            hosts=list(self.hosts.values()),
            cold=self.cold,
            usd={market: self.prices(market)},
            history=self.listing.history,
        )

    def prices(self, market: Market) -> Mapping[tuple[str, str], float]:
        """Return today's prices: those kept with the pool, or EC2's if they are old."""
        if market not in self._usd:
            self._usd[market] = self._spot() if market is Market.SPOT else self._asked(market)
        return self._usd[market]

    def _spot(self) -> Mapping[tuple[str, str], float]:
        kept, now = self.listing.quotes, self.means.now()
        if kept and now - kept.at < QUOTES_TRUSTED:
            return kept.prices()
        asked = self._asked(Market.SPOT)
        if asked:
            with suppress(StaleError, UnknownOutcomeError):
                quotes = PutQuotes(self.pool.name, Quotes.of(asked, at=now))
                self.means.rows.commit([quotes])
        return asked

    def _asked(self, market: Market) -> Mapping[tuple[str, str], float]:
        return self.means.fleet.usd_per_hour(priced(self.pool, market), market)

    def again(self, order: Order) -> None:
        """Count that *order*'s rows changed; raise ``StaleError`` if they don't stop to."""
        self._rereads[order.key] += 1
        if self._rereads[order.key] > REREADS:
            message = f"order {order.member} keeps changing"
            raise StaleError(message)

    def close(self, order: Order, reason: str, *, while_: Sequence[Holds | Order] = ()) -> None:
        """
        End *order* without a launch; one that is closed already keeps what it says.

        *while_*: what makes a launch unnecessary must still stand, since rows that were
        read together need not have been true together.
        """
        if order.state is OrderState.OPEN:
            over = closed(order, reason, now=self.means.now())
            proofs = [Unchanged(row) for row in while_[:MOST_PROOFS]]
            self.means.rows.commit([PutOrder(over, was=order), *proofs])
            order = over
        self.done[order.key] = Filled(order, reason, refused=self.refused.get(order.key, ()))


def priced(pool: Pool, market: Market) -> list[str]:
    """Return the types whose price a plan may want."""
    if market is Market.SPOT and Tier.SPOT_WIDER in pool.tiers:
        return [*pool.types, *wider(pool.types)]
    return list(pool.types)


def closed(order: Order, reason: str, *, now: datetime) -> Order:
    """Return *order* as one that takes no launch."""
    return replace(order, state=OrderState.NOT_NEEDED, outcome=reason, updated_at=now)


def landed(order: Order, answer: FleetAnswer, *, now: datetime) -> Order:
    """Return *order* as one that got its host."""
    return replace(
        order,
        state=OrderState.LANDED,
        outcome=f"landed: {answer.text()}",
        waited_for_quota=False,
        updated_at=now,
    )
