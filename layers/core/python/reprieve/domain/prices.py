"""What on-demand costs where it is published, so that Spot can be compared with it."""

from __future__ import annotations

from reprieve.domain.catalogue import on_demand_usd
from reprieve.domain.economics import spending

# Where on-demand costs what the catalogue says.
LISTED_REGIONS = ("us-east-1", "us-east-2", "us-west-2")


def listed_usd(kind: str, zone: str) -> float | None:
    """Return $/h on demand for *kind* in *zone*, None where nobody published it."""
    return on_demand_usd(kind) if zone[:-1] in LISTED_REGIONS else None


def discount_of(kind: str, zone: str, usd_per_hour: float) -> float | None:
    """Return d of a Spot price, None where on-demand's isn't known or is no more."""
    listed = listed_usd(kind, zone)
    if listed is None or usd_per_hour >= listed:
        return None
    return spending.discount(spot_usd_per_hour=usd_per_hour, on_demand_usd_per_hour=listed)
