"""What a job's attempts cost at the prices on record, beside the same work on demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reprieve.domain.economics import spending
from reprieve.domain.host import Host, Market
from reprieve.domain.job import Attempt
from reprieve.domain.notice import TAKES_BACK
from reprieve.domain.prices import listed_usd

SOURCES = (
    "Spot at what EC2 said the type cost when the host was launched, on demand at the list of "
    "us-east-1, 2026-07; booting and idle hosts, disks, storage and transfer are in neither"
)


@dataclass(frozen=True, slots=True)
class Spent:
    """
    One attempt in money. *usd* is what its hours cost, *on_demand_usd* what its useful ones do.

    None where no price is known. *free_usd* is the part of *usd* that AWS doesn't charge, as
    far as it can be told: EC2 took the host back within its first hour.
    """

    attempt: int
    type: str
    market: str
    hours: float
    useful_hours: float
    usd: float | None
    on_demand_usd: float | None
    free_usd: float = 0.0

    @property
    def known(self) -> bool:
        """Whether both sides have a price."""
        return self.usd is not None and self.on_demand_usd is not None


@dataclass(frozen=True, slots=True)
class Savings:
    """All attempts of some jobs; the sums leave out attempts without a price on both sides."""

    rows: tuple[Spent, ...]

    @property
    def usd(self) -> float:
        """What was spent, first hours that are free left out."""
        return sum((row.usd or 0.0) - row.free_usd for row in self.rows if row.known)

    @property
    def on_demand_usd(self) -> float:
        """What the useful hours would have cost on demand."""
        return sum(row.on_demand_usd or 0.0 for row in self.rows if row.known)

    @property
    def unpriced(self) -> int:
        """How many attempts are in neither sum."""
        return sum(not row.known for row in self.rows)

    @property
    def share(self) -> float | None:
        """The part saved; below 0 where Spot was the dearer way."""
        return 1 - self.usd / self.on_demand_usd if self.on_demand_usd else None

    def document(self) -> dict[str, Any]:
        """Return ``savings --json``."""
        return {
            "usd": round(self.usd, 4),
            "on_demand_usd": round(self.on_demand_usd, 4),
            "saved_share": None if self.share is None else round(self.share, 4),
            "unpriced_attempts": self.unpriced,
            "sources": SOURCES,
            "attempts": [
                {
                    "n": row.attempt,
                    "instance_type": row.type,
                    "market": row.market,
                    "hours": round(row.hours, 4),
                    "useful_hours": round(row.useful_hours, 4),
                    "usd": _rounded(row.usd),
                    "free_usd": round(row.free_usd, 4),
                    "on_demand_usd": _rounded(row.on_demand_usd),
                }
                for row in self.rows
            ],
        }


def of_attempts(
    attempts: Sequence[Attempt], hosts: Mapping[str, Host], *, now: datetime
) -> Savings:
    """Return what *attempts* cost; *hosts* are the rows that are still kept."""
    ran = [row for row in attempts if row.started_at]
    return Savings(tuple(_spent(row, hosts.get(row.instance_id or ""), now) for row in ran))


def _spent(row: Attempt, host: Host | None, now: datetime) -> Spent:
    hours = max(((row.ended_at or now) - (row.started_at or now)) / timedelta(hours=1), 0.0)
    useful = hours * _useful_share(row)
    listed = listed_usd(row.instance_type or "", row.zone or "")
    price = row.usd_per_hour
    if price is None and row.market == Market.ON_DEMAND:
        price = listed
    usd = None if price is None else price * hours
    return Spent(
        attempt=row.n,
        type=row.instance_type or "-",
        market=row.market or "-",
        hours=hours,
        useful_hours=useful,
        usd=usd,
        on_demand_usd=None if listed is None else listed * useful,
        free_usd=usd if usd and _free(host) else 0.0,
    )


def _useful_share(row: Attempt) -> float:
    """Return the part of an attempt's time whose steps nobody had to repeat."""
    done = (row.last_step or 0) - (row.restored_step or 0)
    return 1 - min(row.steps_lost / done, 1.0) if done > 0 else 1.0


def _free(host: Host | None) -> bool:
    """Whether EC2 took the host back in its first hour, by the notice that stands in its row."""
    if host is None or host.notice is None or host.notice.kind not in TAKES_BACK:
        return False
    reclaimed = host.notice.reclaimed_at or host.notice.noticed_at
    return spending.waits_for_reclaim(launched_ago_at_reclaim=reclaimed - host.launched_at)


def _rounded(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)
