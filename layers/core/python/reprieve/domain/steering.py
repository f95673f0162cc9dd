"""
In which market a job's next host is asked for first, and why.

Three things can say so: attempts that got nowhere, redone work that made Spot dearer than
on-demand, and a deadline. Pure: what is known of a job and of prices goes in, a move with its
numbers comes out, None where the pool's own order of tiers stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve.domain.capacity import Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics import spending
from reprieve.domain.economics.deadline import Move, UniformProgress
from reprieve.domain.economics.hosting import USUAL_SAVE_SECONDS, Fact
from reprieve.domain.economics.interval import LONGEST_WITH_DEADLINE
from reprieve.domain.economics.switches import Policy
from reprieve.domain.job import Event, Job
from reprieve.domain.prices import discount_of
from reprieve.domain.spec import Remedy

# Fewer interruptions say nothing of the next ones.
LEAST_INTERRUPTIONS = 3


@dataclass(frozen=True, slots=True)
class Steer:
    """A move and its reason; *again_at* is when waiting must be thought over at the latest."""

    move: Move
    text: str
    facts: dict[str, Fact]
    again_at: datetime | None = None

    def event(self, now: datetime, attempt: int) -> Event:
        """Return the timeline's line."""
        return Event(now, "policy", self.text, attempt, {"move": self.move, **self.facts})


def before_asking(
    job: Job,
    pool: Pool,
    usd: Mapping[tuple[str, str], float],
    *,
    now: datetime,
    clock: NoticeClock,
) -> Steer | None:
    """Return why on-demand is asked before Spot, if it is; *usd* are Spot's prices."""
    if job.on_demand:
        return Steer(Move.ON_DEMAND, f"on demand: {job.on_demand}", {})
    return _out_of_slack(job, pool, now=now, clock=clock) or _past_break_even(job, pool, usd)


def without_spot(job: Job, pool: Pool, *, now: datetime, clock: NoticeClock) -> Steer | None:
    """Return what a job with a deadline does when Spot has nothing: pay, or wait."""
    rule = uniform_progress(job, pool, clock)
    if rule is None:
        return None
    elapsed, done = _elapsed(job, now), work_done(job, _durable(job))
    move = rule.when_idle(elapsed=elapsed, done=done, spot_available=False)
    again = rule.next_decision(elapsed=elapsed, done=done)
    return Steer(
        move,
        f"{'waits for Spot' if move is Move.WAIT else 'on demand'}: {_stand(rule, elapsed, done)}",
        _facts(rule, elapsed, done),
        None if again is None else job.created_at + timedelta(seconds=again),
    )


def while_on_demand(
    job: Job, step: int | None, pool: Pool, *, now: datetime, clock: NoticeClock
) -> Steer | None:
    """Return whether a job that runs on demand, now at *step*, may go back to Spot."""
    rule = uniform_progress(job, pool, clock)
    if rule is None or job.on_demand:
        return None
    elapsed, done = _elapsed(job, now), work_done(job, step)
    move = rule.when_on_demand(elapsed=elapsed, done=done, spot_available=True)
    return Steer(move, f"{move}: {_stand(rule, elapsed, done)}", _facts(rule, elapsed, done))


def past_break_even(job: Job, discount: float | None) -> str:
    """Return why Spot at *discount* has cost this job more than on-demand would have, if so."""
    if discount is None or job.counters.interruptions < LEAST_INTERRUPTIONS:
        return ""
    redone, useful = job.steps_lost - job.forgiven, _durable(job) or 0
    if not spending.past_break_even(
        redone_seconds=redone, useful_seconds=useful, discount=discount
    ):
        return ""
    share = f"{redone / useful:.0%}" if useful else "all"
    return (
        f"past break-even: {redone:,} steps redone beside {useful:,} useful ones ({share}), "
        f"and a discount of {discount:.0%} pays for {spending.break_even(discount):.0%}"
    )


def uniform_progress(job: Job, pool: Pool, clock: NoticeClock) -> UniformProgress | None:
    """
    Return the rule for *job*, None without a deadline.

    d is what a host may take to boot, and as long as a lease to restore. The work that isn't
    durable is at most that of one interval and its save.
    """
    due = job.spec.due
    if due is None or not pool.follows(Policy.DEADLINE):
        return None
    interval = job.spec.save_every or LONGEST_WITH_DEADLINE
    return UniformProgress(
        work_seconds=due.work.total_seconds(),
        deadline_seconds=(due.at - job.created_at).total_seconds(),
        changeover_seconds=(clock.boot + clock.lease).total_seconds(),
        undurable_seconds=interval.total_seconds() + USUAL_SAVE_SECONDS,
    )


def work_done(job: Job, step: int | None) -> float:
    """Return c(t) in seconds: the share of its steps that is done, of the work they take."""
    due = job.spec.due
    if due is None:
        return 0.0
    return due.work.total_seconds() * min((step or 0) / due.steps, 1.0)


def _out_of_slack(job: Job, pool: Pool, *, now: datetime, clock: NoticeClock) -> Steer | None:
    rule = uniform_progress(job, pool, clock)
    if rule is None:
        return None
    elapsed, done = _elapsed(job, now), work_done(job, _durable(job))
    if not rule.out_of_slack(elapsed=elapsed, done=done):
        return None
    text = f"{Move.ON_DEMAND_TO_THE_END}: {_stand(rule, elapsed, done)}"
    return Steer(Move.ON_DEMAND_TO_THE_END, text, _facts(rule, elapsed, done))


def _past_break_even(job: Job, pool: Pool, usd: Mapping[tuple[str, str], float]) -> Steer | None:
    if job.spec.if_spot_loses is not Remedy.ON_DEMAND or not pool.follows(Policy.BREAK_EVEN):
        return None
    discounts = [d for place, price in usd.items() if (d := discount_of(*place, price)) is not None]
    best = max(discounts, default=None)
    why = past_break_even(job, best)
    if not why or best is None:
        return None
    facts: dict[str, Fact] = {
        "redone_steps": job.steps_lost - job.forgiven,
        "useful_steps": _durable(job) or 0,
        "discount": round(best, 4),
        "break_even": round(spending.break_even(best), 4),
    }
    return Steer(Move.ON_DEMAND, f"on demand: {why}", facts)


def _durable(job: Job) -> int | None:
    return job.checkpoint.step if job.checkpoint else None


def _elapsed(job: Job, now: datetime) -> float:
    return (now - job.created_at).total_seconds()


def _stand(rule: UniformProgress, elapsed: float, done: float) -> str:
    ahead = (done - rule.line(elapsed)) / 60
    slack = rule.slack(elapsed=elapsed, done=done) / 60
    where = f"{ahead:.0f} min ahead of" if ahead >= 0 else f"{-ahead:.0f} min behind"
    return (
        f"{where} its line to the deadline, {slack:.0f} min of slack, "
        f"{rule.least_slack / 60:.0f} min is the least"
    )


def _facts(rule: UniformProgress, elapsed: float, done: float) -> dict[str, Fact]:
    return {
        "done_s": round(done, 1),
        "line_s": round(rule.line(elapsed), 1),
        "slack_s": round(rule.slack(elapsed=elapsed, done=done), 1),
        "least_slack_s": round(rule.least_slack, 1),
    }
