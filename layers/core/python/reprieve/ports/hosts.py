"""Durable host state, cold pools and the sweep's own counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from reprieve.domain.host import CapacityPool, Host, HostState
from reprieve.domain.lease import Holds
from reprieve.domain.notice import Notice


class HostStore(Protocol):
    """Hosts of ours and what they hold. Reads are strong."""

    def adopt(self, host: Host) -> bool:
        """Store the row and its empty HOLDS; False, and nothing written, if it exists."""

    def read(self, instance_ids: Iterable[str]) -> dict[str, Host]:
        """Return those that are ours, in as few calls as possible."""

    def advance(
        self, instance_id: str, state: HostState, *, reason: str, notice: Notice | None = None
    ) -> Host | None:
        """
        Move the host forward to *state* and store *notice* with it; return the row after.

        A host already there or further is left in its state, but a *notice* is stored
        all the same. None for a stranger, for whom nothing is written.
        """

    def holds(self, instance_ids: Iterable[str]) -> dict[str, Holds]:
        """Return what each host holds, from its own row and not from an index."""


class Watch(Protocol):
    """The sweep's memory: how often a beat was seen unchanged."""

    def observe(
        self, subject: str, beat: str, *, now: datetime, min_gap: timedelta, max_gap: timedelta
    ) -> int:
        """
        Count this sight of *beat* of *subject* and return the count, the first being 1.

        It starts anew on another beat or when the last sight is longer ago than
        *max_gap*: a sweep that didn't run must not make hosts look silent. A sight
        sooner than *min_gap* after the last counted one changes nothing: two sweeps at
        once must not count twice.
        """


class PoolMemory(Protocol):
    """Capacity pools that had nothing to give, shared by every function through the table."""

    def chill(self, pool: str, capacity: CapacityPool, *, until: datetime, why: str) -> None:
        """Remember *capacity* as cold; a later *until* wins."""

    def cold(self, pool: str, *, now: datetime) -> dict[CapacityPool, str]:
        """Return the cold ones with their reasons; expired rows don't count."""
