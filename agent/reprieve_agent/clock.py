"""The two clocks a host lives by."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Now:
    """
    One moment, on both clocks.

    ``boot`` counts seconds since boot, sleep included, and never jumps: every wait and
    every deadline of ours is measured on it. ``wall`` is what other machines understand.
    """

    wall: datetime
    boot: float

    def wall_at(self, boot: float) -> datetime:
        """Return the wall time of a moment on the boot clock."""
        return self.wall + timedelta(seconds=boot - self.boot)


def now() -> Now:
    """Read both clocks."""
    return Now(wall=datetime.now(UTC), boot=boot_seconds())


def boot_seconds() -> float:
    """Return seconds since boot, time spent suspended included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
