"""Pools, their balance of demand and supply, and the fleet request that a try sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Holds
from reprieve.domain.order import Order, Override, Plan

# An instant fleet is bounded by its payload; Karpenter trims to 60 types for that reason.
MAX_OVERRIDES = 60
MAX_BACKOFF_STEPS = 5


@dataclass(frozen=True, slots=True)
class Pool:
    """
    One pool as configured: which capacity it may use, in which order, and its caps.

    ``tiers`` are tried in order. ``max_usd_per_hour`` is a filter of ours over the sum of
    the pool's hosts; it never becomes EC2's MaxPrice, which would raise interruptions.
    """

    name: str
    types: tuple[str, ...]
    tiers: tuple[Market, ...]
    launch_template: str
    launch_template_version: str
    work_queue_url: str
    max_hosts: int = 2
    max_usd_per_hour: float = 5.0
    on_demand_base: int = 0
    buffer: int = 0


@dataclass(frozen=True, slots=True)
class Census:
    """A pool's demand and supply, from strong reads of the rows that the index named."""

    jobs: Sequence[tuple[str, JobStatus]]
    hosts: Sequence[Host]
    holds: Mapping[str, Holds]
    silent: frozenset[str]
    orders: Sequence[Order]

    def booting(self, *, now: datetime, clock: NoticeClock) -> list[Host]:
        """Return hosts whose agent hasn't been heard yet, while that is still normal."""
        return [
            host
            for host in self.hosts
            if host.state is HostState.READY
            and self._beat(host) == 0
            and now - host.launched_at < clock.boot
        ]

    def idle(self, *, now: datetime, clock: NoticeClock) -> list[Host]:
        """Return hosts that are ready for work: alive, holding nothing, not advised to go."""
        return [
            host
            for host in self.hosts
            if host.state is HostState.READY
            and not (host.notice and now - host.notice.noticed_at < clock.advice)
            and self._beat(host) > 0
            and not self._leases(host)
            and host.instance_id not in self.silent
        ]

    def deficit(self, *, now: datetime, clock: NoticeClock, without: Order | None = None) -> int:
        """
        Return how many hosts are missing: waiting jobs less supply, *without* one order.

        A landed order isn't service, since any host may take any ticket; so only the
        balance of the pool says whether a launch is needed.
        """
        demand = sum(
            1 for _, status in self.jobs if status in {JobStatus.QUEUED, JobStatus.DRAINING}
        )
        own = (without.job, without.attempt) if without else None
        coming = sum(1 for order in self.orders if (order.job, order.attempt) != own)
        idle, booting = self.idle(now=now, clock=clock), self.booting(now=now, clock=clock)
        return demand - len(idle) - len(booting) - coming

    def counted(self) -> list[Host]:
        """Return the hosts that count against the caps: not those already on their way out."""
        return [host for host in self.hosts if host.state is HostState.READY]

    def _beat(self, host: Host) -> int:
        holds = self.holds.get(host.instance_id)
        return holds.beat if holds else 0

    def _leases(self, host: Host) -> bool:
        holds = self.holds.get(host.instance_id)
        return bool(holds and holds.leases)


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why a tier has nothing to ask for."""

    reason: str
    final: bool = False  # no other tier can help: a cap of the pool


def plan_try(
    order: Order,
    pool: Pool,
    *,
    stack: str,
    subnets: Mapping[str, str],
    cold: Mapping[CapacityPool, str],
    prices: Mapping[tuple[str, str], float],
    hosts: Sequence[Host],
) -> Plan | NoPlan:
    """
    Return the request for *order*'s current tier, or why there is none.

    *subnets* maps zone to subnet, one per zone. *prices* are $/h by (type, zone) in the
    tier's market; what isn't known is not filtered. *hosts* count against the caps.
    """
    if len(hosts) >= pool.max_hosts:
        return NoPlan(f"pool {pool.name} is at its cap of {pool.max_hosts} hosts", final=True)
    market = tier_market(order.tier, pool, hosts)
    room = pool.max_usd_per_hour - sum(host.usd_per_hour or 0.0 for host in hosts)
    wanted = [CapacityPool(kind, zone, market) for kind in pool.types for zone in subnets]
    warm = [capacity for capacity in wanted if capacity not in cold]
    if not warm:
        return NoPlan(f"all {len(wanted)} {market} capacity pools are cold")
    payable = [
        capacity for capacity in warm if prices.get((capacity.type, capacity.zone), 0.0) <= room
    ]
    if not payable:
        cheapest = min(prices[capacity.type, capacity.zone] for capacity in warm)
        return NoPlan(
            f"{market} costs ${cheapest:.3f}/h or more, the pool's cap leaves ${room:.3f}/h"
        )
    return Plan(
        stack=stack,
        job=order.job,
        attempt=order.attempt,
        try_n=order.try_n,
        pool=pool.name,
        market=market,
        strategy="price-capacity-optimized" if market is Market.SPOT else "lowest-price",
        launch_template=pool.launch_template,
        launch_template_version=pool.launch_template_version,
        overrides=tuple(
            Override(capacity, subnets[capacity.zone]) for capacity in payable[:MAX_OVERRIDES]
        ),
    )


def tier_market(tier: int, pool: Pool, hosts: Sequence[Host]) -> Market:
    """Return the market of a tier; the on-demand base comes before every tier."""
    on_demand = sum(1 for host in hosts if host.capacity.market is Market.ON_DEMAND)
    if on_demand < pool.on_demand_base:
        return Market.ON_DEMAND
    return pool.tiers[min(tier, len(pool.tiers) - 1)]


def backoff(failures: int, clock: NoticeClock) -> timedelta:
    """Return how long an order waits after all tiers said no: cold time, doubling, bounded."""
    doublings: int = min(max(failures - 1, 0), MAX_BACKOFF_STEPS)
    return clock.cold * float(2**doublings)
