"""Settle a job: read the facts, decide, commit. Every trigger of the system ends here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError, UnknownOutcomeError
from reprieve.domain.host import InstanceState
from reprieve.domain.job import Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.settlement import Decision, End, Facts, Nothing, decide, requeue
from reprieve.ports.cloud import Fleet, Mail
from reprieve.ports.rows import Rows, Snapshot, Wanted, Write
from reprieve.usecases.effects import effects
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

    rows: Rows
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
        seen: Snapshot | None = None,
        also: Sequence[Write] = (),
        ask_ec2: bool = False,
        silent_beat: int | None = None,
        gone_beat: int | None = None,
        requeued: bool = False,
    ) -> Decision:
        """
        Bring *job_id* in line with its lease and return what was done.

        *seen*: rows that were just read, so that the first try need not read them.
        *also*: writes without a condition that belong to the same commit.
        *ask_ec2*: find out now whether the holder's instance is gone; *gone_beat*: the beat
        that was read before EC2 said so. *silent_beat*: the beat at which the sweep counted
        the lease as silent. On any other beat the holder spoke since.
        *requeued*: a person wants the job to go on, now.
        Raises ``StaleError`` or ``UnknownOutcomeError`` when others keep writing first.
        """
        read, again = seen or Snapshot(), Wanted()
        doubted: Job | None = None
        for remaining in reversed(range(TRIES)):
            try:
                read = read_job(self.rows, job_id, read, again)
                facts = self._facts(
                    job_id, read, ask_ec2=ask_ec2, silent_beat=silent_beat, gone_beat=gone_beat
                )
                if facts is None:
                    return Nothing("no such job", anomaly=True)
                judge = requeue if requeued else decide
                decision = judge(facts, now=self.now(), clock=self.clock, token=self.token())
                if remaining and _contradicts(decision) and facts.job != doubted:
                    # Its row and its lease's were read one after the other: they contradict
                    # each other only if the job's row still says the same afterwards.
                    doubted, read = facts.job, Snapshot()
                    continue
                self._carry_out(decision, facts, read, also)
            except (StaleError, UnknownOutcomeError):
                # Whatever happened is in the rows: read them again and decide again.
                if not remaining:
                    raise
                read, again = Snapshot(), again | read.read
                continue
            self.told(decision)
            return decision
        raise AssertionError  # the last round returned or raised

    def _facts(
        self,
        job_id: str,
        read: Snapshot,
        *,
        ask_ec2: bool,
        silent_beat: int | None,
        gone_beat: int | None,
    ) -> Facts | None:
        facts = facts_of(read, job_id)
        if facts is None or facts.lease is None:
            return facts
        lease = facts.lease
        instance = InstanceState.UNKNOWN
        if gone_beat is not None and lease.beat == gone_beat:
            instance = InstanceState.GONE
        elif ask_ec2:
            instance = self._ask(lease)
        silent = silent_beat is not None and lease.beat == silent_beat
        return Facts(facts.job, lease, facts.host, instance, silent, facts.order)

    def _ask(self, lease: Lease) -> InstanceState:
        """
        Ask EC2 about the holder.

        After the lease was read: the write's condition on its beat then proves that the
        host said nothing since EC2 was asked.
        """
        if lease.state is not LeaseState.HELD or lease.holder is None:
            return InstanceState.UNKNOWN
        holder = lease.holder.instance_id
        return self.fleet.states([holder])[holder]

    def _carry_out(
        self, decision: Decision, facts: Facts, read: Snapshot, also: Sequence[Write]
    ) -> None:
        waiting = facts.job if isinstance(decision, Nothing) else decision.job
        stands = read.order(waiting.id, waiting.attempt)
        done = effects(decision, facts, stands=stands, now=self.now())
        self.rows.commit((*done.writes, *also))
        done.send(self.mail)
        if isinstance(decision, End) and decision.retire:
            self.retire(decision.retire, reason=decision.reason)


def _contradicts(decision: Decision) -> bool:
    return isinstance(decision, Nothing) and decision.anomaly


def read_job(rows: Rows, job_id: str, seen: Snapshot, hint: Wanted | None = None) -> Snapshot:
    """
    Return *seen* with every row that settling *job_id* needs.

    A row has to be read to learn the name of the next, unless *hint* knows them all.
    """
    while True:
        missing = (_wanted(job_id, seen) | (hint or Wanted())) - seen.read
        if not missing:
            return seen
        more = rows.read(missing)
        if more.unread:
            message = f"job {job_id}: the table left rows unread"
            raise UnknownOutcomeError(message)
        seen |= more


def facts_of(read: Snapshot, job_id: str) -> Facts | None:
    """Return the facts about *job_id* in rows that were read; None if there is no such job."""
    job = read.job(job_id)
    if job is None or job.terminal:
        return Facts(job, None) if job else None
    lease = read.lease(job.lease_key)
    host = read.host(lease.holder.instance_id) if lease and lease.holder else None
    order = read.order(job.id, job.attempt)
    return Facts(job, lease, host, order=order)


def _wanted(job_id: str, seen: Snapshot) -> Wanted:
    wanted = Wanted(jobs=frozenset({job_id}))
    job = seen.job(job_id)
    if job is None or job.terminal:
        return wanted
    # The next attempt's order too: a notice may have placed it already.
    orders = frozenset({(job.id, job.attempt), (job.id, job.attempt + 1)})
    wanted |= Wanted(leases=frozenset({job.lease_key}), orders=orders)
    lease = seen.lease(job.lease_key)
    if lease and lease.holder:
        wanted |= Wanted(hosts=frozenset({lease.holder.instance_id}))
    return wanted
