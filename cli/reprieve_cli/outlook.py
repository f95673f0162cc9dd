"""What a pool would ask EC2 for now: the planner's own answer, in words and as a document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve.domain.capacity import Pool, Tier, counted
from reprieve.domain.catalogue import GPU_TYPES, on_demand_usd
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.pools import History
from reprieve.domain.host import Host, Market
from reprieve.domain.needs import NOTHING, Needs
from reprieve.domain.planning import LeftOut, Proposal, View, ladder
from reprieve.usecases.known_pool import priced
from reprieve_cli import phrases
from reprieve_cli.errors import BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

MOST_REASONS = 12  # in a table for people; the document has them all


@dataclass(frozen=True, slots=True)
class Outlook:
    """One pool as it stands, and what each of its tiers comes to for a job with *needs*."""

    pool: Pool
    needs: Needs
    view: View
    tiers: tuple[Proposal, ...]
    quoted_at: datetime | None

    @property
    def hosts(self) -> list[Host]:
        """The hosts that count against the pool's caps."""
        return counted(self.view.hosts)

    @property
    def first(self) -> Proposal | None:
        """The tier that a launch would ask first with something to ask for."""
        return next((proposal for proposal in self.tiers if proposal.offers), None)

    @property
    def answer(self) -> str:
        """Return in one line what would happen now."""
        if self.first is None:
            return f"{self.pool.name}: nothing to ask for: {self.tiers[-1].reason}"
        best = self.first.offers[0]
        return (
            f"{self.pool.name}: {self.first.tier}, "
            f"{phrases.count(len(self.first.offers), 'capacity pool')}, "
            f"first of all {best.capacity.type} in {best.capacity.zone}{_at(best.usd_per_hour)}"
        )


def look(cloud: Cloud, pool: Pool, needs: Needs = NOTHING) -> Outlook:
    """Return the pool's outlook for one job more; nothing is written."""
    listing, now = cloud.orders.listing(pool.name), cloud.now()
    zones = _subnets(cloud)
    spot = listing.quotes.prices() if listing.quotes else {}
    if not spot:
        spot = cloud.fleet.usd_per_hour(priced(pool, Market.SPOT), Market.SPOT)
    listed = {
        (kind, zone): usd
        for kind in pool.types
        for zone in zones
        if (usd := on_demand_usd(kind)) is not None
    }
    view = View(
        subnets=zones,
        hosts=list(listing.hosts.values()),
        cold=listing.cold,
        usd={Market.SPOT: spot, Market.ON_DEMAND: listed},
        history=listing.history,
    )
    tiers = ladder(needs, pool, view, now=now, clock=NoticeClock())
    return Outlook(pool, needs, view, tuple(tiers), listing.quotes.at if listing.quotes else None)


def say(outlook: Outlook, terminal: Terminal, *, now: datetime) -> None:
    """Tell a person: the caps, what each tier comes to, what is left out, what was seen."""
    pool = outlook.pool
    paid = sum(host.usd_per_hour or 0.0 for host in outlook.hosts)
    terminal.line(
        f"pool {pool.name}: {phrases.count(len(pool.types), 'type')} in "
        f"{phrases.count(len(outlook.view.subnets), 'zone')}; "
        f"{len(outlook.hosts)} of {pool.max_hosts} hosts, "
        f"${paid:.3f}/h of ${pool.max_usd_per_hour:.2f}/h; {_quota(pool)}"
    )
    if outlook.needs:
        terminal.line(f"for a job with {outlook.needs}")
    terminal.table(("TIER", "ASKS", "$/H", "FIRST, OR WHY NOTHING"), _tiers(outlook))
    reasons = _reasons(outlook.tiers, now=now)
    if reasons:
        terminal.line()
        terminal.table(("LEFT OUT", "WHY"), reasons[:MOST_REASONS])
        if len(reasons) > MOST_REASONS:
            terminal.line(f"and {len(reasons) - MOST_REASONS} reasons more, see --json")
    seen = _seen(outlook.view.history)
    if seen:
        terminal.line()
        terminal.table(("SEEN", "HOURS", "TAKEN BACK", "LAUNCHES"), seen)
    terminal.line()


