"""What is publicly listed of an instance type: prices, Spot savings, the band, its network."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from reprieve.domain.catalogue import on_demand_usd

ADVISOR_DATE = "2025-07-28"
PRICES_DATE = "2026-07-20"


@dataclass(frozen=True, slots=True)
class Listing:
    """
    One type in one region; None where nothing was published.

    ``on_demand_usd`` is of us-east-1. ``band`` is how many of a month's Spot instances AWS
    took back: it ranks types, but it is no hazard per hour.
    """

    type: str
    on_demand_usd: float | None
    saving: float | None
    band: str | None
    gbit_per_second: float | None

    @property
    def spot_usd(self) -> float | None:
        """The on-demand price less the average saving: a guess, good for a ranking."""
        if self.on_demand_usd is None or self.saving is None:
            return None
        return self.on_demand_usd * (1 - self.saving)


def listing(kind: str, region: str) -> Listing:
    """Return what is listed of *kind* in *region*."""
    saving, band = _advisor().get((region, kind), (None, None))
    return Listing(kind, on_demand_usd(kind), saving, band, _network().get(kind))


@cache
def _advisor() -> dict[tuple[str, str], tuple[float, str]]:
    text = _read("reprieve_cli.economics", "spot-advisor-gpu-2025-07-28.csv")
    return {
        (row["region"], row["instance_type"]): (
            float(row["savings_pct"]) / 100,
            row["interruption_band"],
        )
        for row in csv.DictReader(text.splitlines())
    }


@cache
def _network() -> dict[str, float]:
    text = _read("reprieve_cli.local", "ec2-gpu-instances.csv")
    return {
        row["instance_type"]: float(row["net_card0_baseline_gbps"])
        for row in csv.DictReader(text.splitlines())
        if row["net_card0_baseline_gbps"]
    }


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("data", name).read_text("utf-8")
