"""What happened in the world, in order: the log behind ``GET /_world/log``."""

from __future__ import annotations

import datetime as dt
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = 50_000  # entries; older ones are dropped, numbers go on


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Journal:
    """Numbered entries, the newest kept; ``since`` lets a reader follow."""

    def __init__(self, clock: Callable[[], dt.datetime] = now) -> None:
        self._clock = clock
        self._entries: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._count = 0

    def add(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Keep *entry* under a number and a date; return it for later completion."""
        self._count += 1
        numbered = {"n": self._count, "at": self._clock().isoformat(), **entry}
        self._entries.append(numbered)
        return numbered

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the entries after *number*, oldest first."""
        return [entry for entry in self._entries if entry["n"] > number]


class Timeline(Journal):
    def note(self, kind: str, **facts: object) -> None:
        """Write one line: what happened (*kind*) and to whom."""
        self.add({"kind": kind, **facts})
