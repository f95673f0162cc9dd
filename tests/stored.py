"""Rows put where a test needs them, through the port that the product writes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.order import FleetAnswer, Order, Plan, Try
from reprieve.ports.rows import (
    AddEvents,
    CloseLease,
    DropHold,
    NoteAttempt,
    PutJob,
    PutLease,
    PutOrder,
    PutTry,
    Rows,
    Write,
)
from tests.builders import NOON, an_attempt


def submit(rows: Rows, job: Job, lease: Lease) -> None:
    rows.commit([PutJob(job, new=True), PutLease(lease)])


def end(rows: Rows, job: Job, lease: Lease, *, successor: Lease | None = None) -> Job:
    """End an attempt as functions do; return the job as it is stored."""
    writes: list[Write] = [PutJob(job), CloseLease(lease)]
    writes.append(NoteAttempt(an_attempt(lease.key.attempt, lease.key.job)))
    if successor:
        writes.append(PutLease(successor))
    if lease.state is LeaseState.HELD and lease.holder:
        writes.append(DropHold(lease.holder.instance_id, lease.key))
    rows.commit(writes)
    return replace(job, version=job.version + 1)


def note(rows: Rows, attempt: Attempt) -> None:
    rows.commit([NoteAttempt(attempt)])


def tell(rows: Rows, job_id: str, events: Sequence[Event]) -> None:
    rows.commit([AddEvents(job_id, tuple(events))])


def place(rows: Rows, order: Order, *, was: Order | None = None) -> None:
    rows.commit([PutOrder(order, was=was)])


def plan(rows: Rows, stored: Plan, answer: FleetAnswer | None = None) -> None:
    """Store a try's plan, and EC2's answer to it."""
    row = Try(stored.job, stored.attempt, stored.try_n, plan=stored, at=NOON)
    rows.commit([PutTry(row, new=True)])
    if answer:
        rows.commit([PutTry(replace(row, answer=answer))])
