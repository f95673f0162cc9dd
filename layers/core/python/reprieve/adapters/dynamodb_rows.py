"""The table's rows, read in batches and committed in transactions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from reprieve.adapters import keys, rules
from reprieve.adapters.codec import Item, from_item, to_item
from reprieve.adapters.dynamodb import (
    ABSENT,
    Action,
    Check,
    Put,
    RefusedError,
    Table,
    Update,
    expires,
    live,
    values,
)
from reprieve.adapters.keys import Key
from reprieve.domain.capacity import Cold
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import MalformedError, StaleError
from reprieve.domain.host import CapacityPool, Host, HostState
from reprieve.domain.job import TERMINAL, Attempt, Event, Job
from reprieve.domain.lease import Holds, Lease, LeaseKey, LeaseState
from reprieve.domain.order import Order, Try
from reprieve.ports.rows import (
    AddEvents,
    Alive,
    Chill,
    CloseLease,
    DropHold,
    NoteAttempt,
    PutHolds,
    PutHost,
    PutJob,
    PutLease,
    PutOrder,
    PutQuotes,
    PutTry,
    Remember,
    Snapshot,
    Unchanged,
    Wanted,
    Write,
)

EVENTS_KEPT = timedelta(days=90)
GONE_KEPT = timedelta(days=7)

# Per field of `Wanted`: a name's key, and what its row is read as.
KINDS: dict[str, tuple[Callable[[Any], Key], type[Any]]] = {
    "jobs": (keys.job, Job),
    "leases": (keys.lease, Lease),
    "hosts": (keys.host, Host),
    "holds": (keys.holds, Holds),
    "orders": (lambda name: keys.order(*name), Order),
    "tries": (lambda name: keys.order_try(*name), Try),
    "colds": (lambda name: keys.cold(*name), Cold),
}


class DynamoRows:
    """``Rows``."""

    def __init__(self, table: Table, *, clock: Callable[[], datetime] | None = None) -> None:
        self._table = table
        self._clock = clock or functools.partial(datetime.now, UTC)

    def read(self, wanted: Wanted) -> Snapshot:
        names = {
            key_of(name): (kind, name)
            for kind, (key_of, _) in KINDS.items()
            for name in getattr(wanted, kind)
        }
        found, left = self._table.get_most(names)
        rows: dict[str, dict[Any, Any]] = {kind: {} for kind in KINDS}
        spoilt: set[Key] = set()
        for key, item in found.items():
            kind, name = names[key]
            if kind == "holds" and "beat" not in item:  # what a stranger's drop left
                continue
            try:
                rows[kind][name] = from_item(KINDS[kind][1], item)
            except MalformedError:
                spoilt.add(key)
        unread = _named(names[key] for key in left | spoilt)
        return Snapshot(**rows, read=wanted - unread, unread=unread)

    def commit(self, writes: Sequence[Write]) -> None:
        planned: dict[Key, tuple[Write, Action]] = {}
        for write in writes:
            for action in self._actions(write):
                _, standing = planned.setdefault(action.key, (write, action))
                if standing != action and not isinstance(write, AddEvents):
                    raise ValueError(f"{action.key} is written twice in one commit")
        try:
            self._carry_out([action for _, action in planned.values()])
        except RefusedError as error:
            refused, _ = list(planned.values())[error.index]
            raise StaleError(rules.not_as_read(refused)) from error

    def _carry_out(self, actions: list[Action]) -> None:
        match actions:
            case []:
                return
            case [Put() as put]:
                self._table.put(put)
            case [Update() as update]:
                self._table.update(update)
            case _:
                self._table.transact(*actions)

    def _actions(self, write: Write) -> Iterator[Action]:  # noqa: C901, PLR0912 - one for each
        match write:
            case PutJob(job, new):
                yield put_job(job, new=new)
            case PutLease(lease):
                yield Put(key=keys.lease(lease.key), item=to_item(lease), condition=ABSENT)
            case CloseLease(lease):
                yield _close(lease)
            case DropHold(instance_id, key):
                yield drop_hold(instance_id, key)
            case PutHost(host, new):
                yield self._put_host(host, new=new)
            case PutHolds(instance_id, terms):
                # + 0 makes the beat and leaves an existing one, and the leases with it
                known = values(terms=terms) if terms else {}
                yield Update(
                    key=keys.holds(instance_id),
                    assign=values(instance_id=instance_id) | known,
                    add=values(beat=0),
                )
            case PutOrder(order, was):
                yield _put_order(order, was=was)
            case PutTry(row, new):
                yield _put_try(row, new=new)
            case NoteAttempt(attempt):
                yield _merge(attempt)
            case AddEvents(job_id, events):
                yield from (_event(job_id, event, seq) for seq, event in enumerate(events))
            case Chill(pool, capacity, cold):
                yield _chill(pool, capacity, cold)
            case Remember(pool, capacity, history):
                yield _remember(pool, capacity, history)
            case PutQuotes(pool, quotes):
                at = keys.quotes(pool)
                yield Put(key=at, item=to_item(quotes) | live(pool, at[1]))
            case Alive(job_id, attempt):
                yield _alive(job_id, attempt)
            case Unchanged(row):
                yield _check(row)
            case _:
                assert_never(write)

    def _put_host(self, host: Host, *, new: bool) -> Put:
        stored = host if new else replace(host, version=host.version + 1)
        item = to_item(stored) | live(host.pool, keys.live_host(host))
        if host.state is HostState.GONE:
            item |= expires(self._clock() + GONE_KEPT)
        return _over(keys.host(host.instance_id), item, version=None if new else host.version)


def _named(names: Iterable[tuple[str, Any]]) -> Wanted:
    sets: dict[str, set[Any]] = {f.name: set() for f in fields(Wanted)}
    for kind, name in names:
        sets[kind].add(name)
    return Wanted(**{kind: frozenset(found) for kind, found in sets.items()})


def put_job(job: Job, *, new: bool) -> Put:
    """Return the write of *job*, listed in the index until it is over."""
    stored = job if new else replace(job, version=job.version + 1)
    item = to_item(stored) | live(job.pool, keys.live_job(job))
    return _over(keys.job(job.id), item, version=None if new else job.version)


def _over(key: Key, item: Item, *, version: int | None) -> Put:
    """Return the write of a row over the version that was read, None: over nothing."""
    if version is None:
        return Put(key=key, item=item, condition=ABSENT)
    return Put(
        key=key,
        item=item,
        condition="#version = :was_version",
        values=values(was_version=version),
    )


def _close(lease: Lease) -> Update:
    return Update(
        key=keys.lease(lease.key),
        assign=values(state=LeaseState.CLOSED),
        add=values(beat=1),
        condition="#beat = :was_beat AND #state <> :state",
        values=values(was_beat=lease.beat),
    )


def drop_hold(instance_id: str, key: LeaseKey) -> Update:
    """Return the write that takes *key* out of a host's HOLDS."""
    return Update(key=keys.holds(instance_id), delete=values(leases=frozenset({key})))


