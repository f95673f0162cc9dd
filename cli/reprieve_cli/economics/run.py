"""
One job, one policy, one start: a run through the trace, from event to event.

Only ``Planner`` and ``reprieve.domain.economics`` decide for our own policy. What happens is
the same for everyone: notices before the end of a span, saves that stop the job and become
durable later, boots, restores, bills by the second.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from reprieve.domain.economics import interval, spending
from reprieve.domain.economics.deadline import Move, UniformProgress
from reprieve.domain.economics.hosting import (
    SaveCost,
    Terms,
    save_interval,
    stays_until_reclaimed,
)
from reprieve.domain.economics.pools import silent_hazard_per_hour
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.economics.spending import HOUR_SECONDS
from reprieve_cli.economics.market import Market, Pool
from reprieve_cli.economics.placement import ASK, Found, Memory
from reprieve_cli.economics.policies import DeadlineRule, Leaving, Placement, Policy, Saving
from reprieve_cli.economics.production import Planner, moment
from reprieve_cli.economics.scenario import Job, World

FIXED_SECONDS = 1800.0
MOST_TRIED = 20  # emergency checkpoints of this job that the account remembers
RULES = {DeadlineRule.UNIFORM, DeadlineRule.UNIFORM_DURABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one start came to. An unfinished one is cut at the horizon."""

    start: float
    finished: bool
    makespan_seconds: float
    usd: float
    charged_seconds: float
    lost_seconds: float
    useful_seconds: float
    interruptions: int
    launches: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host's life; ``pool`` is None for on-demand, which nobody reclaims."""

    number: int
    pool: Pool | None
    launched: float
    ready: float
    reclaimed: float
    heard: float
    breaks: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Work on one host: T of it, then C for a save, and so on; times are absolute."""

    begin: float
    interval: float
    save: float
    durable_after: float

    def useful(self, at: float) -> float:
        """Return the work done by *at*."""
        ran = max(0.0, at - self.begin)
        if math.isinf(self.interval):
            return ran
        cycles, rest = divmod(ran, self.interval + self.save)
        return cycles * self.interval + min(rest, self.interval)

    def durable(self, *, stopped: float, gone: float) -> float:
        """Return the work in saves that ended by *stopped* and were durable by *gone*."""
        if math.isinf(self.interval):
            return 0.0
        ran = min(stopped, gone - self.durable_after) - self.begin
        return max(0.0, ran // (self.interval + self.save)) * self.interval

    def finish(self, work: float) -> float:
        """Return when *work* is done; the last stretch needs no save."""
        saves = 0 if math.isinf(self.interval) else max(0, math.ceil(work / self.interval) - 1)
        return self.begin + work + saves * self.save


@dataclass(frozen=True, slots=True)
class Handover:
    """After a host: when to ask for the next, before when it can't start, or who it is."""

    request: float
    not_before: float
    successor: Host | None = None