def document(outlook: Outlook) -> dict[str, Any]:
    """Return all of it for scripts."""
    pool = outlook.pool
    return {
        "pool": pool.name,
        "needs": str(outlook.needs),
        "types": list(pool.types),
        "zones": list(outlook.view.subnets),
        "hosts": len(outlook.hosts),
        "max_hosts": pool.max_hosts,
        "usd_per_hour": round(sum(h.usd_per_hour or 0.0 for h in outlook.hosts), 4),
        "max_usd_per_hour": pool.max_usd_per_hour,
        "vcpus_for_both_copies": _vcpus(pool),
        "prices_at": outlook.quoted_at.isoformat() if outlook.quoted_at else None,
        "tiers": [_tier(proposal) for proposal in outlook.tiers],
        "history": [
            {
                "instance_type": kind,
                "zone": zone,
                "hours": round(seen.hours, 2),
                "interruptions": seen.interruptions,
                "launches_tried": seen.launches_tried,
                "launches_won": seen.launches_won,
            }
            for (kind, zone), seen in sorted(outlook.view.history.items())
        ],
    }


def _subnets(cloud: Cloud) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(cloud.stack.outputs["Subnets"])
    except (KeyError, ValueError) as error:
        raise BadInputError(
            f"stack {cloud.stack.name} doesn't say in which zones it launches: deploy it again"
        ) from error
    return found


def _tier(proposal: Proposal) -> dict[str, Any]:
    return {
        "tier": proposal.tier.value,
        "market": proposal.tier.market.value,
        "reason": proposal.reason,
        "asks": [
            {
                "instance_type": offer.capacity.type,
                "zone": offer.capacity.zone,
                "usd_per_hour": offer.usd_per_hour,
                "score": round(offer.score, 4) if offer.score is not None else None,
            }
            for offer in proposal.offers
        ],
        "left_out": [
            {
                "instance_type": left.type,
                "zone": left.zone,
                "why": left.why,
                "until": left.until.isoformat() if left.until else None,
            }
            for left in proposal.left_out
        ],
    }


def _tiers(outlook: Outlook) -> list[tuple[str, ...]]:
    rows = [_row(proposal) for proposal in outlook.tiers]
    return [*rows, ("parked", "", "", "with its reason and a next try")]


def _row(proposal: Proposal) -> tuple[str, ...]:
    if not proposal.offers:
        return (proposal.tier.value, "0", "", proposal.reason)
    best = proposal.offers[0]
    usd = f"{best.usd_per_hour:.3f}" if best.usd_per_hour is not None else "?"
    if proposal.tier is Tier.RESERVED:
        usd = "paid"
    return (
        proposal.tier.value,
        str(len(proposal.offers)),
        usd,
        f"{best.capacity.type} in {best.capacity.zone}",
    )


def _reasons(tiers: Iterable[Proposal], *, now: datetime) -> list[tuple[str, str]]:
    """Return what is left out, each once: a type in all its zones is one line."""
    known: dict[tuple[str, str], list[LeftOut]] = {}
    for proposal in tiers:
        for left in proposal.left_out:
            entries = known.setdefault((left.type, left.why), [])
            if left not in entries:
                entries.append(left)
    rows = []
    for (kind, why), entries in known.items():
        zones = " ".join(sorted({left.zone for left in entries if left.zone}))
        until = max((left.until for left in entries if left.until), default=None)
        ends = f", until {phrases.moment(until, now=now)}" if until else ""
        rows.append((f"{kind} {zones}".strip(), f"{why}{ends}"))
    return rows


def _seen(history: Any) -> list[tuple[str, ...]]:
    entries: Sequence[tuple[tuple[str, str], History]] = sorted(history.items())
    return [
        (
            f"{kind} {zone}",
            f"{seen.hours:,.1f}",
            str(seen.interruptions),
            f"{seen.launches_won} of {seen.launches_tried}",
        )
        for (kind, zone), seen in entries
        if seen != History()
    ]


def _vcpus(pool: Pool) -> int | None:
    """Return the quota that holds the smallest type twice, None if no type is known."""
    known = [GPU_TYPES[kind].vcpus for kind in pool.types if kind in GPU_TYPES]
    return 2 * min(known) if known else None


def _quota(pool: Pool) -> str:
    vcpus = _vcpus(pool)
    if vcpus is None:
        return "quota unknown"
    return f"a host and its replacement take {vcpus} vCPUs of quota at least"


def _at(usd: float | None) -> str:
    return f" at ${usd:.3f}/h" if usd is not None else ""
