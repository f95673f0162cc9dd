"""How each policy looks for a host: ours by production's code, peers by their documents."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprieve.domain.economics.pools import NOTHING_KNOWN, History
from reprieve.domain.host import CapacityPool, Host
from reprieve_cli.economics.market import Market, Pool
from reprieve_cli.economics.policies import Placement
from reprieve_cli.economics.production import TIERS, Planner, row, under_notice, with_a_life
from reprieve_cli.economics.scenario import World

FAILED_ZONE_SECONDS = 30.0  # SkyPilot: a launch that fails takes about that long
SCHEDULING_SECONDS = 120.0  # AWS Batch: from a runnable job to a launch
POLL_SECONDS = 60.0
RESTS_SECONDS = 180.0  # Karpenter: UnavailableOfferingsTTL
# SkyPilot waits 60 s before it tries all zones again, then longer, 300 s at most.
BACKOFF_FIRST, BACKOFF_FACTOR, BACKOFF_MOST = 60.0, 1.6, 300.0


@dataclass(frozen=True, slots=True)
class Found:
    """A launch that worked: where, when EC2 said yes, and when it will take the host back."""

    pool: Pool
    launched: float
    reclaimed: float
    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nobody had anything: when to ask again."""

    retry: float


@dataclass(slots=True)
class Memory:
    """What one account knows: its hosts, cold pools, histories, failures in a row."""

    market: Market
    planner: Planner
    world: World
    luck: random.Random
    home: int
    credit: bool = False
    cold: dict[CapacityPool, float] = field(default_factory=dict)
    histories: dict[CapacityPool, History] = field(default_factory=dict)
    hosts: dict[int, Host] = field(default_factory=dict)
    ending: list[tuple[float, int, float, bool]] = field(default_factory=list)
    launched: int = 0
    failures: int = 0
    refused: int = 0
    last: Pool | None = None

    def launch(self, pool: Pool, at: float) -> Found | None:
        """Ask one pool and remember how it went."""
        answered = at + self.world.launch_seconds
        end = pool.reclaim(answered, self.luck)
        if end is None:
            self.histories[pool.capacity] = self.history(pool).after_launch(won=False)
            self.refused += 1
            return None
        self.failures = 0
        self.launched += 1
        self.last = pool
        self.hosts[self.launched] = row(pool, launched=answered, number=self.launched)
        return Found(pool, answered, end, self.launched)

    def noticed(self, number: int, *, heard: float, reclaimed: float) -> None:
        """Mark the host, whose pool is now being taken back."""
        host = self.hosts[number]
        self.hosts[number] = under_notice(host, heard=heard, reclaimed=reclaimed)
        cold = heard + self.world.clock.cold.total_seconds()
        self.cold[host.capacity] = max(cold, reclaimed)

    def ended(self, number: int, *, at: float, interrupted: bool) -> None:
        """Let the life of a host become history, once it is over and its notice has expired."""
        host = self.hosts[number]
        known_until = self.cold.get(host.capacity, at) if host.notice else at
        self.ending.append((max(at, known_until), number, at, interrupted))

    def settle(self, now: float) -> None:
        """Turn what is over into history."""
        over = [life for life in self.ending if life[0] <= now]
        for life in over:
            self.ending.remove(life)
            _, number, at, interrupted = life
            host = self.hosts.pop(number)
            known = self.histories.get(host.capacity, NOTHING_KNOWN)
            self.histories[host.capacity] = with_a_life(
                known, host, ended=at, interrupted=interrupted
            )

    def history(self, pool: Pool) -> History:
        """Return what is known of *pool*."""
        return self.histories.get(pool.capacity, NOTHING_KNOWN)

    def shuffled(self) -> list[Pool]:
        """Return all pools in random order."""
        pools = list(self.market.pools)
        self.luck.shuffle(pools)
        return pools


def _reprieve(memory: Memory, at: float) -> Found | Refused:
    cold_until = at + memory.world.clock.cold.total_seconds()
    for tier in range(len(TIERS)):
        wanted = memory.planner.wanted(
            tier,
            cold=memory.cold,
            hosts=memory.hosts.values(),
            histories=memory.histories,
            now=at,
            credit=memory.credit,
        )
        memory.luck.shuffle(wanted)  # among equal scores EC2 decides, we can't know how
        for one in sorted(wanted, key=lambda one: one.score):
            found = memory.launch(one.pool, at)
            if found:
                return found
            memory.cold[one.pool.capacity] = cold_until
    return Refused(at + memory.planner.wait_seconds)


def _fleet(memory: Memory, at: float) -> Found | Refused:
    rested = [p for p in memory.shuffled() if memory.cold.get(p.capacity, 0.0) <= at]
    for pool in rested:
        found = memory.launch(pool, at)
        if found:
            return found
    memory.cold.update((pool.capacity, at + RESTS_SECONDS) for pool in rested)
    return Refused(min(memory.cold.values()))


def _in_turn(memory: Memory, at: float) -> Found | Refused:
    """Ask the pool that was just lost last, as the default recovery strategy blocks it first."""
    pools = sorted(
        memory.market.pools,
        key=lambda pool: (
            pool is memory.last,
            pool.usd_per_hour,
            (pool.index - memory.home) % len(memory.market.pools),
        ),
    )
    for pool in pools:
        found = memory.launch(pool, at)
        if found:
            return found
        at += FAILED_ZONE_SECONDS
    gap: float = BACKOFF_FIRST * BACKOFF_FACTOR**memory.failures
    memory.failures += 1
    return Refused(at + min(gap, BACKOFF_MOST))


def _scheduled(memory: Memory, at: float) -> Found | Refused:
    at += SCHEDULING_SECONDS
    for pool in memory.shuffled():
        found = memory.launch(pool, at)
        if found:
            return found
    return Refused(at)


def _one_pool(memory: Memory, at: float) -> Found | Refused:
    pool = memory.market.pools[memory.home % len(memory.market.pools)]
    found = memory.launch(pool, at)
    if found:
        return found
    # What polling would find in between is known: nothing.
    polls = math.ceil(max(1.0, pool.next_up(at) - at) / POLL_SECONDS)
    return Refused(at + polls * POLL_SECONDS)


ASK: Mapping[Placement, Callable[[Memory, float], Found | Refused]] = {
    Placement.REPRIEVE: _reprieve,
    Placement.FLEET: _fleet,
    Placement.IN_TURN: _in_turn,
    Placement.SCHEDULED: _scheduled,
    Placement.ONE_POOL: _one_pool,
}
