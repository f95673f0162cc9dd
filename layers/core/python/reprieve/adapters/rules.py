"""Small rules that the in-memory and the AWS form of a port share."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from reprieve.domain.job import Attempt
from reprieve.domain.lease import Holder, Lease, LeaseState, Outcome
from reprieve.ports.leases import Progress


def known(attempt: Attempt) -> dict[str, Any]:
    """Return the fields that *attempt* knows: those that differ from their default."""
    values = {f: getattr(attempt, f.name) for f in fields(attempt) if f.default is not MISSING}
    return {f.name: value for f, value in values.items() if value != f.default}


def told(progress: Progress) -> dict[str, Any]:
    """Return the fields that *progress* tells; None leaves the row's value as it is."""
    values = {f.name: getattr(progress, f.name) for f in fields(progress)}
    return {name: value for name, value in values.items() if value is not None}


def may_release(holder: Holder, owner: Holder | None, outcome: Outcome) -> bool:
    """Whether *holder* may write *outcome* for *owner*: another boot may only say interrupted."""
    if owner is None or owner.instance_id != holder.instance_id:
        return False
    return owner == holder or outcome is Outcome.INTERRUPTED


def released(row: Lease) -> bool:
    """Whether a release reached *row*, also when functions closed it since."""
    return row.state in {LeaseState.DONE, LeaseState.CLOSED} and row.outcome is not None
