"""Settle a job: read the facts, decide, write. Every trigger of the system ends here."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError, UnknownOutcomeError
from reprieve.domain.host import InstanceState
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import LeaseState
from reprieve.domain.order import Order
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
    decide,
    requeue,
)
from reprieve.ports.cloud import Fleet, Mail
from reprieve.ports.hosts import HostStore
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.protocol import OrderMessage, Ticket
from reprieve.usecases.retire import Retire

TRIES = 5


def _nobody(_decision: Decision) -> None:
    return


def new_token() -> str:
    """Return a fence token that no earlier attempt can have."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Settle:
    """The use case; *told* hears of every decision that was carried out, to count it."""

    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    fleet: Fleet
    mail: Mail
    retire: Retire
    clock: NoticeClock
    now: Callable[[], datetime]
    token: Callable[[], str] = new_token
    told: Callable[[Decision], None] = _nobody

    def __call__(
        self,
        job_id: str,
        *,
        ask_ec2: bool = False,
        silent_beat: int | None = None,
        requeued: bool = False,
    ) -> Decision:
        """
        Bring *job_id* in line with its lease and return what was done.

        *ask_ec2*: find out now whether the holder's instance is gone. *silent_beat*: the
        beat at which the sweep counted the lease as silent; on any other beat it spoke.
        *requeued*: a person wants the job to go on, now.
        Raises ``StaleError`` or ``UnknownOutcomeError`` when others keep writing first.
        """
        for remaining in reversed(range(TRIES)):
            facts = self._read(job_id, ask_ec2=ask_ec2, silent_beat=silent_beat)
            if facts is None:
                return Nothing("no such job", anomaly=True)
            judge = requeue if requeued else decide
            decision = judge(facts, now=self.now(), clock=self.clock, token=self.token())
            try:
                self._carry_out(decision, facts)
            except (StaleError, UnknownOutcomeError):
                # Whatever happened is in the rows: read them again and decide again.
                if not remaining:
                    raise
                continue
            self.told(decision)
            return decision
        raise AssertionError  # the last round returned or raised

    def _read(self, job_id: str, *, ask_ec2: bool, silent_beat: int | None) -> Facts | None:
        job = self.jobs.read(job_id)
        if job is None or job.terminal:
            return Facts(job, None) if job else None
        lease = self.jobs.lease(job.lease_key)
        holder = lease.holder if lease and lease.state is LeaseState.HELD else None
        released_by = lease.holder if lease else None
        host, instance = None, InstanceState.UNKNOWN
        if released_by:
            host = self.hosts.read([released_by.instance_id]).get(released_by.instance_id)
        if holder and ask_ec2:
            # After the lease was read: the write's condition on its beat then proves that
            # the host said nothing since EC2 was asked.
            instance = self.fleet.states([holder.instance_id])[holder.instance_id]
        order: Order | None = None
        if lease and lease.state is LeaseState.FREE:
            order = self.orders.read(job.id, job.attempt)
        silent = bool(lease and silent_beat is not None and lease.beat == silent_beat)
        return Facts(job, lease, host, instance, silent, order)

    def _carry_out(self, decision: Decision, facts: Facts) -> None:
        match decision:
            case Nothing():
                return
            case Move(job, _, note, events):
                self.jobs.update(job)
                if note:
                    self.jobs.note_attempt(note)
                self.jobs.add_events(job.id, events)
            case End():
                self._end(decision, facts)
            case Resend(job, _):
                self._send(self.jobs.update(job))
            case Reorder(job, reason):
                self._order(job, reason)
            case Unpark(job, order, reason):
                self._send(self.orders.unpark(job, order, was=facts.order))
                self.mail.order(OrderMessage(job.id, job.attempt, reason))
            case Arm(job, successor, reason):
                armed = self.jobs.arm(job, successor)
                self._send(armed)
                self._order(armed, reason)
            case _:
                assert_never(decision)

    def _end(self, end: End, facts: Facts) -> None:
        if facts.lease is None:
            raise AssertionError
        job = self.jobs.end_attempt(end.job, facts.lease, successor=end.successor, ended=end.ended)
        self.jobs.add_events(job.id, end.events)
        if job.status is JobStatus.QUEUED:
            # Armed first, then sent: a crash in between is found by the ticket's age.
            self._send(job)
            self._order(job, end.reason)
        if end.retire:
            self.retire(end.retire, reason=end.reason)

    def _send(self, job: Job) -> None:
        self.mail.ticket(job.pool, Ticket(job.id, job.attempt, job.token))

    def _order(self, job: Job, reason: str) -> None:
        place_order(self.orders, self.mail, job, job.attempt, reason=reason, now=self.now())


def place_order(
    orders: OrderStore, mail: Mail, job: Job, attempt: int, *, reason: str, now: datetime
) -> None:
    """Ask for a host for *attempt* of *job*; a notice and a requeue converge on one order."""
    order = Order(job.id, attempt, job.pool, reason, created_at=now, updated_at=now)
    _, created = orders.place(order)
    if created:
        mail.order(OrderMessage(job.id, attempt, reason))
