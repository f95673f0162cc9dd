"""
What the facts mean for a job: the one decision behind every trigger.

A report, a notice, the sweep and a state change all end here. The lease is the fact,
whatever rang the bell; so the same rows give the same answer however often, and in
whatever order, the bells ring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from reprieve.domain.checkpoint import step_of
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.host import Host, HostState, InstanceState, Market
from reprieve.domain.job import Attempt, CheckpointRef, Counters, Event, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState, Outcome, Phase
from reprieve.domain.notice import TAKES_BACK
from reprieve.domain.order import Order, OrderState
from reprieve.domain.prices import discount_of
from reprieve.domain.spec import Remedy
from reprieve.domain.steering import past_break_even

NOT_FOUND_COUNTS_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Facts:
    """
    What strong reads said, a moment ago.

    *host* is the row of the lease's holder. *instance* is EC2's word if it was asked
    now, UNKNOWN otherwise. *silent* is the sweep's own count (protocol: silence is
    counted by the observer). *order* is the order that should bring the current attempt a host.
    """

    job: Job
    lease: Lease | None
    host: Host | None = None
    instance: InstanceState = InstanceState.UNKNOWN
    silent: bool = False
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The rows already say what the facts mean."""

    reason: str
    anomaly: bool = False
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Write the job's row; the lease stays as it is."""

    job: Job
    reason: str
    note: Attempt | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """
    Close the attempt; with *successor* the next one is armed in the same transaction.

    The flags feed the alarms: ``lost``, a loss nobody announced; ``unsaved``, a notice
    that didn't end in a checkpoint of the last step; ``stuck``, attempt after attempt
    without a new one.
    """

    job: Job
    ended: Attempt
    reason: str
    events: tuple[Event, ...]
    successor: Lease | None = None
    retire: str | None = None
    under_notice: bool = False
    unsaved: bool = False
    lost: bool = False
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Resend:
    """Put the ticket on the queue again, after writing that it was."""

    job: Job
    reason: str
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Reorder:
    """Ask for a host: no order stands for the waiting attempt."""

    job: Job
    reason: str
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Unpark:
    """A parked job's time has come: queue it and raise its order's try in one write."""

    job: Job
    order: Order
    reason: str
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Arm:
    """A job that needed a person goes on: its next attempt is armed, no budget is charged."""

    job: Job
    successor: Lease
    reason: str
    events: tuple[Event, ...] = ()


# Each carries its reason, and `events` tells it in the job's timeline wherever a host's own
# report doesn't: storing them is a part of carrying the decision out.
Decision = Nothing | Move | End | Resend | Reorder | Unpark | Arm


def decide(facts: Facts, *, now: datetime, clock: NoticeClock, token: str) -> Decision:
    """Return what *facts* mean. *token* becomes the next attempt's, if one is armed."""
    job, lease = facts.job, facts.lease
    if job.terminal:
        return Nothing(f"job is {job.status}")
    if lease is None:
        return Nothing("the current attempt has no lease row", anomaly=True)
    match lease.state:
        case LeaseState.CLOSED:
            parked = job.status is JobStatus.PARKED
            return Nothing("waits for you" if parked else "lease closed", anomaly=not parked)
        case LeaseState.DONE:
            return _released(facts, lease, now=now, token=token)
        case LeaseState.HELD:
            return _held(facts, lease, now=now, clock=clock, token=token)
        case LeaseState.FREE:
            return _waiting(facts, now=now, clock=clock)
        case _:
            assert_never(lease.state)


def requeue(facts: Facts, *, now: datetime, clock: NoticeClock, token: str) -> Decision:
    """Return what a person's word means: the job goes on from its newest checkpoint, now."""
    job, lease = facts.job, facts.lease
    if job.terminal or lease is None:
        return decide(facts, now=now, clock=clock, token=token)
    match lease.state:
        case LeaseState.HELD:
            return _ended(facts, lease, Cause.OPERATOR, now=now, token=token)
        case LeaseState.CLOSED if job.status is JobStatus.PARKED:
            seen = replace(
                job, counters=replace(job.counters, no_progress=0), forgiven=job.steps_lost
            )
            armed, successor = _next_attempt(seen, lease, now=now, token=token, reason="requeued")
            told = _told(armed, "requeued", "an operator asked for it; its next attempt waits", now)
            return Arm(armed, successor, "requeued", told)
        case LeaseState.FREE if job.status is JobStatus.QUEUED:
            return _resent(job, "an operator asked for it", now=now)
        case _:
            due = replace(facts, job=replace(job, next_try_at=now))
            return decide(due, now=now, clock=clock, token=token)


