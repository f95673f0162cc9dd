"""What the sweep remembers, in the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from reprieve.adapters import keys
from reprieve.adapters.codec import from_item, to_item
from reprieve.adapters.dynamodb import ABSENT, Put, RefusedError, Table, Update, expires, values
from reprieve.domain.errors import StaleError
from reprieve.domain.silence import Sights

KEPT = timedelta(days=1)
RIVALS = 3  # sweeps at the same time that may come first before this one gives up


class DynamoWatch:
    """
    ``Watch``: one read and one write a pool, however many hosts it has.

    A thousand hosts are about 200 kB of the 400 that a row may have. `rev` guards the
    row: of two sweeps at once the second counts over what the first has stored.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def observe(
        self,
        pool: str,
        beats: Mapping[str, str],
        *,
        now: datetime,
        min_gap: timedelta,
        max_gap: timedelta,
    ) -> Sights:
        for _ in range(RIVALS):
            known, rev = self._read(pool)
            after = known.seeing(beats, now=now, min_gap=min_gap, max_gap=max_gap)
            if self._store(pool, after, now=now, over=rev):
                return replace(after, left_off=known.left_off)
        raise StaleError(f"the sweep's memory of pool {pool} is being written by others")

    def leave_off(self, pool: str, at: str) -> None:
        self._table.update(Update(key=keys.watch(pool), assign=values(left_off=at)))

    def sights(self, pool: str) -> Sights:
        return self._read(pool)[0]

    def _read(self, pool: str) -> tuple[Sights, int]:
        item = self._table.get(keys.watch(pool))
        return (from_item(Sights, item), int(item["rev"]["N"])) if item else (Sights(), 0)

    def _store(self, pool: str, sights: Sights, *, now: datetime, over: int) -> bool:
        row = Put(
            key=keys.watch(pool),
            item=to_item(sights) | values(rev=over + 1) | expires(now + KEPT),
            condition="#rev = :was_rev" if over else ABSENT,
            values=values(was_rev=over) if over else {},
        )
        try:
            self._table.put(row)
        except RefusedError:
            return False
        return True
