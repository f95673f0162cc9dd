"""
What to ask EC2 for: one tier of a pool, for one job or several alike.

Pure and printable: from what is known of a pool at one moment follow the offers to make
and, for everything left out, the reason. ``replace_host`` sends it, ``reprieve pools``
and ``reprieve submit --dry-run`` print it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve.domain.capacity import Cold, Pool, Tier, counted
from reprieve.domain.catalogue import GPU_TYPES, none_holds, on_demand_usd, why_not, wider
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.pools import NOTHING_KNOWN, History, Overheads, score
from reprieve.domain.economics.switches import Policy
from reprieve.domain.host import CapacityPool, Host, Market
from reprieve.domain.needs import Needs
from reprieve.domain.notice import TAKES_BACK, NoticeKind
from reprieve.domain.order import Member, Override, Plan
from reprieve.domain.prices import listed_usd

# An instant fleet is bounded by its payload; Karpenter trims to 60 types for that reason.
MAX_OVERRIDES = 60
# One transaction stores a grouped plan (4 writes a member, 100 at most), and another lands it.
MAX_MEMBERS = 10

ANY_TYPE = "*"  # of a zone whose subnet is full

# Of a job that nothing is known of: a blocking save of 30 s, and 270 s until it runs again.
USUAL = Overheads(save_seconds=30.0, dead_seconds=270.0)


@dataclass(frozen=True, slots=True)
class View:
    """
    What is known of a pool at one moment; a plan follows from nothing else.

    *subnets* maps zone to subnet, one per zone. *usd* are today's prices by market and
    (type, zone); what isn't known is not filtered. *history* is the account's own, by
    (type, zone), of Spot.
    """

    subnets: Mapping[str, str]
    hosts: Sequence[Host] = ()
    cold: Mapping[CapacityPool, Cold] = field(default_factory=dict)
    usd: Mapping[Market, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    history: Mapping[tuple[str, str], History] = field(default_factory=dict)

    def price(self, capacity: CapacityPool) -> float | None:
        """Return $/h; None if nobody knows."""
        return self.usd.get(capacity.market, {}).get((capacity.type, capacity.zone))


@dataclass(frozen=True, slots=True)
class Offer:
    """One capacity pool that EC2 is asked for; the smallest *score* is the best bargain."""

    capacity: CapacityPool
    subnet: str
    usd_per_hour: float | None
    score: float | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What isn't asked for: a type, or a type in a zone; until when, if that passes."""

    type: str
    zone: str | None
    why: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """
    What one tier comes to; without offers *reason* says why.

    *hosts* is how many may be launched at once within the pool's caps. *final*: no other
    tier can help either. *at_cap*: the pool's own limit on hosts stands in the way.
    """

    tier: Tier
    offers: tuple[Offer, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    hosts: int = 0
    reason: str = ""
    final: bool = False
    at_cap: bool = False

    def plan(self, members: Sequence[Member], pool: Pool, *, stack: str) -> Plan:
        """Return the request for *members*, who is served first coming first."""
        first, *followers = members[: self.hosts]
        reserved = self.tier is Tier.RESERVED
        return Plan(
            stack=stack,
            job=first.job,
            attempt=first.attempt,
            try_n=first.try_n,
            pool=pool.name,
            market=self.tier.market,
            strategy=_strategy(self.tier, pool),
            launch_template=pool.launch_template,
            launch_template_version=pool.launch_template_version,
            overrides=tuple(Override(offer.capacity, offer.subnet) for offer in self.offers),
            followers=tuple(followers),
            reservations=(*pool.reservations, *pool.reservation_types) if reserved else (),
        )


def plan(
    needs: Needs,
    pool: Pool,
    view: View,
    *,
    tier: int,
    now: datetime,
    clock: NoticeClock,
    wanted: int = 1,
) -> Proposal:
    """Return what tier number *tier* of *pool* has for *wanted* jobs with *needs*, and why."""
    hosts = counted(view.hosts)
    asked = pool.tier(tier, hosts)
    room = pool.max_hosts - len(hosts)
    if room <= 0:
        reason = f"pool {pool.name} is at its cap of {pool.max_hosts} hosts"
        return Proposal(asked, reason=reason, final=True, at_cap=True)
    sieve = _Sieve(needs, pool, view, asked, now=now, clock=clock)
    sieve.fill()
    return sieve.proposal(min(wanted, room, MAX_MEMBERS))


def ladder(
    needs: Needs, pool: Pool, view: View, *, now: datetime, clock: NoticeClock
) -> list[Proposal]:
    """Return what each tier would come to now, in the order in which they are asked."""
    found: list[Proposal] = []
    for index in range(len(pool.tiers)):
        proposal = plan(needs, pool, view, tier=index, now=now, clock=clock)
        if not found or found[-1].tier is not proposal.tier:
            found.append(proposal)
        if proposal.final:
            break
    return found


def impossible(needs: Needs, pool: Pool) -> str:
    """Return one line saying why no tier of *pool* can ever hold the job; empty if one can."""
    types = list(pool.types)
    if Tier.SPOT_WIDER in pool.tiers:
        types += wider(pool.types)
    return none_holds(types, needs)


def under_notice(
    hosts: Iterable[Host], *, now: datetime, clock: NoticeClock, advised: bool = True
) -> dict[CapacityPool, Cold]:
    """
    Return every capacity pool with an unexpired notice, mere advice too if *advised*.

    All of them, not the last one only: else a job goes to and fro between two pools that
    die together.
    """
    found: dict[CapacityPool, Cold] = {}
    for host in hosts:
        notice = host.notice
        if notice is None or not notice.tells_of_capacity:
            continue
        if notice.kind is NoticeKind.REBALANCE and not advised:
            continue
        advised_until = host.stands_down_at(clock)
        until = advised_until or max(
            notice.noticed_at + clock.cold, notice.reclaimed_at or notice.noticed_at
        )
        known = found.get(host.capacity)
        if until > now and (known is None or known.until < until):
            found[host.capacity] = Cold(until, f"{notice.kind} notice of {host.instance_id}")
    return found


def zones_taken_back(
    hosts: Iterable[Host], *, now: datetime, clock: NoticeClock
) -> dict[str, datetime]:
    """Return the zones in which EC2 is taking Spot capacity back, and until when that counts."""
    taking = [host for host in hosts if host.notice and host.notice.kind in TAKES_BACK]
    found: dict[str, datetime] = {}
    for capacity, cold in under_notice(taking, now=now, clock=clock).items():
        found[capacity.zone] = max(cold.until, found.get(capacity.zone, cold.until))
    return found


def lived(host: Host, now: datetime, *, over: bool = True) -> History:
    """
    Return what the life of *host* adds to its capacity pool's history.

    One that is *over* now, while nothing had been announced and nobody had told the host to
    go, was lost without notice.
    """
    hours = max((now - host.launched_at) / timedelta(hours=1), 0.0)
    taken = host.notice is not None and host.notice.kind in TAKES_BACK
    return History(
        hours=hours,
        interruptions=int(taken),
        launches_tried=1,
        launches_won=1,
        silent_losses=int(over and host.lost_when_gone),
        advised=int(host.advised),
        advised_rightly=int(host.advised and taken),
    )


def with_the_living(
    history: Mapping[tuple[str, str], History], hosts: Iterable[Host], now: datetime
) -> dict[tuple[str, str], History]:
    """Return *history* with the hosts that still run: their launches and hours count already."""
    found = dict(history)
    for host in hosts:
        if host.capacity.market is Market.SPOT:
            at = (host.capacity.type, host.capacity.zone)
            found[at] = found.get(at, NOTHING_KNOWN) + lived(host, now, over=False)
    return found


def free_spare_slot(
    pool: Pool, cold: Mapping[CapacityPool, Cold], *, now: datetime
) -> CapacityPool | None:
    """
    Return a slot of the churn budget that is free, None if all were used in the last hour.

    A slot is remembered as a capacity pool is: what launches a spare leaves it cold for an
    hour.
    """
    for number in range(pool.spares_per_hour):
        slot = CapacityPool("spare", str(number), Market.SPOT)
        if slot not in cold or cold[slot].until <= now:
            return slot
    return None


class _Sieve:
    """Everything a tier might ask for, sorted into offers and what is left out."""

    def __init__(
        self,
        needs: Needs,
        pool: Pool,
        view: View,
        tier: Tier,
        *,
        now: datetime,
        clock: NoticeClock,
    ) -> None:
        self._needs, self._pool, self._view, self._tier, self._now = needs, pool, view, tier, now
        self._cold = dict(view.cold)
        suspects = pool.follows(Policy.SUSPECTS)
        noticed = under_notice(view.hosts, now=now, clock=clock, advised=suspects)
        for capacity, cold in noticed.items():
            if capacity not in self._cold or self._cold[capacity].until < cold.until:
                self._cold[capacity] = cold
        self._shunned = zones_taken_back(view.hosts, now=now, clock=clock)
        self._history = with_the_living(view.history, view.hosts, now)
        paid = sum(host.usd_per_hour or 0.0 for host in counted(view.hosts))
        self._room = pool.max_usd_per_hour - paid
        self._types = self._candidates()
        self.offers: list[Offer] = []
        self.left_out: list[LeftOut] = []
        self._chilled = self._too_dear = 0
        self._cheapest: float | None = None

    def _candidates(self) -> list[str]:
        if self._tier is Tier.SPOT_WIDER:
            return [*self._pool.types, *wider(self._pool.types)]
        return list(self._pool.types)

    def fill(self) -> None:
        """Judge every type in every zone."""
        for kind in self._types:
            lack = self._lack(kind)
            if lack:
                self.left_out.append(LeftOut(kind, None, lack))
                continue
            for zone, subnet in self._view.subnets.items():
                self._judge(CapacityPool(kind, zone, self._tier.market), subnet)
        if self._tier is Tier.SPOT:
            self._shun()
        self.offers.sort(key=lambda offer: (offer.score is None, offer.score or 0.0))

    def proposal(self, wanted: int) -> Proposal:
        """Return what it comes to, for up to *wanted* hosts."""
        hosts, offers = self._affordable(wanted)
        return Proposal(
            self._tier,
            offers=tuple(offers[:MAX_OVERRIDES]),
            left_out=tuple(self.left_out),
            hosts=hosts,
            reason="" if offers else self._why_nothing(),
        )

    def _lack(self, kind: str) -> str:
        known = GPU_TYPES.get(kind)
        if known and not known.spot and self._tier.market is Market.SPOT:
            return "isn't sold as Spot"
        return why_not(kind, self._needs)

    def _judge(self, capacity: CapacityPool, subnet: str) -> None:
        cold = self._cold_spell(capacity)
        if cold:
            self._chilled += 1
            self._leave_out(capacity, cold.why, cold.until)
            return
        usd = self._view.price(capacity)
        if usd is not None and (self._cheapest is None or usd < self._cheapest):
            self._cheapest = usd
        dear = self._dear(capacity, usd)
        if dear:
            self._too_dear += 1
            self._leave_out(capacity, dear)
            return
        self.offers.append(Offer(capacity, subnet, usd, self._score(capacity, usd)))

    def _cold_spell(self, capacity: CapacityPool) -> Cold | None:
        whole_zone = CapacityPool(ANY_TYPE, capacity.zone, capacity.market)
        spells = (self._cold.get(capacity), self._cold.get(whole_zone))
        standing = [cold for cold in spells if cold and cold.until > self._now]
        return max(standing, key=lambda cold: cold.until, default=None)

    def _dear(self, capacity: CapacityPool, usd: float | None) -> str:
        """Return why the price rules it out, if it does."""
        if self._tier is Tier.RESERVED:
            return ""  # paid for already
        if usd is not None and usd > self._room:
            return f"${usd:.3f}/h, and the pool's cap leaves ${self._room:.3f}/h"
        if self._tier.market is not Market.SPOT:
            return ""
        listed = listed_usd(capacity.type, capacity.zone)
        if usd is not None and listed is not None:
            hazard = self._of(capacity).hazard_per_hour
            if usd * (1 + USUAL.at(hazard)) >= listed:
                return f"${usd:.3f}/h with interruptions is no less than ${listed:.3f} on demand"
        if capacity.type not in self._pool.types:
            return self._too_wide(usd)
        return ""

    def _too_wide(self, usd: float | None) -> str:
        """Bound wider types by what the dearest of the pool costs on demand."""
        bound = max((on_demand_usd(kind) or 0.0 for kind in self._pool.types), default=0.0)
        if usd is None:
            return "wider, and its price isn't known"
        if usd > bound:
            return f"${usd:.3f}/h, and the dearest type of the pool is ${bound:.3f} on demand"
        return ""

    def _score(self, capacity: CapacityPool, usd: float | None) -> float | None:
        if usd is None:
            return None
        if capacity.market is not Market.SPOT or not self._pool.follows(Policy.SCORES):
            return usd
        return score(self._of(capacity), USUAL, usd_per_hour=usd)

    def _of(self, capacity: CapacityPool) -> History:
        return self._history.get((capacity.type, capacity.zone), NOTHING_KNOWN)

    def _shun(self) -> None:
        """Leave out zones where capacity is being taken back, while others have offers."""
        elsewhere = [offer for offer in self.offers if offer.capacity.zone not in self._shunned]
        if not elsewhere:
            return
        for offer in self.offers:
            until = self._shunned.get(offer.capacity.zone)
            if until:
                self._leave_out(offer.capacity, "its zone is being taken back", until)
        self.offers = elsewhere

    def _affordable(self, wanted: int) -> tuple[int, list[Offer]]:
        """Return how many hosts fit under the price cap together, and the offers that do."""
        for hosts in range(wanted, 0, -1):
            share = self._room / hosts
            fitting = [
                offer
                for offer in self.offers
                if self._tier is Tier.RESERVED or (offer.usd_per_hour or 0.0) <= share
            ]
            if fitting:
                return hosts, fitting
        return 0, []

    def _leave_out(self, capacity: CapacityPool, why: str, until: datetime | None = None) -> None:
        self.left_out.append(LeftOut(capacity.type, capacity.zone, why, until))

    def _why_nothing(self) -> str:
        market = self._tier.market
        if self._too_dear and self._cheapest is not None:
            return (
                f"{self._tier} costs ${self._cheapest:.3f}/h or more, "
                f"the pool's cap leaves ${self._room:.3f}/h"
            )
        if self._chilled:
            return f"all {self._chilled} {market} capacity pools are cold"
        return none_holds(self._types, self._needs) or f"{self._tier} has nothing to ask for"


def _strategy(tier: Tier, pool: Pool) -> str:
    match tier.market:
        case Market.SPOT:
            return pool.strategy.value
        case Market.ON_DEMAND:
            return "lowest-price"
        case Market.RESERVED:
            return "prioritized"
