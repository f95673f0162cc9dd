"""Hosts and cold pools in the table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reprieve.adapters import keys
from reprieve.adapters.codec import Item, from_item, to_item
from reprieve.adapters.dynamodb import (
    ABSENT,
    Put,
    RefusedError,
    Table,
    Update,
    expires,
    live,
    values,
)
from reprieve.domain.errors import StaleError
from reprieve.domain.host import Host, HostState
from reprieve.domain.lease import Holds
from reprieve.domain.notice import Notice

GONE_KEPT = timedelta(days=7)
RIVALS = 5  # writers who may come first before an advance gives up


class DynamoHostStore:
    """``HostStore``: a notice escalates over the version that was read."""

    def __init__(self, table: Table, *, clock: Callable[[], datetime] | None = None) -> None:
        self._table = table
        self._clock = clock or functools.partial(datetime.now, UTC)

    def adopt(self, host: Host) -> bool:
        try:
            self._table.transact(
                Put(key=keys.host(host.instance_id), item=self._item(host), condition=ABSENT),
                # + 0 makes the beat and leaves an existing one, and the leases with it
                Update(
                    key=keys.holds(host.instance_id),
                    assign=values(instance_id=host.instance_id),
                    add=values(beat=0),
                ),
            )
        except RefusedError:
            return False
        return True

    def read(self, instance_ids: Iterable[str]) -> dict[str, Host]:
        found = self._table.get_all(keys.host(i) for i in instance_ids)
        hosts = [from_item(Host, item) for item in found.values()]
        return {host.instance_id: host for host in hosts}

    def advance(
        self, instance_id: str, state: HostState, *, reason: str, notice: Notice | None = None
    ) -> Host | None:
        for _ in range(RIVALS):
            item = self._table.get(keys.host(instance_id))
            if item is None:
                return None
            host = from_item(Host, item)
            after = host.advanced(state, reason=reason, notice=notice)
            if after == host or self._replace(after):
                return after
        raise StaleError(f"host {instance_id} is being written by others")

    def holds(self, instance_ids: Iterable[str]) -> dict[str, Holds]:
        found = self._table.get_all(keys.holds(i) for i in instance_ids)
        held = [from_item(Holds, item) for item in found.values() if "beat" in item]
        return {row.instance_id: row for row in held}

    def _replace(self, host: Host) -> bool:
        try:
            self._table.put(
                Put(
                    key=keys.host(host.instance_id),
                    item=self._item(replace(host, version=host.version + 1)),
                    condition="#version = :was_version",
                    values=values(was_version=host.version),
                )
            )
        except RefusedError:
            return False
        return True

    def _item(self, host: Host) -> Item:
        item = to_item(host) | live(host.pool, keys.live_host(host))
        if host.state is HostState.GONE:
            item |= expires(self._clock() + GONE_KEPT)
        return item
