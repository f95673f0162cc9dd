"""Orders and the plans of their tries in the table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from reprieve.adapters import keys
from reprieve.adapters.codec import from_item, to_item
from reprieve.adapters.dynamodb import ABSENT, Put, RefusedError, Table, Update, live, values
from reprieve.adapters.dynamodb_jobs import put_job, stale_job
from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import MalformedError, StaleError
from reprieve.domain.host import Host
from reprieve.domain.job import Job
from reprieve.domain.order import FleetAnswer, Order, Plan, Try
from reprieve.ports.orders import Listing


class DynamoOrderStore:
    """``OrderStore``."""

    def __init__(self, table: Table, *, clock: Callable[[], datetime] | None = None) -> None:
        self._table = table
        self._clock = clock or functools.partial(datetime.now, UTC)

    def place(self, order: Order) -> tuple[Order, bool]:
        try:
            self._table.put(_put(order, was=None))
        except RefusedError as error:
            return from_item(Order, error.item or {}), False
        return order, True

    def read(self, job: str, attempt: int) -> Order | None:
        item = self._table.get(keys.order(job, attempt))
        return from_item(Order, item) if item else None

    def store_plan(self, plan: Plan) -> Plan:
        tried = Try(plan.job, plan.attempt, plan.try_n, plan=plan, at=self._clock())
        row = Put(key=_try_key(plan), item=to_item(tried), condition=ABSENT)
        try:
            self._table.put(row)
        except RefusedError as error:
            return from_item(Try, error.item or {}).plan
        return plan

    def answer(self, plan: Plan, answer: FleetAnswer) -> None:
        try:
            self._table.update(
                Update(
                    key=_try_key(plan),
                    assign=values(answer=answer),
                    condition="attribute_exists(#pk)",
                )
            )
        except RefusedError as error:
            raise StaleError(f"no plan is stored for try {plan.tag}") from error

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

    def update(self, order: Order, *, was: Order) -> None:
        try:
            self._table.put(_put(order, was=was))
        except RefusedError as error:
            raise _stale(order, was) from error

    def unpark(self, job: Job, order: Order, *, was: Order | None) -> Job:
        stored = replace(job, version=job.version + 1)
        try:
            self._table.transact(put_job(stored, was=job), _put(order, was=was))
        except RefusedError as error:
            raise (stale_job(job) if error.index == 0 else _stale(order, was)) from error
        return stored


def _try_key(plan: Plan) -> keys.Key:
    return keys.order_try(plan.job, plan.attempt, plan.try_n)


def _put(order: Order, *, was: Order | None) -> Put:
    """Return the write of *order* over *was*: over nothing, or over the same state and try."""
    key = keys.order(order.job, order.attempt)
    item = to_item(order) | live(order.pool, keys.live_order(order))
    if was is None:
        return Put(key=key, item=item, condition=ABSENT)
    return Put(
        key=key,
        item=item,
        condition="#state = :was_state AND #try_n = :was_try",
        values=values(was_state=was.state, was_try=was.try_n),
    )


def _stale(order: Order, was: Order | None) -> StaleError:
    state = f"{was.state} at try {was.try_n}" if was else "absent"
    return StaleError(f"order {order.job}#{order.attempt} is no longer {state}")
