"""What ``${…}`` stands for in events, messages and faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

_PLACEHOLDER = re.compile(
    r"\$\{(?:(?P<of>host|job|token|attempt):(?P<job>[^}#]+)(?:#(?P<attempt>\d+))?"
    r"|(?P<clock>now|rfc1123)(?P<offset>[+-]\d+(?:\.\d+)?)?"
    r"|(?P<number>n))\}"
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One of them: *kind* is its first word."""

    kind: str
    job: str = ""
    """The name of the job that it is about."""
    attempt: int | None = None
    """Of that job; None is the current one."""
    offset: float = 0.0
    """Seconds of the scaled clock from now."""


def filled(text: str, value: Callable[[Placeholder], str]) -> str:
    """Return *text* with the *value* of each placeholder in its place."""
    return _PLACEHOLDER.sub(lambda found: value(_read(found)), text)


def _read(found: re.Match[str]) -> Placeholder:
    kind = found["of"] or found["clock"] or found["number"]
    return Placeholder(
        kind,
        job=found["job"] or "",
        attempt=int(found["attempt"]) if found["attempt"] else None,
        offset=float(found["offset"] or 0),
    )


def in_time(kind: str, *, seconds: float) -> str:
    """Write the time in so many real *seconds*: as events have it, or as Health has it."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return format_datetime(at, usegmt=True) if kind == "rfc1123" else f"{at:%Y-%m-%dT%H:%M:%SZ}"
