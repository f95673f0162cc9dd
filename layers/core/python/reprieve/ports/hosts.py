"""Durable host state, cold pools and the sweep's own counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from reprieve.domain.host import Host, HostState
from reprieve.domain.lease import Holds
from reprieve.domain.notice import Notice
from reprieve.domain.silence import Sights


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
    """The sweep's memory of one pool, in one row: what was heard, and where it stopped."""

    def observe(
        self,
        pool: str,
        beats: Mapping[str, str],
        *,
        now: datetime,
        min_gap: timedelta,
        max_gap: timedelta,
    ) -> Sights:
        """
        Count this sight of the pool's *beats*, and return all counts.

        See `Sights.seeing`. ``left_off`` is what the last sweep left, and is forgotten.
        """

    def leave_off(self, pool: str, at: str) -> None:
        """Remember the piece of work at which this sweep ran out of time."""

    def sights(self, pool: str) -> Sights:
        """Return what is remembered, for people: nothing is counted."""
