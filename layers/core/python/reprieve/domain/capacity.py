"""Pools: which capacity they may use and in which order, and whether they are short of hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from reprieve.domain.catalogue import holds
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.switches import Policy
from reprieve.domain.host import Host, HostState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Holds
from reprieve.domain.needs import NOTHING, Needs
from reprieve.domain.order import Order

WAITING = frozenset({JobStatus.QUEUED, JobStatus.DRAINING})
ON_A_HOST = frozenset({JobStatus.STARTING, JobStatus.RUNNING})


class Tier(StrEnum):
    """What is asked for, from the cheapest way to the surest; after the last one a job waits."""

    SPOT = "spot"  # the pool's types, not where capacity is being taken back
    SPOT_WIDER = "spot-wider"  # also larger types, and zones where it is
    RESERVED = "reserved"  # the capacity reservations that the pool names
    ON_DEMAND = "on-demand"

    @property
    def market(self) -> Market:
        """How its hosts are paid for."""
        match self:
            case Tier.SPOT | Tier.SPOT_WIDER:
                return Market.SPOT
            case Tier.RESERVED:
                return Market.RESERVED
            case Tier.ON_DEMAND:
                return Market.ON_DEMAND
            case _:
                assert_never(self)


class Strategy(StrEnum):
    """How EC2 chooses among Spot capacity pools."""

    PRICE_CAPACITY = "price-capacity-optimized"
    CAPACITY = "capacity-optimized"  # for what is costly to restart: gangs, long restores


@dataclass(frozen=True, slots=True)
class Pool:
    """
    One pool as configured: which capacity it may use, in which order, and its caps.

    ``tiers`` are tried in order. ``max_usd_per_hour`` is a filter of ours over the sum of
    the pool's hosts; it never becomes EC2's MaxPrice, which would raise interruptions.
    ``reservations`` are the capacity reservations (or one resource group of them) that the
    tier reserved uses, ``reservation_types`` what kinds they are. ``spares_per_hour`` is
    the churn budget: so many hosts may be launched on advice alone; 0 launches none.
    ``off`` are the policies that this pool does without.
    """

    name: str
    types: tuple[str, ...]
    tiers: tuple[Tier, ...]
    launch_template: str
    launch_template_version: str
    work_queue_url: str
    max_hosts: int = 2
    max_usd_per_hour: float = 5.0
    on_demand_base: int = 0
    buffer: int = 0
    strategy: Strategy = Strategy.PRICE_CAPACITY
    reservations: tuple[str, ...] = ()
    reservation_types: tuple[str, ...] = ()
    spares_per_hour: int = 0
    off: tuple[Policy, ...] = ()

    def follows(self, policy: Policy) -> bool:
        """Whether *policy* is on here."""
        return policy not in self.off

    def tier(self, index: int, hosts: Iterable[Host]) -> Tier:
        """Return the tier to ask at *index*; the on-demand base comes before every tier."""
        sure = sum(1 for host in hosts if host.capacity.market is not Market.SPOT)
        if sure < self.on_demand_base:
            return Tier.ON_DEMAND
        return self.tiers[min(index, len(self.tiers) - 1)]


@dataclass(frozen=True, slots=True)
class Cold:
    """Why a capacity pool isn't asked, and until when."""

    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Quotes:
    """What Spot costs, $/h by ``type#zone``, and when EC2 said so."""

    at: datetime
    usd: dict[str, float]

    @classmethod
    def of(cls, prices: Mapping[tuple[str, str], float], *, at: datetime) -> Quotes:
        """Return *prices* as they are kept."""
        return cls(at, {f"{kind}#{zone}": usd for (kind, zone), usd in prices.items()})

    def prices(self) -> dict[tuple[str, str], float]:
        """Return them by (type, zone)."""
        found: dict[tuple[str, str], float] = {}
        for place, usd in self.usd.items():
            kind, _, zone = place.partition("#")
            found[kind, zone] = usd
        return found


@dataclass(frozen=True, slots=True)
class Demand:
    """A job that has or wants a host of the pool."""

    job: str
    needs: Needs = NOTHING


@dataclass(frozen=True, slots=True)
class Supply:
    """A host that is there (its *type*), or one that an order will bring for its own *job*."""

    type: str = ""
    job: str = ""
    needs: Needs = NOTHING

    def serves(self, demand: Demand) -> bool:
        """Whether the job could run there."""
        if self.type:
            return holds(self.type, demand.needs)
        return self.job == demand.job or not demand.needs or demand.needs == self.needs