def stood_down(host: Host, attempt: int, *, clock: NoticeClock) -> Event | None:
    """
    Return the timeline's line about advice that nothing followed; None where none stands.

    Its moment follows from the advice, so it is stored once however often it is told.
    """
    ended = host.stands_down_at(clock)
    if ended is None or host.notice is None or host.state is not HostState.READY:
        return None
    text = f"{host.notice.kind} notice for {host.instance_id} stands down: nothing followed"
    return Event(ended, "notice", text, attempt, {"host": host.instance_id})


def _released(facts: Facts, lease: Lease, *, now: datetime, token: str) -> Decision:
    cause = lease.cause or Cause.REQUEUE
    if lease.outcome is Outcome.FINISHED:
        job = _with_pointer(facts.job, lease).to(JobStatus.SUCCEEDED, reason="finished")
        step = f" at step {lease.step}" if lease.step is not None else ""
        return _finish(facts, lease, job, now=now, reason=f"finished{step}", cause=Cause.DONE)
    return _ended(facts, lease, cause, now=now, token=token)


def _held(facts: Facts, lease: Lease, *, now: datetime, clock: NoticeClock, token: str) -> Decision:
    host = facts.host
    if host is None or host.pool != facts.job.pool:
        return Nothing("the lease's holder isn't a host of this pool", anomaly=True)
    if _gone(facts.instance, host, now=now):
        cause = Cause.NOTICE if _under_notice(host) else Cause.LOST
        return _ended(facts, lease, cause, now=now, token=token, by_evidence=True)
    if facts.silent and not _draining_in_time(host, now=now, clock=clock):
        return _ended(
            facts,
            lease,
            Cause.SILENT,
            now=now,
            token=token,
            by_evidence=True,
            retire=host.instance_id,
        )
    return _follow(facts, lease, host, now=now)


def _follow(facts: Facts, lease: Lease, host: Host, *, now: datetime) -> Decision:
    """Bring the job's row up to what its holder is doing; never from DRAINING back to RUNNING."""
    job = _with_pointer(facts.job, lease)
    started = lease.sealed and lease.phase not in {None, Phase.CLAIMED, Phase.RESTORING}
    if _under_notice(host) or job.status is JobStatus.DRAINING:
        status, reason = JobStatus.DRAINING, "its host is under notice"
    elif started or job.status is JobStatus.RUNNING:
        status, reason = JobStatus.RUNNING, "running"
    else:
        status, reason = JobStatus.STARTING, "claimed"
    if status is job.status and job.checkpoint == facts.job.checkpoint:
        return Nothing(f"already {status}")
    moved = status is not job.status
    note = replace(
        _attempt(lease, host),
        started_at=now if facts.job.status in {JobStatus.QUEUED, JobStatus.PARKED} else None,
        restored_step=lease.restored_step,
    )
    return Move(
        job=replace(job.to(status, reason=reason), needs_you=False, next_try_at=None),
        reason=reason,
        note=note if moved else None,
    )


