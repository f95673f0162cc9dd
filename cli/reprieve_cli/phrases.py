"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

UNITS = ("B", "kB", "MB", "GB", "TB")
THOUSAND = 1000


def size(count: int) -> str:
    """Return a number of bytes with three significant digits: ``12.6 MB``."""
    value = float(count)
    for unit in UNITS[:-1]:
        if value < THOUSAND:
            return f"{count} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= THOUSAND
    return f"{value:,.3g} {UNITS[-1]}"


def duration(span: timedelta) -> str:
    """Return a length of time with the digits that matter: ``1.2 s``, ``75 s``, ``2 h 5 min``."""
    seconds = span.total_seconds()
    if abs(seconds) < 9.95:  # noqa: PLR2004 - two digits below ten
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:  # noqa: PLR2004 - EC2's notice is said in seconds
        return f"{whole} s"
    minutes = round(seconds / 60)
    if minutes < 120:  # noqa: PLR2004 - the same for hours
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def clock(at: datetime) -> str:
    """Return the local time of day."""
    return f"{at.astimezone():%H:%M:%S}"


def moment(at: datetime | None, *, now: datetime) -> str:
    """Return a local time, with its date unless that is today's."""
    if at is None:
        return "-"
    local = at.astimezone()
    if local.date() == now.astimezone().date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M}"


def steps(step: int | None) -> str:
    """Return a step with thousands marked."""
    return "-" if step is None else f"{step:,}"


def count(number: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``, ``2 crashes``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('sh') else 's'}"


def dollars(usd_per_hour: float | None) -> str:
    """Return a price."""
    return "-" if usd_per_hour is None else f"${usd_per_hour:.3f}/h"


def parse_duration(text: str) -> timedelta | None:
    """Read ``90``, ``90s``, ``10m``, ``1.5h``; None for anything else."""
    factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:].lower())
    try:
        return timedelta(seconds=float(text[:-1]) * factor if factor else float(text))
    except (ValueError, OverflowError):
        return None
