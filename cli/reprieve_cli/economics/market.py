"""A trace as a market that can be asked: who is up now, and until when."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from reprieve.domain.economics.pools import History
from reprieve.domain.economics.spending import HOUR_SECONDS
from reprieve.domain.host import CapacityPool
from reprieve.domain.host import Market as Kind
from reprieve_cli.economics.scenario import World
from reprieve_cli.economics.traces import Slot, Trace, TracePool


class _Spans:
    """One slot, repeated end to end; spans that meet at the seam are one."""

    def __init__(self, slot: Slot, *, period: float, until: float) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        for turn in range(math.ceil(until / period)):
            for start, end in slot:
                if self.ends and self.ends[-1] >= start + turn * period:
                    self.ends[-1] = end + turn * period
                else:
                    self.starts.append(start + turn * period)
                    self.ends.append(end + turn * period)

    def end(self, at: float) -> float | None:
        """Return when the span around *at* ends, or None if the slot is down."""
        index = bisect_right(self.starts, at) - 1
        if index >= 0 and self.ends[index] > at:
            return self.ends[index]
        return None

    def next_start(self, at: float) -> float:
        """Return when the first span after *at* starts."""
        index = bisect_right(self.starts, at)
        return self.starts[index] if index < len(self.starts) else math.inf

    def seen(self, since: float, until: float) -> tuple[float, int]:
        """Return the seconds up and the ends within [*since*, *until*]."""
        up, ends = 0.0, 0
        for index in range(bisect_right(self.ends, since), len(self.starts)):
            if self.starts[index] >= until:
                break
            up += min(self.ends[index], until) - max(self.starts[index], since)
            ends += self.ends[index] <= until
        return up, ends


@dataclass(frozen=True, slots=True)
class Pool:
    """A capacity pool of the market."""

    index: int
    name: str
    capacity: CapacityPool
    region: str
    usd_per_hour: float
    spans: Sequence[_Spans]
    period: float

    def history(self, before: float, hours: float) -> History:
        """Return what somebody who held all of the pool for *hours* before then has seen."""
        until = before + self.period
        seen = [spans.seen(until - hours * HOUR_SECONDS, until) for spans in self.spans]
        return History(
            hours=sum(up for up, _ in seen) / HOUR_SECONDS,
            interruptions=sum(ends for _, ends in seen),
        )

    def reclaim(self, at: float, luck: random.Random) -> float | None:
        """Return until when a host launched *at* would live, or None if nothing can launch."""
        if len(self.spans) == 1:
            return self.spans[0].end(at)
        first = luck.randrange(len(self.spans))
        for offset in range(len(self.spans)):
            end = self.spans[(first + offset) % len(self.spans)].end(at)
            if end is not None:
                return end
        return None

    def next_up(self, at: float) -> float:
        """Return when something in this pool comes up again, at most a day later."""
        return min(at + 86_400.0, *(spans.next_start(at) for spans in self.spans))


class Market:
    """All pools of a trace, long enough for a run that starts anywhere in it."""

    def __init__(self, trace: Trace, world: World) -> None:
        until = 2 * trace.seconds + world.horizon_seconds
        self.seconds = trace.seconds
        self.pools = tuple(
            Pool(
                index=index,
                name=pool.name,
                capacity=CapacityPool(pool.type, pool.zone, Kind.SPOT),
                region=pool.region,
                usd_per_hour=_price(pool, world),
                period=trace.seconds,
                spans=[_Spans(slot, period=trace.seconds, until=until) for slot in pool.slots],
            )
            for index, pool in enumerate(trace.pools)
        )


def _price(pool: TracePool, world: World) -> float:
    return world.spot_usd_per_hour if pool.usd_per_hour is None else pool.usd_per_hour