def _waiting(facts: Facts, *, now: datetime, clock: NoticeClock) -> Decision:
    job, order = facts.job, facts.order
    if job.status is JobStatus.PARKED:
        if job.next_try_at is None or now < job.next_try_at:
            return Nothing("parked")
        why = "its next try is due"
        queued = replace(
            job.to(JobStatus.QUEUED, reason=why), next_try_at=None, updated_at=now, ticket_at=now
        )
        told = _told(job, "queued", f"queued again: {why}", now)
        if not order or order.state is not OrderState.UNFILLED:
            return Move(queued, why, events=told)
        raised = replace(
            order,
            state=OrderState.OPEN,
            try_n=order.try_n + 1,
            tier=0,
            updated_at=now,
            next_try_at=None,
            outcome="",
        )
        return Unpark(queued, raised, why, told)
    if job.status is not JobStatus.QUEUED:
        return Nothing(f"lease is free while the job is {job.status}", anomaly=True)
    if order and order.state is OrderState.UNFILLED:
        parked = replace(
            job.to(JobStatus.PARKED, reason=order.outcome),
            next_try_at=order.next_try_at,
            needs_you=order.needs_you,
            counters=replace(job.counters, launch_failures=job.counters.launch_failures + 1),
        )
        text = f"no host to be had: {order.outcome}"
        return Move(parked, text, events=_told(job, "parked", text, now))
    if order is None:
        return _reordered(job, "no order stands for the waiting attempt", now=now)
    if order.pool != job.pool:
        return _reordered(job, f"its order stands in pool {order.pool}", now=now)
    if now - job.ticket_at > clock.resend:
        return _resent(job, "nobody took its ticket", now=now)
    return Nothing("waits for a host")


def _resent(job: Job, why: str, *, now: datetime) -> Resend:
    told = _told(job, "queued", f"ticket sent again: {why}", now)
    return Resend(replace(job, ticket_at=now), why, told)


def _reordered(job: Job, why: str, *, now: datetime) -> Reorder:
    return Reorder(job, why, _told(job, "ordered", f"a host is ordered: {why}", now))


def _told(job: Job, kind: str, text: str, now: datetime) -> tuple[Event, ...]:
    return (Event(now, kind, text, job.attempt),)


def _ended(
    facts: Facts,
    lease: Lease,
    cause: Cause,
    *,
    now: datetime,
    token: str,
    by_evidence: bool = False,
    retire: str | None = None,
) -> End:
    """Charge the budgets and arm the next attempt, unless a budget is used up."""
    job = _with_pointer(facts.job, lease)
    counters = _charge(job.counters, lease, cause)
    job = replace(
        job,
        counters=counters,
        steps_lost=job.steps_lost + _lost_steps(lease),
        rate=_rated(job.rate, facts.host, lease, cause),
    )
    over = _over_budget(job, lease, cause, facts.host)
    if over is not None:
        end = _finish(facts, lease, over, now=now, reason=over.reason, cause=cause)
    else:
        moved = _elsewhere(job) if _stuck(job) else job
        reason = _why_requeued(job, moved, lease, cause)
        armed, successor = _next_attempt(moved, lease, now=now, token=token, reason=reason)
        end = _finish(facts, lease, armed, now=now, reason=reason, cause=cause)
        end = replace(end, successor=successor)
    return replace(
        end,
        retire=retire,
        lost=by_evidence and not end.under_notice,
        stuck=_stuck(job) and end.job.status is not JobStatus.FAILED,
    )


def _over_budget(job: Job, lease: Lease, cause: Cause, host: Host | None) -> Job | None:
    """
    Return *job* as it ends or waits for a person, or None while it may go on.

    Interruptions and launch failures are nobody's fault and end no job.
    """
    if job.counters.crashes > job.spec.max_restarts:
        crashes = f"{lease.detail or cause}; {job.spec.max_restarts} restarts used up"
        return job.to(JobStatus.FAILED, reason=crashes)
    if cause is Cause.NO_VALID_CHECKPOINT:
        detail = f": {lease.detail}" if lease.detail else ""
        why = f"no valid checkpoint{detail}"
    elif _stuck(job) and _elsewhere(job) is job:
        why = _without_progress(job)
    elif not (why := _spot_lost(job, cause, host)):
        return None
    return replace(job.to(JobStatus.PARKED, reason=why), needs_you=True)


def _stuck(job: Job) -> bool:
    return job.counters.no_progress >= job.spec.max_without_progress


def _spot_lost(job: Job, cause: Cause, host: Host | None) -> str:
    """Return why a job that Spot has cost too much waits for a person, if it was told to."""
    if job.spec.if_spot_loses is not Remedy.PARK or cause is Cause.OPERATOR or host is None:
        return ""
    if host.capacity.market is not Market.SPOT or host.usd_per_hour is None:
        return ""
    where = host.capacity
    return past_break_even(job, discount_of(where.type, where.zone, host.usd_per_hour))


