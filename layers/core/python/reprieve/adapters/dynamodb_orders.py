"""Orders and the plans of their tries in the table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from reprieve.adapters import keys
from reprieve.adapters.codec import from_item
from reprieve.adapters.dynamodb import Table
from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import MalformedError
from reprieve.domain.host import Host
from reprieve.domain.job import Job
from reprieve.domain.order import Order, Try
from reprieve.ports.orders import Listing


class DynamoOrderStore:
    """``OrderStore``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read(self, job: str, attempt: int) -> Order | None:
        item = self._table.get(keys.order(job, attempt))
        return from_item(Order, item) if item else None

    def tries(self, job: str, attempt: int) -> Sequence[Try]:
        items = self._table.partition(keys.order(job, attempt)[0], keys.TRY_PREFIX)
        return sorted((from_item(Try, item) for item in items), key=lambda row: row.n)

    def listing(self, pool: str) -> Listing:
        kinds: dict[str, type[Any]] = {
            "JOB": Job,
            "HOST": Host,
            "ORDER": Order,
            "COLD": Cold,
            "SEEN": History,
            "QUOTES": Quotes,
        }
        rows: dict[type[Any], list[tuple[str, Any]]] = {kind: [] for kind in kinds.values()}
        for item in self._table.live_items(pool):
            sort_key = item["live_sk"]["S"]
            kind = kinds.get(sort_key.partition("#")[0])
            if kind:
                # A row that can't be read is for whoever reads it strongly, and not a reason
                # for its whole pool to go without hosts.
                with suppress(MalformedError):
                    rows[kind].append((sort_key, from_item(kind, item)))
        return Listing(
            jobs={job.id: job for _, job in rows[Job]},
            hosts={host.instance_id: host for _, host in rows[Host]},
            orders={order.key: order for _, order in rows[Order]},
            cold={keys.cold_capacity(at): cold for at, cold in rows[Cold]},
            history={keys.seen_place(at): seen for at, seen in rows[History]},
            quotes=next((quotes for _, quotes in rows[Quotes]), None),
        )
