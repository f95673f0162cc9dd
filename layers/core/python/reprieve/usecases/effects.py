"""What a decision comes to: the rows it writes, and what is sent once they are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self, assert_never

from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.order import Order, OrderState, order_for
from reprieve.domain.settlement import (
    Arm,
    Decision,
    End,
    Facts,
    Move,
    Nothing,
    Reorder,
    Resend,
    Unpark,
)
from reprieve.ports.cloud import Mail
from reprieve.ports.rows import (
    AddEvents,
    CloseLease,
    DropHold,
    NoteAttempt,
    PutJob,
    PutLease,
    PutOrder,
    Write,
)
from reprieve.protocol import OrderMessage, Ticket

WITHOUT_HOST = frozenset({OrderState.OPEN, OrderState.NOT_NEEDED})


@dataclass(frozen=True, slots=True)
class Effects:
    """
    *writes* are one commit; after it the tickets and the orders are sent.

    What is lost in between, a redelivery or the sweep sends again.
    """

    writes: tuple[Write, ...] = ()
    tickets: tuple[tuple[str, Ticket], ...] = ()
    orders: tuple[OrderMessage, ...] = ()

    def __add__(self, other: Self) -> Self:
        """Return both, as one commit."""
        return type(self)(
            self.writes + other.writes, self.tickets + other.tickets, self.orders + other.orders
        )

    def send(self, mail: Mail) -> None:
        """Send what follows the commit."""
        for pool, ticket in self.tickets:
            mail.ticket(pool, ticket)
        for order in self.orders:
            mail.order(order)


def effects(decision: Decision, facts: Facts, *, stands: Order | None, now: datetime) -> Effects:
    """Return what *decision* comes to; *stands* is the order for the attempt that then waits."""
    told = (AddEvents(facts.job.id, decision.events),) if decision.events else ()
    return _change(decision, facts, stands=stands, now=now) + Effects(told)


def _change(decision: Decision, facts: Facts, *, stands: Order | None, now: datetime) -> Effects:
    match decision:
        case Nothing():
            return Effects()
        case Move(job):
            return Effects((PutJob(job), *((NoteAttempt(decision.note),) if decision.note else ())))
        case End():
            return _ended(decision, facts, stands=stands, now=now)
        case Resend(job):
            return Effects((PutJob(job),), tickets=_ticket(job))
        case Reorder(job, reason):
            return ordered(job, job.attempt, stands=stands, reason=reason, now=now)
        case Unpark(job, order, reason):
            return Effects(
                (PutJob(job), PutOrder(order, was=facts.order)),
                tickets=_ticket(job),
                orders=(OrderMessage(job.id, job.attempt, reason, job.pool),),
            )
        case Arm(job, successor, reason):
            armed = Effects((PutJob(job), PutLease(successor)), tickets=_ticket(job))
            return armed + ordered(job, job.attempt, stands=stands, reason=reason, now=now)
        case _:
            assert_never(decision)


def ordered(
    job: Job,
    attempt: int,
    *,
    stands: Order | None,
    reason: str,
    now: datetime,
    at_risk: int = 0,
    spare: bool = False,
    switch: bool = False,
    ring_again: bool = False,
) -> Effects:
    """
    Ask for a host for *attempt* of *job*; a notice and a requeue converge on one order.

    *ring_again*: an order without a host rings ``replace_host`` once more, as its first
    bell may have been lost with whoever wrote it, or it was a spare that wasn't bought.
    """
    message = OrderMessage(job.id, attempt, reason, job.pool)
    if stands is None:
        order = order_for(
            job, attempt, reason=reason, now=now, at_risk=at_risk, spare=spare, switch=switch
        )
        return Effects((PutOrder(order, was=None),), orders=(message,))
    if stands.pool != job.pool:  # the job moved to its fallback pool since
        moved = replace(stands.reopened(now=now), pool=job.pool)
        return Effects((PutOrder(moved, was=stands),), orders=(message,))
    # A host that was bought ahead may have left long before it is needed.
    ahead = stands.spare or stands.switch
    waits = stands.state in WITHOUT_HOST or (ahead and stands.state is OrderState.LANDED)
    rings = ring_again and waits
    return Effects(orders=(message,) if rings else ())


def closing(lease: Lease) -> tuple[Write, ...]:
    """Return the writes that end *lease* for everyone, its holder's row included."""
    held = lease.state is LeaseState.HELD and lease.holder is not None
    dropped = (DropHold(lease.holder.instance_id, lease.key),) if held and lease.holder else ()
    return (CloseLease(lease), *dropped)


def _ended(end: End, facts: Facts, *, stands: Order | None, now: datetime) -> Effects:
    if facts.lease is None:
        raise AssertionError
    job = end.job
    armed = (PutLease(end.successor),) if end.successor else ()
    over = Effects((PutJob(job), *closing(facts.lease), *armed, NoteAttempt(end.ended)))
    if job.status is not JobStatus.QUEUED:
        return over
    # Armed first, then sent: a crash in between is found by the ticket's age.
    waits = Effects(tickets=_ticket(job))
    return over + waits + ordered(job, job.attempt, stands=stands, reason=end.reason, now=now)


def _ticket(job: Job) -> tuple[tuple[str, Ticket], ...]:
    return ((job.pool, Ticket(job.id, job.attempt, job.token, job.spec.needs)),)
