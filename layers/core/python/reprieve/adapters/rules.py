"""Small rules that the in-memory and the AWS form of a port share."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from reprieve.domain.host import Host
from reprieve.domain.job import Attempt, Job
from reprieve.domain.lease import Holder, Holds, Lease, LeaseState, Outcome
from reprieve.domain.order import Order
from reprieve.ports.leases import Progress
from reprieve.ports.rows import (
    CloseLease,
    PutHost,
    PutJob,
    PutLease,
    PutOrder,
    PutTry,
    Unchanged,
    Write,
)


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


def not_as_read(write: Write) -> str:
    """Return in words why *write* can't be made."""
    match write:
        case PutJob(job) | Unchanged(Job() as job):
            return f"job {job.id} is no longer at version {job.version}"
        case PutHost(host) | Unchanged(Host() as host):
            return f"host {host.instance_id} is no longer at version {host.version}"
        case CloseLease(lease) | Unchanged(Lease() as lease):
            return f"lease {lease.key} is no longer at beat {lease.beat}"
        case PutOrder(order, was):
            state = f"{was.state} at try {was.try_n}" if was else "absent"
            return f"order {order.job}#{order.attempt} is no longer {state}"
        case Unchanged(Order() as order):
            name = f"{order.job}#{order.attempt}"
            return f"order {name} is no longer {order.state} at try {order.try_n}"
        case Unchanged(Holds() as holds):
            return f"host {holds.instance_id} holds something else by now"
        case PutLease(lease):
            return f"lease {lease.key} exists"
        case PutTry(row, new):
            return f"try {row.n} of {row.job}#{row.attempt} {'exists' if new else 'has no plan'}"
        case _:
            return f"{type(write).__name__} was refused"
