"""The one place where the simulator asks the code that decides in production for a host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reprieve.domain.capacity import Cold, Tier
from reprieve.domain.capacity import Pool as ConfiguredPool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.pools import NOTHING_KNOWN, History, score
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.needs import NOTHING
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.planning import USUAL, View, lived, plan
from reprieve_cli.economics.market import Pool

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TIERS = (Tier.SPOT, Tier.SPOT_WIDER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pool that a request names, and its score: the smallest is the best bargain."""

    pool: Pool
    score: float


def moment(seconds: float) -> datetime:
    """Return a time of the trace as production's code wants it."""
    return _BEGIN + timedelta(seconds=seconds)


def row(pool: Pool, *, launched: float, number: int) -> Host:
    """Return the row of a host that runs."""
    return Host(
        instance_id=f"i-{number:017x}",
        pool="simulated",
        capacity=pool.capacity,
        launched_at=moment(launched),
        usd_per_hour=pool.usd_per_hour,
    )


def under_notice(host: Host, *, heard: float, reclaimed: float) -> Host:
    """Return the row once its notice is known."""
    notice = Notice(
        NoticeKind.INTERRUPTION,
        host.instance_id,
        moment(heard),
        Channel.METADATA,
        moment(reclaimed),
    )
    return Host(
        instance_id=host.instance_id,
        pool=host.pool,
        capacity=host.capacity,
        launched_at=host.launched_at,
        state=HostState.DRAINING,
        notice=notice,
        usd_per_hour=host.usd_per_hour,
    )


def with_a_life(history: History, host: Host, *, ended: float, interrupted: bool) -> History:
    """Return *history* with the life of *host*, as the sweep records it."""
    life = lived(host, moment(ended))
    if interrupted and not life.interruptions:  # nobody heard the notice
        life += History(interruptions=1)
    return history + life


class Planner:
    """
    ``reprieve.domain.planning``, over the pools of a trace.

    Which of the pools that a request names EC2 gives is EC2's choice; here it is the one
    that scores best among those that are up.
    """

    def __init__(self, pools: Sequence[Pool], clock: NoticeClock) -> None:
        self._clock = clock
        self._pools = {pool.capacity: pool for pool in pools}
        self._configured = ConfiguredPool(
            name="simulated",
            types=tuple(dict.fromkeys(pool.capacity.type for pool in pools)),
            tiers=TIERS,
            launch_template="lt-simulated",
            launch_template_version="1",
            work_queue_url="",
            max_hosts=1000,
            max_usd_per_hour=float("inf"),
        )
        self._subnets = {pool.capacity.zone: pool.capacity.zone for pool in pools}
        self._usd = {
            Market.SPOT: {(p.capacity.type, p.capacity.zone): p.usd_per_hour for p in pools}
        }

    def wanted(
        self,
        tier: int,
        *,
        cold: Mapping[CapacityPool, float],
        hosts: Iterable[Host],
        histories: Mapping[CapacityPool, History],
        now: float,
        credit: bool = False,
    ) -> list[Wanted]:
        """
        Return the pools that a request of *tier* at *now* names; *cold* maps to its end.

        *credit* scores them anew with the first-hour credit, which production leaves out.
        """
        view = View(
            subnets=self._subnets,
            hosts=tuple(hosts),
            cold={
                capacity: Cold(moment(until), "no capacity")
                for capacity, until in cold.items()
                if until > now
            },
            usd=self._usd,
            history={(c.type, c.zone): history for c, history in histories.items()},
        )
        proposal = plan(
            NOTHING, self._configured, view, tier=tier, now=moment(now), clock=self._clock
        )
        # Types × zones may name more than the trace has.
        named = [offer for offer in proposal.offers if offer.capacity in self._pools]
        if credit:
            return [self._with_credit(offer.capacity, histories) for offer in named]
        return [Wanted(self._pools[offer.capacity], offer.score or 0.0) for offer in named]

    def _with_credit(
        self, capacity: CapacityPool, histories: Mapping[CapacityPool, History]
    ) -> Wanted:
        pool = self._pools[capacity]
        known = histories.get(capacity, NOTHING_KNOWN)
        return Wanted(pool, score(known, USUAL, usd_per_hour=pool.usd_per_hour, credit=True))

    @property
    def wait_seconds(self) -> float:
        """Return how long an order that nobody could fill waits, until a sweep repeats it."""
        sweep = self._clock.sweep.total_seconds()
        waited = self._clock.cold.total_seconds()
        return -(-waited // sweep) * sweep