def _put_order(order: Order, *, was: Order | None) -> Put:
    key = keys.order(order.job, order.attempt)
    item = to_item(order) | live(order.pool, keys.live_order(order))
    if was is None:
        return Put(key=key, item=item, condition=ABSENT)
    return Put(key=key, item=item, condition=STATE_AND_TRY, values=_state_and_try(was))


STATE_AND_TRY = "#state = :was_state AND #try_n = :was_try"


def _state_and_try(order: Order) -> Item:
    return values(was_state=order.state, was_try=order.try_n)


def _put_try(row: Try, *, new: bool) -> Action:
    key = keys.order_try(row.job, row.attempt, row.n)
    if new:
        return Put(key=key, item=to_item(row), condition=ABSENT)
    return Update(key=key, assign=values(answer=row.answer), condition="attribute_exists(#pk)")


def _merge(attempt: Attempt) -> Update:
    known = rules.known(attempt) | {"job": attempt.job, "n": attempt.n}
    return Update(key=keys.attempt(attempt.job, attempt.n), assign=values(**known))


def _event(job_id: str, event: Event, seq: int) -> Put:
    item = to_item(event) | values(seq=seq) | expires(event.at + EVENTS_KEPT)
    return Put(key=keys.event(job_id, event), item=item)


def _chill(pool: str, capacity: CapacityPool, cold: Cold) -> Put:
    key = keys.cold(pool, capacity)
    return Put(key=key, item=to_item(cold) | expires(cold.until) | live(pool, key[1]))


def _remember(pool: str, capacity: CapacityPool, history: History) -> Update:
    key = keys.seen(pool, capacity)
    return Update(key=key, assign=live(pool, key[1]), add=to_item(history))


def _alive(job_id: str, attempt: int) -> Check:
    over = {f"over{n}": status for n, status in enumerate(sorted(TERMINAL))}
    return Check(
        key=keys.job(job_id),
        condition=f"NOT #status IN ({', '.join(f':{name}' for name in over)}) "
        "AND #attempt IN (:attempt, :before)",
        values=values(attempt=attempt, before=attempt - 1, **over),
    )


def _check(row: Job | Host | Lease | Order | Holds) -> Check:
    match row:
        case Job():
            return _check_version(keys.job(row.id), row.version)
        case Host():
            return _check_version(keys.host(row.instance_id), row.version)
        case Lease():
            return Check(
                key=keys.lease(row.key), condition="#beat = :beat", values=values(beat=row.beat)
            )
        case Order():
            key = keys.order(row.job, row.attempt)
            return Check(key=key, condition=STATE_AND_TRY, values=_state_and_try(row))
        case Holds(instance_id, leases) if leases:
            return Check(
                key=keys.holds(instance_id),
                condition="#leases = :leases",
                values=values(leases=leases),
            )
        case Holds(instance_id):
            return Check(key=keys.holds(instance_id), condition="attribute_not_exists(#leases)")
        case _:
            assert_never(row)


def _check_version(key: Key, version: int) -> Check:
    return Check(key=key, condition="#version = :version", values=values(version=version))
