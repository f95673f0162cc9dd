"""Instances with our tag and without a row: adopted, told to go, or left to their owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from reprieve.domain.capacity import Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import CapacityPool, Host, HostState, Instance, InstanceState
from reprieve.ports.cloud import Fleet
from reprieve.ports.hosts import HostStore
from reprieve.usecases.census import TakeCensus
from reprieve.usecases.retire import Retire

POOL_TAG, ORDER_TAG = "reprieve:pool", "reprieve:order"
ADOPTED = "adopted by the sweep"


@dataclass(slots=True)
class Strays:
    """
    What was found: by pool those adopted, by id why others go, and who is nobody's.

    *lost* are those of them that we launched ourselves, and lost sight of.
    """

    adopted: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    retired: dict[str, str] = field(default_factory=dict)
    unclaimed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Room:
    """How many hosts a pool still lacks, and how many more its cap allows."""

    missing: int
    below_cap: int

    def take(self) -> None:
        """Count one more host."""
        self.missing -= 1
        self.below_cap -= 1


@dataclass(frozen=True, slots=True)
class AdoptStrays:
    """
    The use case. It asks EC2 once for every instance of the stack.

    What we launched ourselves carries its order's tag: its row may still be on its way, so
    it is left alone for a while; then the answer of its launch was lost, and it is adopted
    if the pool needs it and terminated if not. What others launched with our tags, a person
    or an Auto Scaling group, is adopted at once while the pool has room, and never
    terminated for having none.
    """

    pools: Mapping[str, Pool]
    hosts: HostStore
    fleet: Fleet
    census: TakeCensus
    retire: Retire
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self) -> Strays:
        """Give every instance of ours a row; raise ``UnknownOutcomeError`` if EC2 can't say."""
        alive = [i for i in self.fleet.ours() if i.state is InstanceState.ALIVE]
        known = self.hosts.read(i.instance_id for i in alive)
        strays = Strays()
        rooms: dict[str, Room] = {}
        for instance in alive:
            if instance.instance_id not in known:
                self._claim(instance, rooms, strays)
        # Nobody sweeps a pool that was taken out of the configuration.
        orphans = {
            host.instance_id: f"pool {host.pool} isn't configured any more"
            for host in known.values()
            if host.pool not in self.pools
        }
        strays.retired |= orphans
        told = self.retire.all(strays.retired) if strays.retired else frozenset()
        strays.retired = {i: why for i, why in strays.retired.items() if i in told}
        return strays

    def _claim(self, instance: Instance, rooms: dict[str, Room], strays: Strays) -> None:
        pool = self.pools.get(instance.tags.get(POOL_TAG, ""))
        ours = ORDER_TAG in instance.tags
        if ours and self.now() - instance.launched_at <= self.clock.cold:
            return
        if pool is None and not ours:
            strays.unclaimed.append(instance.instance_id)
            return
        room = rooms.setdefault(pool.name, self._room(pool)) if pool else Room(0, 0)
        wanted = room.missing > 0 if ours else room.below_cap > 0
        if not wanted and not ours:
            strays.unclaimed.append(instance.instance_id)
            return
        if ours:
            strays.lost.append(instance.instance_id)
        self.hosts.adopt(self._host(instance, wanted=wanted))
        if wanted and pool:
            room.take()
            strays.adopted[pool.name].append(instance.instance_id)
        else:
            strays.retired[instance.instance_id] = "a stray nobody needs"

    def _room(self, pool: Pool) -> Room:
        """
        Count hosts only: the order that a stray was launched for stands open like any other.

        If it is delivered again, EC2 answers its token with the instance that was adopted.
        """
        census = replace(self.census(pool.name), orders=())
        return Room(
            missing=census.deficit(now=self.now(), clock=self.clock) + pool.buffer,
            below_cap=pool.max_hosts - len(census.counted()),
        )

    def _host(self, instance: Instance, *, wanted: bool) -> Host:
        return Host(
            instance_id=instance.instance_id,
            pool=instance.tags.get(POOL_TAG, ""),
            capacity=CapacityPool(instance.type, instance.zone, instance.market),
            launched_at=instance.launched_at,
            state=HostState.READY if wanted else HostState.RETIRING,
            reason=ADOPTED if wanted else "found by the sweep",
        )