def _elsewhere(job: Job) -> Job:
    """
    Return *job* where it may get on, counted anew, or as it is if it can't move.

    Its fallback pool comes first; without one it may ask for on-demand hosts, once.
    """
    fallback = job.spec.fallback_pool
    anew = replace(job.counters, no_progress=0)
    if fallback is not None and fallback != job.pool:
        return replace(job, pool=fallback, counters=anew)
    if job.spec.if_stuck is Remedy.ON_DEMAND and not job.on_demand:
        return replace(job, on_demand=_without_progress(job), counters=anew)
    return job


def _rated(rate: SuccessRate, host: Host | None, lease: Lease, cause: Cause) -> SuccessRate:
    """Return *rate* with this attempt's emergency checkpoint, if there was one to make."""
    noticed = host is not None and host.notice is not None and host.notice.kind in TAKES_BACK
    if not noticed or cause is Cause.DONE:
        return rate
    if lease.step is not None and lease.step <= (lease.restored_step or 0):
        return rate  # nothing was done that could be saved
    return rate.after(success=_progressed(lease) and not _lost_steps(lease))


def _without_progress(job: Job) -> str:
    return f"{job.counters.no_progress} attempts in a row without a new checkpoint"


def _next_attempt(
    job: Job, lease: Lease, *, now: datetime, token: str, reason: str
) -> tuple[Job, Lease]:
    """Return the job at its next attempt, and that attempt's lease with the seal carried on."""
    armed = replace(
        job.to(JobStatus.QUEUED, reason=reason),
        attempt=job.attempt + 1,
        token=token,
        updated_at=now,
        ticket_at=now,
        next_try_at=None,
        needs_you=False,
    )
    successor = Lease(
        key=armed.lease_key,
        pool=job.pool,
        spec=job.spec,
        sealed_attempt=lease.sealed_attempt,
        base=lease.base,
        pointer=job.checkpoint.manifest if job.checkpoint else None,
        rate=job.rate,
    )
    return armed, successor


def _finish(
    facts: Facts, lease: Lease, job: Job, *, now: datetime, reason: str, cause: Cause
) -> End:
    lost, again = _lost_steps(lease), _passed_over(lease)
    under_notice = facts.host is not None and _under_notice(facts.host)
    ended = replace(
        _attempt(lease, facts.host),
        ended_at=now,
        outcome=lease.outcome or Outcome.INTERRUPTED,
        cause=cause,
        restored_step=lease.restored_step,
        last_step=lease.step,
        committed_step=lease.committed_step,
        steps_lost=lost + again,
    )
    event = Event(
        now,
        "ended",
        reason,
        lease.key.attempt,
        {"cause": cause, "step": lease.step, "durable": lease.durable_step, "lost": lost + again},
    )
    return End(
        job=replace(job, updated_at=now, steps_lost=job.steps_lost + again),
        ended=ended,
        reason=reason,
        events=(event,),
        under_notice=under_notice,
        unsaved=under_notice and cause is not Cause.DONE and (lost > 0 or not _progressed(lease)),
    )


def _attempt(lease: Lease, host: Host | None) -> Attempt:
    """Return what is known of where the attempt ran."""
    known = Attempt(
        job=lease.key.job,
        n=lease.key.attempt,
        instance_id=lease.holder.instance_id if lease.holder else None,
    )
    if host is None:
        return known
    return replace(
        known,
        instance_type=host.capacity.type,
        zone=host.capacity.zone,
        market=host.capacity.market,
        usd_per_hour=host.usd_per_hour,
    )


