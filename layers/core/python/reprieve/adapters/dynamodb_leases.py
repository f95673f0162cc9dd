"""
The lease as a host writes it.

Only UpdateItem and ConditionCheckItem, on keys that begin with ``LEASE#`` and ``HOST#``:
a host may do no more, so reads go by what a write returns.
"""

from __future__ import annotations

from reprieve.adapters import keys, rules
from reprieve.adapters.codec import Item, from_item
from reprieve.adapters.dynamodb import Check, RefusedError, Table, Update, values
from reprieve.adapters.dynamodb_rows import drop_hold
from reprieve.domain.errors import LeaseLostError, NotAdoptedError
from reprieve.domain.host import HostState
from reprieve.domain.lease import (
    Cause,
    Holder,
    Holds,
    Lease,
    LeaseKey,
    LeaseState,
    Outcome,
    Phase,
)
from reprieve.ports.leases import Claim, Progress

ADOPTED = "attribute_exists(#beat)"  # a row without it is what a stranger's drop left
HELD_BY_ME = "#state = :held AND #holder = :me"
HELD_BY_THIS_INSTANCE = "#state = :held AND begins_with(#holder, :me)"


class DynamoHostLeases:
    """``HostLeases``."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def claim(self, key: LeaseKey, holder: Holder) -> Claim:
        try:
            self._table.transact(
                Update(
                    key=keys.lease(key),
                    assign=values(state=LeaseState.HELD, holder=holder, phase=Phase.CLAIMED),
                    add=values(beat=1),
                    condition="#state = :free",
                    values=values(free=LeaseState.FREE),
                ),
                Update(
                    key=keys.holds(holder.instance_id),
                    add=values(leases=frozenset({key})),
                    condition=f"{ADOPTED} AND attribute_not_exists(#leases)",
                ),
                Check(
                    key=keys.host(holder.instance_id),
                    condition="#state = :ready",
                    values=values(ready=HostState.READY),
                ),
            )
        except RefusedError as error:
            return _refused_claim(error, holder)
        return Claim.WON

    def renew(self, key: LeaseKey, holder: Holder, progress: Progress) -> Lease:
        try:
            return self._write(key, holder, assign=values(**rules.told(progress)))
        except RefusedError as error:
            raise _lost(key, holder) from error

    def seal(self, key: LeaseKey, holder: Holder, base: str | None) -> Lease:
        same = "#base = :base" if base else "attribute_not_exists(#base)"
        try:
            return self._write(
                key,
                holder,
                assign=values(sealed_attempt=key.attempt, phase=Phase.SEALED)
                | (values(base=base) if base else {}),
                remove=() if base else ("base",),
                condition=f"{HELD_BY_ME} AND (#sealed_attempt <> :sealed_attempt OR {same})",
            )
        except RefusedError as error:
            row = _row(error)
            if row and row.sealed and row.state is LeaseState.HELD and row.holder == holder:
                return row
            raise _lost(key, holder) from error

    def release(
        self,
        key: LeaseKey,
        holder: Holder,
        *,
        outcome: Outcome,
        cause: Cause,
        exit_code: int | None,
        progress: Progress,
        detail: str = "",
    ) -> None:
        said = values(state=LeaseState.DONE, outcome=outcome, cause=cause, detail=detail)
        if exit_code is not None:
            said |= values(exit_code=exit_code)
        any_boot = outcome is Outcome.INTERRUPTED
        me = f"{holder.instance_id}/" if any_boot else holder
        try:
            self._table.transact(
                Update(
                    key=keys.lease(key),
                    assign=values(**rules.told(progress)) | said,
                    add=values(beat=1),
                    condition=HELD_BY_THIS_INSTANCE if any_boot else HELD_BY_ME,
                    values=values(held=LeaseState.HELD, me=me),
                ),
                drop_hold(holder.instance_id, key),
            )
        except RefusedError as error:
            row = _row(error)
            if row and rules.released(row) and rules.may_release(holder, row.holder, outcome):
                return  # an earlier answer was lost
            raise _lost(key, holder) from error

    def idle(self, instance_id: str) -> Holds:
        try:
            item = self._table.update(
                Update(key=keys.holds(instance_id), add=values(beat=1), condition=ADOPTED)
            )
        except RefusedError as error:
            raise NotAdoptedError(f"host {instance_id} isn't adopted") from error
        return from_item(Holds, item)

    def drop_hold(self, instance_id: str, key: LeaseKey) -> None:
        self._table.update(drop_hold(instance_id, key))

    def _write(
        self,
        key: LeaseKey,
        holder: Holder,
        *,
        assign: Item,
        remove: tuple[str, ...] = (),
        condition: str = HELD_BY_ME,
    ) -> Lease:
        item = self._table.update(
            Update(
                key=keys.lease(key),
                assign=assign,
                add=values(beat=1),
                remove=remove,
                condition=condition,
                values=values(held=LeaseState.HELD, me=holder),
            )
        )
        return from_item(Lease, item)


def _refused_claim(error: RefusedError, holder: Holder) -> Claim:
    if error.index > 0:
        return Claim.NOT_READY
    row = _row(error)
    if row is None:
        return Claim.MISSING
    mine = row.state is LeaseState.HELD and row.holder == holder
    return Claim.WON if mine else Claim.TAKEN


def _row(error: RefusedError) -> Lease | None:
    return from_item(Lease, error.item) if error.item else None


def _lost(key: LeaseKey, holder: Holder) -> LeaseLostError:
    return LeaseLostError(f"lease {key} isn't held by {holder}")
