"""
The rows that decisions stand on: read together, and changed together or not at all.

A use case reads what it needs in one call, decides, and commits what follows in one
other. Each write says by itself over what it may be made, so that whatever happened in
between makes the whole commit fail: then read again and decide again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar

from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.hosting import Terms
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Host
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Holds, Lease, LeaseKey
from reprieve.domain.order import Order, Try

K = TypeVar("K")
T = TypeVar("T")
OrderKey = tuple[str, int]  # job, attempt to be hosted
TryKey = tuple[str, int, int]  # job, attempt, try
LAG = "lag_seconds"  # of an event: how long it took to be handled, which is no part of what it says
ColdKey = tuple[str, CapacityPool]  # pool, what was asked of EC2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Names of rows."""

    jobs: frozenset[str] = frozenset()
    leases: frozenset[LeaseKey] = frozenset()
    hosts: frozenset[str] = frozenset()
    holds: frozenset[str] = frozenset()
    orders: frozenset[OrderKey] = frozenset()
    tries: frozenset[TryKey] = frozenset()
    colds: frozenset[ColdKey] = frozenset()

    def __or__(self, other: Self) -> Self:
        """Return the names of both."""
        return type(self)(**{k: getattr(self, k) | getattr(other, k) for k in KINDS})

    def __sub__(self, other: Self) -> Self:
        """Return the names that *other* lacks."""
        return type(self)(**{k: getattr(self, k) - getattr(other, k) for k in KINDS})

    def __bool__(self) -> bool:
        """Whether any row is named."""
        return any(getattr(self, kind) for kind in KINDS)


KINDS = tuple(kind.name for kind in fields(Wanted))  # of rows; asked once, it is used by every read


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    Rows as strong reads found them, by name; what doesn't exist isn't in its mapping.

    *unread* are those that the table didn't get to, and those that make no sense: who asks
    for one by a method hears ``UnknownOutcomeError``, and everybody else goes on.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    leases: Mapping[LeaseKey, Lease] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    holds: Mapping[str, Holds] = field(default_factory=dict)
    orders: Mapping[OrderKey, Order] = field(default_factory=dict)
    tries: Mapping[TryKey, Try] = field(default_factory=dict)
    colds: Mapping[ColdKey, Cold] = field(default_factory=dict)
    read: Wanted = field(default_factory=Wanted)
    unread: Wanted = field(default_factory=Wanted)

    def __or__(self, later: Self) -> Self:
        """Return the rows of both; of a row read twice, the later reading counts."""
        changes: dict[str, Any] = {}
        for name in KINDS:
            again = getattr(later.read, name)
            kept = {k: row for k, row in getattr(self, name).items() if k not in again}
            changes[name] = kept | dict(getattr(later, name))
        return type(self)(
            **changes,
            read=(self.read - later.unread) | later.read,
            unread=(self.unread - later.read) | later.unread,
        )

    def job(self, job_id: str) -> Job | None:
        """Return the job."""
        return _row(self.jobs, self.unread.jobs, job_id)

    def lease(self, key: LeaseKey) -> Lease | None:
        """Return the lease of one attempt."""
        return _row(self.leases, self.unread.leases, key)

    def host(self, instance_id: str) -> Host | None:
        """Return the host, None for a stranger."""
        return _row(self.hosts, self.unread.hosts, instance_id)

    def held(self, instance_id: str) -> Holds | None:
        """Return what the host holds."""
        return _row(self.holds, self.unread.holds, instance_id)

    def order(self, job: str, attempt: int) -> Order | None:
        """Return the order for a host for one attempt."""
        return _row(self.orders, self.unread.orders, (job, attempt))

    def try_(self, job: str, attempt: int, n: int) -> Try | None:
        """Return one try of an order."""
        return _row(self.tries, self.unread.tries, (job, attempt, n))

    def cold(self, pool: str, capacity: CapacityPool) -> Cold | None:
        """Return what is remembered of a capacity pool."""
        return _row(self.colds, self.unread.colds, (pool, capacity))


def _row(found: Mapping[K, T], unread: frozenset[K], name: K) -> T | None:
    if name in unread:
        message = f"{name} couldn't be read"
        raise UnknownOutcomeError(message)
    return found.get(name)


@dataclass(frozen=True, slots=True)
class PutJob:
    """Store *job* as its next version over ``job.version``; *new*: over nothing."""

    job: Job
    new: bool = False


@dataclass(frozen=True, slots=True)
class PutLease:
    """Arm an attempt: store its FREE lease, over nothing."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class CloseLease:
    """Close *lease*, if it has the beat that was read and isn't CLOSED."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class DropHold:
    """Take a lease out of what a host holds."""

    instance_id: str
    key: LeaseKey


@dataclass(frozen=True, slots=True)
class PutHost:
    """Store *host* as its next version over ``host.version``; *new*: over nothing."""

    host: Host
    new: bool = False


@dataclass(frozen=True, slots=True)
class PutHolds:
    """Make the row of what a new host holds; one that is there keeps its leases and its beat."""

    instance_id: str
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class PutOrder:
    """Store *order* over the state and try that *was* says; None: over nothing."""

    order: Order
    was: Order | None


@dataclass(frozen=True, slots=True)
class PutTry:
    """Store one try of an order; *new*: over nothing, which keeps a stored plan as it is."""

    row: Try
    new: bool = False


@dataclass(frozen=True, slots=True)
class NoteAttempt:
    """Merge the fields that *attempt* knows into its row."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class AddEvents:
    """Append to a job's timeline; the same event said twice is stored once, whatever its lag."""

    job: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Chill:
    """Remember a capacity pool as cold; the last word counts."""

    pool: str
    capacity: CapacityPool
    cold: Cold


@dataclass(frozen=True, slots=True)
class Remember:
    """Add *history* to what a Spot capacity pool has shown so far."""

    pool: str
    capacity: CapacityPool
    history: History


@dataclass(frozen=True, slots=True)
class PutQuotes:
    """Keep today's Spot prices where a listing finds them; the last word counts."""

    pool: str
    quotes: Quotes


@dataclass(frozen=True, slots=True)
class Alive:
    """Require that the job isn't over, and that *attempt* is its current one or its next."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """
    Require of a row that it is as it was read.

    A job and a host by their version, a lease by its beat, an order by its state and try,
    and what a host holds by its leases, since its beat moves by itself.
    """

    row: Job | Host | Lease | Order | Holds


Write = (
    PutJob
    | PutLease
    | CloseLease
    | DropHold
    | PutHost
    | PutHolds
    | PutOrder
    | PutTry
    | NoteAttempt
    | AddEvents
    | Chill
    | Remember
    | PutQuotes
    | Alive
    | Unchanged
)


class Rows(Protocol):
    """The table."""

    def read(self, wanted: Wanted) -> Snapshot:
        """
        Read rows strongly, a hundred in a call.

        Each is true at its own moment: what must have held together is proved by the commit.
        """

    def commit(self, writes: Sequence[Write]) -> None:
        """
        Make all of *writes* or none, in one call; no row may be named twice.

        ``StaleError``: a row isn't as its write requires. ``UnknownOutcomeError``: in
        conflict, or nobody said. Of several broken conditions the first is told.
        """
