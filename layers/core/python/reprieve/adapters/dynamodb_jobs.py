"""Jobs, their leases and their history in the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from reprieve.adapters import keys, rules
from reprieve.adapters.codec import Item, from_item, to_item
from reprieve.adapters.dynamodb import (
    ABSENT,
    Action,
    Put,
    RefusedError,
    Table,
    Update,
    expires,
    live,
    values,
)
from reprieve.adapters.keys import lease as lease_row
from reprieve.domain.errors import StaleError
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Lease, LeaseKey, LeaseState
from reprieve.ports.jobs import Live

EVENTS_KEPT = timedelta(days=90)


class DynamoJobStore:
    """``JobStore``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def submit(self, job: Job, lease: Lease) -> None:
        try:
            self._table.transact(
                Put(key=keys.lease(lease.key), item=to_item(lease), condition=ABSENT),
                Put(key=keys.job(job.id), item=job_item(job), condition=ABSENT),
            )
        except RefusedError as error:
            if error.index == 0:  # the token is ours alone: an earlier answer was lost
                return
            raise StaleError(f"job {job.id} exists") from error

    def read(self, job_id: str) -> Job | None:
        item = self._table.get(keys.job(job_id))
        return from_item(Job, item) if item else None

    def lease(self, key: LeaseKey) -> Lease | None:
        item = self._table.get(keys.lease(key))
        return from_item(Lease, item) if item else None

    def leases(self, keys: Iterable[LeaseKey]) -> dict[LeaseKey, Lease]:
        found = self._table.get_all(map(lease_row, keys))
        leases = [from_item(Lease, item) for item in found.values()]
        return {lease.key: lease for lease in leases}

    def update(self, job: Job) -> Job:
        stored = replace(job, version=job.version + 1)
        try:
            self._table.put(put_job(stored, was=job))
        except RefusedError as error:
            raise stale_job(job) from error
        return stored

    def end_attempt(
        self, job: Job, lease: Lease, *, successor: Lease | None, ended: Attempt
    ) -> Job:
        stored = replace(job, version=job.version + 1)
        closed = Update(
            key=keys.lease(lease.key),
            assign=values(state=LeaseState.CLOSED),
            add=values(beat=1),
            condition="#beat = :was_beat AND #state <> :state",
            values=values(was_beat=lease.beat),
        )
        actions: list[Action] = [put_job(stored, was=job), closed, merge_attempt(ended)]
        if successor:
            armed = Put(key=keys.lease(successor.key), item=to_item(successor), condition=ABSENT)
            actions.append(armed)
        if lease.state is LeaseState.HELD and lease.holder:
            actions.append(drop_hold(lease.holder.instance_id, lease.key))
        try:
            self._table.transact(*actions)
        except RefusedError as error:
            if error.index == 0:
                raise stale_job(job) from error
            raise StaleError(f"lease {lease.key} is no longer at beat {lease.beat}") from error
        return stored

    def arm(self, job: Job, lease: Lease) -> Job:
        stored = replace(job, version=job.version + 1)
        armed = Put(key=keys.lease(lease.key), item=to_item(lease), condition=ABSENT)
        try:
            self._table.transact(put_job(stored, was=job), armed)
        except RefusedError as error:
            raise stale_job(job) from error
        return stored

    def note_attempt(self, attempt: Attempt) -> None:
        self._table.update(merge_attempt(attempt))

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        items = self._table.partition(keys.job(job_id)[0], keys.ATTEMPT_PREFIX)
        return sorted((from_item(Attempt, item) for item in items), key=lambda row: row.n)

    def add_events(self, job_id: str, events: Sequence[Event]) -> None:
        self._table.put_all(
            Put(
                key=keys.event(job_id, event),
                item=to_item(event) | values(seq=seq) | expires(event.at + EVENTS_KEPT),
            )
            for seq, event in enumerate(events)
        )

    def events(self, job_id: str) -> Sequence[Event]:
        items = self._table.partition(keys.job(job_id)[0], keys.EVENT_PREFIX)
        told = [(from_item(Event, item), int(item["seq"]["N"])) for item in items]
        return [event for event, _ in sorted(told, key=lambda entry: (entry[0].at, entry[1]))]

    def live(self, pool: str) -> Live:
        return keys.read_live(self._table.live(pool))


def job_item(job: Job) -> Item:
    """Return the row of *job*, listed in the index until it is over."""
    return to_item(job) | live(job.pool, keys.live_job(job))


def put_job(stored: Job, *, was: Job) -> Put:
    """Return the write of *stored* over the version *was*."""
    return Put(
        key=keys.job(stored.id),
        item=job_item(stored),
        condition="#version = :was_version",
        values=values(was_version=was.version),
    )


def stale_job(job: Job) -> StaleError:
    return StaleError(f"job {job.id} is no longer at version {job.version}")


def merge_attempt(attempt: Attempt) -> Update:
    """Return the write of the fields that *attempt* knows."""
    known = rules.known(attempt) | {"job": attempt.job, "n": attempt.n}
    return Update(key=keys.attempt(attempt.job, attempt.n), assign=values(**known))


def drop_hold(instance_id: str, key: LeaseKey) -> Update:
    """Return the write that takes *key* out of a host's HOLDS."""
    return Update(key=keys.holds(instance_id), delete=values(leases=frozenset({key})))