def _charge(counters: Counters, lease: Lease, cause: Cause) -> Counters:
    """
    Charge one attempt to the budgets, once, from its end; an interruption isn't a crash.

    A crash isn't counted as an attempt without progress either: its own budget bounds it.
    """
    if _progressed(lease) or cause is Cause.OPERATOR:
        counters = replace(counters, no_progress=0)  # a person's word starts the count anew
        fruitless = 0
    else:
        fruitless = 1
    match cause:
        case Cause.CRASH | Cause.SETUP_FAILED:
            return replace(counters, crashes=counters.crashes + 1)
        case Cause.NOTICE | Cause.LOST | Cause.SILENT | Cause.REBOOT | Cause.STOP:
            return replace(
                counters,
                interruptions=counters.interruptions + 1,
                no_progress=counters.no_progress + fruitless,
            )
        case Cause.REQUEUE:
            return replace(counters, no_progress=counters.no_progress + fruitless)
        case Cause.DONE | Cause.OPERATOR | Cause.NO_VALID_CHECKPOINT:
            return counters
        case _:
            assert_never(cause)


def _why_requeued(job: Job, moved: Job, lease: Lease, cause: Cause) -> str:
    durable = lease.durable_step
    if durable is None and job.checkpoint:  # it ended before it could say from where it began
        durable = job.checkpoint.step
    origin = f"from step {durable}" if durable is not None else "from the start"
    words = {
        Cause.NOTICE: "its host was taken back",
        Cause.LOST: "its host is gone, nobody announced it",
        Cause.SILENT: "its host fell silent",
        Cause.REBOOT: "its host rebooted",
        Cause.STOP: "its host was stopped",
        Cause.REQUEUE: "it asked to be requeued",
        Cause.CRASH: f"it crashed ({lease.detail or f'exit code {lease.exit_code}'})",
        Cause.SETUP_FAILED: f"its setup failed ({lease.detail or f'exit code {lease.exit_code}'})",
        Cause.OPERATOR: "an operator asked for it",
    }
    where = ""
    if moved.pool != job.pool:
        where = f" in pool {moved.pool}: {_without_progress(job)}"
    elif moved is not job:
        where = f" on demand: {_without_progress(job)}"
    return f"{words.get(cause, cause)}; resumes {origin}{where}"


def _with_pointer(job: Job, lease: Lease) -> Job:
    """
    Set the pointer to what the holder committed; only a sealed attempt's commits count.

    It rises within an attempt. The next one may have begun below it, because what it
    named was bad.
    """
    if not lease.sealed or lease.committed_step is None or lease.committed_manifest is None:
        return job
    stands = job.checkpoint
    place = step_of(stands.manifest) if stands else None
    earlier = place is not None and place[0] < lease.key.attempt
    if stands and stands.step >= lease.committed_step and not earlier:
        return job
    return replace(job, checkpoint=CheckpointRef(lease.committed_step, lease.committed_manifest))


def _progressed(lease: Lease) -> bool:
    return lease.committed_step is not None and lease.committed_step > (lease.restored_step or 0)


def _lost_steps(lease: Lease) -> int:
    if lease.step is None or lease.outcome is Outcome.FINISHED:
        return 0
    return max(0, lease.step - (lease.durable_step or 0))


def _passed_over(lease: Lease) -> int:
    """Return the steps of bad checkpoints: from what was known on arming to what was whole."""
    known = step_of(lease.pointer) if lease.pointer else None
    if known is None or lease.restored_step is None or not lease.sealed:
        return 0
    return max(0, known[1] - lease.restored_step)


def _under_notice(host: Host) -> bool:
    return (
        host.state is not HostState.READY and host.notice is not None and host.notice.takes_the_host
    )


def _gone(instance: InstanceState, host: Host, *, now: datetime) -> bool:
    """Whether EC2's word, asked for now, says that the host is gone."""
    match instance:
        case InstanceState.GONE:
            return True
        case InstanceState.NOT_FOUND:
            # DescribeInstances is eventually consistent: a young instance may not show yet.
            return now - host.launched_at > NOT_FOUND_COUNTS_AFTER
        case InstanceState.ALIVE | InstanceState.UNKNOWN:
            return False
        case _:
            assert_never(instance)


def _draining_in_time(host: Host, *, now: datetime, clock: NoticeClock) -> bool:
    """Whether a drain is still inside its notice, where silence may be the saving itself."""
    if not _under_notice(host) or host.notice is None:
        return False
    reclaimed_at = host.notice.reclaimed_at or host.notice.noticed_at + clock.notice
    return now < reclaimed_at
