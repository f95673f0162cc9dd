"""Jobs, their leases and their history in the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reprieve.adapters import keys
from reprieve.adapters.codec import from_item
from reprieve.adapters.dynamodb import Table
from reprieve.adapters.keys import lease as lease_row
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Lease, LeaseKey
from reprieve.ports.jobs import Live


class DynamoJobStore:
    """``JobStore``."""

    def __init__(self, table: Table) -> None:
        self._table = table

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

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        items = self._table.partition(keys.job(job_id)[0], keys.ATTEMPT_PREFIX)
        return sorted((from_item(Attempt, item) for item in items), key=lambda row: row.n)

    def events(self, job_id: str) -> Sequence[Event]:
        items = self._table.partition(keys.job(job_id)[0], keys.EVENT_PREFIX)
        told = [(from_item(Event, item), int(item["seq"]["N"])) for item in items]
        return [event for event, _ in sorted(told, key=lambda entry: (entry[0].at, entry[1]))]

    def live(self, pool: str) -> Live:
        return keys.read_live(self._table.live(pool))
