"""Count a pool: the index names the rows, strong reads say what they are."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.capacity import Census
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.order import OrderState
from reprieve.ports.orders import Listing, OrderStore
from reprieve.ports.rows import Rows, Snapshot, Wanted


@dataclass(frozen=True, slots=True)
class TakeCensus:
    """The use case. Only the sweep counts silence; elsewhere nobody is."""

    rows: Rows
    orders: OrderStore

    def __call__(self, pool: str) -> Census:
        """Return the pool's census now."""
        return census_of(self.rows.read(named_by(self.orders.listing(pool))))


def named_by(listing: Listing) -> Wanted:
    """Return the names of the rows that a census counts."""
    hosts = frozenset(listing.hosts)
    return Wanted(
        jobs=frozenset(listing.jobs),
        hosts=hosts,
        holds=hosts,
        orders=frozenset(listing.orders),
    )


def census_of(read: Snapshot) -> Census:
    """Return what strong reads counted; raise ``UnknownOutcomeError`` if some weren't made."""
    if read.unread:
        message = "the table didn't get to every row of the census"
        raise UnknownOutcomeError(message)
    return Census(
        jobs=[(job.id, job.status) for job in read.jobs.values()],
        hosts=list(read.hosts.values()),
        holds=read.holds,
        silent=frozenset(),
        orders=[order for order in read.orders.values() if order.state is OrderState.OPEN],
        needs={job.id: job.spec.needs for job in read.jobs.values()},
    )