class Run:
    """The mutable state of one start: ``begin``, then ``job`` for each, then ``outcome``."""

    def __init__(
        self,
        policy: Policy,
        job: Job,
        world: World,
        market: Market,
        planner: Planner,
        *,
        seed: int,
        index: int,
    ) -> None:
        self.policy, self.work, self.world = policy, job, world
        self._coins = random.Random(f"coins {seed} {index}")
        self._breaks = random.Random(f"breaks {seed} {index}")
        self._memory = Memory(
            market=market,
            planner=planner,
            world=world,
            luck=random.Random(f"market {seed} {index}"),
            home=index,
            credit=policy.counts_credit,
        )
        self._rate = SuccessRate()
        self._start = self._limit = self._at = 0.0
        self._idle: Host | None = None
        self._jobs = 0
        self._finished = False
        self._done = 0.0
        self._saved = False
        self._to_the_end = False
        self._region = ""
        self._usd = 0.0
        self._charged = 0.0
        self._lost = 0.0
        self._hours = 0.0
        self._broken = 0
        self._interruptions = 0
        self._launches = 0
        self._rule = self._deadline_rule()

    def begin(self, start: float) -> None:
        """Set the start; call it before the first ``job``."""
        self._start, self._limit = start, start + self.world.horizon_seconds
        self._at = start
        hours = self.world.history_hours
        if hours:
            market = self._memory.market
            known = {pool.capacity: pool.history(start, hours) for pool in market.pools}
            self._memory.histories.update(known)
            tried = min(sum(history.interruptions for history in known.values()), MOST_TRIED)
            self._rate = SuccessRate(tried, round(tried * self._recall))

    @property
    def _recall(self) -> float:
        """q, or 0 where the emergency checkpoint takes longer than the notice lasts."""
        left = self.world.notice_seconds - self.world.delivery_seconds
        return self.work.recall if self.work.emergency_seconds <= left else 0.0

    def job(self) -> float | None:
        """Run the next job on the host that is still there; return its end, if it had one."""
        self._done, self._saved = 0.0, False
        end = self._job(self._at)
        self._finished = end is not None
        self._at = self._limit if end is None else end
        self._jobs += self._finished
        return end

    def outcome(self) -> Outcome:
        """Give back the idle host and return what it all came to."""
        if self._idle:
            self._end(self._idle, self._at, reclaimed=False)
            self._idle = None
        return Outcome(
            start=self._start,
            finished=self._finished,
            makespan_seconds=self._at - self._start,
            usd=self._usd,
            charged_seconds=self._charged,
            lost_seconds=self._lost,
            useful_seconds=self._jobs * self.work.work_seconds,
            interruptions=self._interruptions,
            launches=self._launches,
            refused=self._memory.refused,
        )

    # One job

    def _job(self, at: float) -> float | None:
        not_before = at
        host, self._idle = self._idle, None
        host = host or self._next_host(at, not_before=at)
        while host:
            begin = max(host.ready, not_before)
            if self._saved:
                begin += self.work.restore_seconds
                self._pay_transfer(host)
            progress = self._progress(host, begin)
            finish = progress.finish(self.work.work_seconds - self._done)
            stop = host.heard if self.policy.answers_notice else host.reclaimed
            switch = self._switch(host, progress, before=min(finish, host.breaks))
            event = min(finish, stop, host.breaks, switch.ready if switch else math.inf)
            if event >= self._limit:
                self._end(host, self._limit, reclaimed=False)
                return None
            if event == finish:
                self._idle = host
                return finish
            if switch and event == switch.ready:
                handover = self._switched(host, progress, switch)
            elif event == host.breaks:
                handover = self._broke(host, progress)
            elif self.policy.answers_notice:
                handover = self._noticed(host, progress)
            else:
                handover = self._reclaimed(host, progress)
            not_before = handover.not_before
            host = handover.successor or self._next_host(
                handover.request, not_before=handover.not_before
            )
        return None

    def _noticed(self, host: Host, progress: Progress) -> Handover:
        """Stop, save, leave; the replacement was asked for at the notice."""
        heard = host.heard
        self._interruptions += 1
        work = progress.useful(heard)
        saved_at = heard
        if work > 0:
            in_time = heard + self.work.emergency_seconds <= host.reclaimed
            held = self._coins.random() < self.work.recall and in_time
            self._rate = self._rate.after(success=held)
            saved_at = min(heard + self.work.emergency_seconds, host.reclaimed)
            kept = work if held else progress.durable(stopped=heard, gone=host.reclaimed)
            self._keep(work, kept)
        self._memory.noticed(host.number, heard=heard, reclaimed=host.reclaimed)
        ended = self._leave(host, saved_at)
        asked = heard if self.policy.replaces_at_notice else ended + self.policy.detection_seconds
        return Handover(asked, saved_at)

    def _leave(self, host: Host, done_at: float) -> float:
        """End a host that has nothing left to do before its reclaim; return when."""
        ended = host.reclaimed if self._stays(host) else done_at
        self._end(host, ended, reclaimed=ended >= host.reclaimed, interrupted=True)
        return ended

    def _stays(self, host: Host) -> bool:
        match self.policy.leaves:
            case Leaving.AT_ONCE:
                return False
            case Leaving.NEVER:
                return True
            case Leaving.UNLESS_FREE:
                terms = Terms(launched_at=moment(host.launched))
                return stays_until_reclaimed(terms, reclaimed_at=moment(host.reclaimed)).yes

    def _reclaimed(self, host: Host, progress: Progress) -> Handover:
        """Run into the end."""
        self._interruptions += 1
        gone = host.reclaimed
        self._keep(progress.useful(gone), progress.durable(stopped=gone, gone=gone))
        self._end(host, gone, reclaimed=True, interrupted=True)
        asked = gone + self.policy.detection_seconds
        return Handover(asked, asked)

    def _broke(self, host: Host, progress: Progress) -> Handover:
        """Lose a host without any notice; it is billed until somebody sees it."""
        self._interruptions += 1
        self._broken += 1
        gone = host.breaks
        self._keep(progress.useful(gone), progress.durable(stopped=gone, gone=gone))
        seen = min(gone + self.policy.detection_seconds, host.reclaimed)
        self._end(host, seen, reclaimed=seen >= host.reclaimed)
        return Handover(seen, seen)

    def _switched(self, host: Host, progress: Progress, successor: Host) -> Handover:
        """Move from on-demand back to Spot, at a moment of our choosing."""
        work = progress.useful(successor.ready)
        self._keep(work, work)
        ready = successor.ready + self.work.save_seconds + self.work.durable_seconds
        self._end(host, ready, reclaimed=False)
        return Handover(ready, ready, successor)

    def _keep(self, work: float, kept: float) -> None:
        self._done += kept
        self._saved = self._saved or kept > 0
        self._lost += work - kept

    # Hosts

    def _next_host(self, request: float, *, not_before: float) -> Host | None:
        """Find a host that lives until it can start; those that don't are paid all the same."""
        while True:
            host = self._acquire(request)
            if host is None:
                return None
            begins = max(host.ready, not_before)
            stop = host.heard if self.policy.answers_notice else host.reclaimed
            if stop > begins or host.pool is None:
                return host
            self._interruptions += 1
            if self.policy.answers_notice:
                self._memory.noticed(host.number, heard=stop, reclaimed=host.reclaimed)
                ended = self._leave(host, stop)
            else:
                ended = host.reclaimed
                self._end(host, ended, reclaimed=True, interrupted=True)
            at_notice = self.policy.answers_notice and self.policy.replaces_at_notice
            request = stop if at_notice else ended + self.policy.detection_seconds

    def _acquire(self, at: float) -> Host | None:
        self._memory.failures = 0
        while at < self._limit:
            if self.policy.placement is Placement.ON_DEMAND or self._out_of_slack(at):
                self._to_the_end = True
                return self._on_demand(at)
            self._memory.settle(at)
            found = ASK[self.policy.placement](self._memory, at)
            if isinstance(found, Found):
                return self._spot(found)
            if self._pays_on_demand(at):
                return self._on_demand(at)
            at = min(max(found.retry, at + 1.0), self._next_decision(at))
        return None

    def _spot(self, found: Found) -> Host:
        self._launches += 1
        ready = found.launched + self.work.boot_seconds
        noticed = max(found.launched, found.reclaimed - self.world.notice_seconds)
        return Host(
            number=found.number,
            pool=found.pool,
            launched=found.launched,
            ready=ready,
            reclaimed=found.reclaimed,
            heard=min(noticed + self.world.delivery_seconds, found.reclaimed),
            breaks=ready + self._lasts(),
        )

    def _on_demand(self, at: float) -> Host:
        self._launches += 1
        launched = at + self.world.launch_seconds
        ready = launched + self.work.boot_seconds
        return Host(
            number=0,
            pool=None,
            launched=launched,
            ready=ready,
            reclaimed=math.inf,
            heard=math.inf,
            breaks=ready + self._lasts(),
        )

    def _lasts(self) -> float:
        rate = self.world.silent_losses_per_hour * self.work.hosts / HOUR_SECONDS
        return self._breaks.expovariate(rate) if rate else math.inf

    def _end(self, host: Host, at: float, *, reclaimed: bool, interrupted: bool = False) -> None:
        """Pay for *host* until *at* and remember how it went."""
        lived = max(0.0, at - host.launched)
        free = reclaimed and self.world.first_hour_credit
        charged = spending.charged_seconds(lived=timedelta(seconds=lived), reclaimed=free)
        price = host.pool.usd_per_hour if host.pool else self.world.on_demand_usd_per_hour
        self._usd += price * self.work.hosts * charged / HOUR_SECONDS
        self._charged += charged * self.work.hosts
        self._hours += lived / HOUR_SECONDS
        if host.pool:
            self._memory.ended(host.number, at=at, interrupted=interrupted)

    def _pay_transfer(self, host: Host) -> None:
        """Fetch the checkpoint, across regions for a fee."""
        region = host.pool.region if host.pool else self._region
        if self._region and region != self._region:
            self._usd += self.work.state_gigabytes * self.world.transfer_usd_per_gigabyte
        self._region = region

    # Saving

    def _progress(self, host: Host, begin: float) -> Progress:
        if host.pool and not self._region:
            self._region = host.pool.region
        return Progress(
            begin, self._interval(host), self.work.save_seconds, self.work.durable_seconds
        )

    def _interval(self, host: Host) -> float:
        match self.policy.saving:
            case Saving.NEVER:
                return math.inf
            case Saving.FIXED:
                return FIXED_SECONDS
            case Saving.YOUNG:
                return interval.checkpoint_interval(
                    save_seconds=self.work.save_seconds,
                    hazard_per_hour=self._hazard(host),
                    silent_hazard_per_hour=self._silent(),
                    longest=self._longest(),
                ).total_seconds()
            case Saving.BEST:
                terms = Terms(
                    hazard_per_hour=self._hazard(host), silent_hazard_per_hour=self._silent()
                )
                return save_interval(
                    terms,
                    self._rate,
                    SaveCost(self.work.save_seconds, self.work.emergency_seconds),
                    window_seconds=self.world.notice_seconds - self.world.delivery_seconds,
                    due=self._longest() is not interval.LONGEST,
                ).total_seconds()

    def _hazard(self, host: Host) -> float:
        return self._memory.history(host.pool).hazard_per_hour if host.pool else 0.0

    def _longest(self) -> timedelta:
        bounded = self._rule and self.policy.deadline is not DeadlineRule.UNIFORM
        return interval.LONGEST_WITH_DEADLINE if bounded else interval.LONGEST

    def _silent(self) -> float:
        return silent_hazard_per_hour(losses=self._broken, hours=self._hours)

    # Deadlines

    def _deadline_rule(self) -> UniformProgress | None:
        if self.work.deadline_hours is None or self.policy.deadline is DeadlineRule.NONE:
            return None
        published = self.policy.deadline is DeadlineRule.UNIFORM
        longest = interval.LONGEST_WITH_DEADLINE.total_seconds()
        return UniformProgress(
            work_seconds=self.work.work_seconds,
            deadline_seconds=self.work.deadline_hours * HOUR_SECONDS,
            changeover_seconds=self.work.boot_seconds + self.work.restore_seconds,
            undurable_seconds=0.0 if published else longest + self.work.save_seconds,
        )

    def _out_of_slack(self, at: float) -> bool:
        rule = self._rule
        return rule is not None and (
            self._to_the_end or rule.out_of_slack(elapsed=at - self._start, done=self._done)
        )

    def _pays_on_demand(self, at: float) -> bool:
        """Tell whether a job that found no Spot pays for on-demand meanwhile."""
        if self._rule is None or self.policy.deadline not in RULES:
            return False
        move = self._rule.when_idle(elapsed=at - self._start, done=self._done, spot_available=False)
        return move is not Move.WAIT

    def _next_decision(self, at: float) -> float:
        """Return when waiting ends by itself: behind the line, or out of slack."""
        rule = self._rule
        if rule is None:
            return math.inf
        elapsed = at - self._start - 1.0
        if self.policy.deadline in RULES:
            ahead = rule.next_decision(elapsed=elapsed, done=self._done)
        else:
            net = rule.net(done=self._done)
            ahead = net if net > elapsed else None
        return math.inf if ahead is None else self._start + ahead + 1.0

    def _switch(self, host: Host, progress: Progress, *, before: float) -> Host | None:
        """Return the Spot host that relieves an on-demand one, once progress allows."""
        rule = self._rule
        if host.pool or rule is None or self._to_the_end:
            return None
        if self.policy.deadline not in RULES:
            return None
        cold = self.world.clock.cold.total_seconds()
        at = progress.begin
        while at < min(before, self._limit):
            move = rule.when_on_demand(
                elapsed=at - self._start,
                done=self._done + progress.useful(at),
                spot_available=True,
            )
            if move is not Move.SPOT:
                at += self.world.clock.sweep.total_seconds()
                continue
            self._memory.failures = 0
            self._memory.settle(at)
            found = ASK[self.policy.placement](self._memory, at)
            if isinstance(found, Found):
                spot = self._spot(found)
                if min(spot.heard, spot.reclaimed) > spot.ready + self._handing_over:
                    if spot.ready < before:
                        return spot
                    self._end(spot, max(before, spot.launched), reclaimed=False)
                    return None  # the job is done before the host is ready
                self._memory.noticed(spot.number, heard=spot.heard, reclaimed=spot.reclaimed)
                self._leave(spot, min(spot.heard, spot.reclaimed))
                at = spot.heard
            at += cold
        return None

    @property
    def _handing_over(self) -> float:
        return self.work.save_seconds + self.work.durable_seconds