@dataclass(frozen=True, slots=True)
class Census:
    """A pool's demand and supply, from strong reads of the rows that the index named."""

    jobs: Sequence[tuple[str, JobStatus]]
    hosts: Sequence[Host]
    holds: Mapping[str, Holds]
    silent: frozenset[str]
    orders: Sequence[Order]
    needs: Mapping[str, Needs] = field(default_factory=dict)

    def booting(self, *, now: datetime, clock: NoticeClock) -> list[Host]:
        """Return hosts whose agent hasn't been heard yet, while that is still normal."""
        return [
            host
            for host in self.hosts
            if host.state is HostState.READY
            and self._beat(host) == 0
            and not self._leases(host)
            and now - host.launched_at < clock.boot
        ]

    def idle(self, *, now: datetime, clock: NoticeClock) -> list[Host]:
        """Return hosts that are ready for work: alive, holding nothing, not advised to go."""
        return [
            host
            for host in self.hosts
            if host.eligible(now=now, clock=clock)
            and self._beat(host) > 0
            and not self._leases(host)
            and host.instance_id not in self.silent
        ]

    def deficit(self, *, now: datetime, clock: NoticeClock, without: Order | None = None) -> int:
        """
        Return how many hosts are missing: waiting jobs less supply, *without* one order.

        A landed order isn't service, since any host may take any ticket; so only the
        balance of the pool says whether a launch is needed. Negative: so many are over.
        """
        demand = self.demand()
        supply = self.supply(now=now, clock=clock, without=(without,) if without else ())
        unserved = len(demand) - served(demand, supply)
        return unserved or len(demand) - len(supply)

    def demand(self) -> list[Demand]:
        """Return the jobs that wait for a host, or will have lost theirs in a moment."""
        return [
            Demand(job, self.needs.get(job, NOTHING))
            for job, status in self.jobs
            if status in WAITING
        ]

    def supply(
        self, *, now: datetime, clock: NoticeClock, without: Iterable[Order] = ()
    ) -> list[Supply]:
        """Return what can take them: idle and booting hosts, and those that orders bring."""
        own = {order.key for order in without}
        there = [*self.idle(now=now, clock=clock), *self.booting(now=now, clock=clock)]
        coming = [order for order in self.orders if order.key not in own]
        return [Supply(type=host.capacity.type) for host in there] + [
            Supply(job=order.job, needs=order.needs) for order in coming
        ]

    def counted(self) -> list[Host]:
        """Return the hosts that count against the caps: not those already on their way out."""
        return counted(self.hosts)

    def free(self, *, now: datetime, clock: NoticeClock) -> list[Holds]:
        """Return the rows that say of the hosts counted as supply that they hold nothing."""
        there = [*self.idle(now=now, clock=clock), *self.booting(now=now, clock=clock)]
        return [self.holds[h.instance_id] for h in there if h.instance_id in self.holds]

    def _beat(self, host: Host) -> int:
        holds = self.holds.get(host.instance_id)
        return holds.beat if holds else 0

    def _leases(self, host: Host) -> bool:
        holds = self.holds.get(host.instance_id)
        return bool(holds and holds.leases)


def counted(hosts: Iterable[Host]) -> list[Host]:
    """Return the hosts that count against the caps: not those already on their way out."""
    return [host for host in hosts if host.state is HostState.READY]


def served(demand: Sequence[Demand], supply: Sequence[Supply]) -> int:
    """Return how many of *demand* can have a host of *supply* at once."""
    return len(demand) - len(unserved(demand, supply))


def unserved(demand: Sequence[Demand], supply: Sequence[Supply]) -> list[Demand]:
    """
    Return those of *demand* for whom *supply* has nothing left, as few as possible.

    Who stands further ahead is served first, but nobody who could be served otherwise
    keeps a later one from it: a maximal matching by augmenting paths.
    """
    if not any(wish.needs for wish in demand):
        return list(demand[len(supply) :])
    holder: dict[int, int] = {}  # supply -> demand

    def find(wish: int, tried: set[int]) -> bool:
        for place, offered in enumerate(supply):
            if place in tried or not offered.serves(demand[wish]):
                continue
            tried.add(place)
            if place not in holder or find(holder[place], tried):
                holder[place] = wish
                return True
        return False

    return [demand[wish] for wish in range(len(demand)) if not find(wish, set())]


def to_launch(
    mine: Sequence[Order],
    others: Sequence[Demand],
    supply: Sequence[Supply],
    *,
    buffer: int = 0,
) -> list[Order]:
    """
    Return those of *mine* that take a launch, who stands to lose most coming first.

    *others* are the demand of everybody else, who are served first by what there is.
    With a *buffer* so many hosts more than the demand shall stand ready.
    """
    ranked = sorted(mine, key=lambda order: (-order.at_risk, order.created_at, order.key))
    demand = [*others, *(Demand(order.job, order.needs) for order in ranked)]
    left = Counter(wish.job for wish in unserved(demand, supply))
    missing = [order for order in ranked if left[order.job]]
    short = len(demand) - len(supply) + buffer
    covered = [order for order in ranked if order not in missing]
    return missing + covered[: max(short - len(missing), 0)] if buffer else missing
