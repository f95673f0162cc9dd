"""
What a job would cost and when it would end, pool by pool, before anything is spent.

Formulas give the interval and the chances; the distributions are draws: a hazard from what is
known of the pool (``reprieve.domain.economics.pools``), then interruptions at random. The same
draws serve every pool, and the same job gives the same digits. Waiting for capacity isn't in
it: nobody can know that in advance, and a job that may use several pools seldom waits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import fmean

from reprieve.domain.clock import REAL_NOTICE
from reprieve.domain.economics import interval, odds, spending
from reprieve.domain.economics.deadline import UniformProgress
from reprieve.domain.economics.pools import (
    NOTHING_KNOWN,
    PRIOR_HOURS,
    PRIOR_INTERRUPTIONS,
    History,
)
from reprieve.domain.economics.recall import Window
from reprieve.domain.economics.spending import HOUR_SECONDS
from reprieve_cli.economics.jobfile import USUAL_EMERGENCY, KnownPool, PlannedJob
from reprieve_cli.economics.listed import Listing, listing

DRAWS = 1000
DELIVERY_SECONDS = 5.0  # from EC2's notice until the host knows
PATIENCE_HOURS = 30 * 24.0  # a job without checkpoints that isn't done by then counts as never
CHANCES = 100  # hazards over which the chance of ever finishing is averaged


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution: its mean and three of its quantiles."""

    mean: float
    p5: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run the job: a type on Spot, or on demand (``spot`` False)."""

    type: str
    zone: str
    spot: bool
    usd_per_hour: float
    on_demand_usd_per_hour: float | None
    listed: Listing
    history: History
    fits: bool
    largest_gigabytes: float | None
    recall: float
    interval_seconds: float
    overhead: float
    no_interruption: float
    interruptions: float
    finishes: float
    hours: Spread | None
    usd: Spread | None
    on_time: float | None
    break_even: float | None

    @property
    def name(self) -> str:
        """Type, and zone where it matters."""
        return f"{self.type} {self.zone}".strip()

    @property
    def pays(self) -> bool | None:
        """Whether an hour that counts is cheaper here than on demand; None if nobody knows."""
        if self.on_demand_usd_per_hour is None:
            return None
        return spending.spot_pays(
            spot_usd_per_hour=self.usd_per_hour,
            spot_overhead=self.overhead,
            on_demand_usd_per_hour=self.on_demand_usd_per_hour,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """What a deadline allows; ``switch_slack_hours`` is when Spot must give way at the latest."""

    hours: float
    feasible: bool
    switch_slack_hours: float
    on_demand_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The whole plan: ways that can be priced, cheapest first, on demand, what to know."""

    job: PlannedJob
    spot: Sequence[Option]
    on_demand: Option | None
    deadline: Deadline | None
    unpriced: Sequence[str]
    warnings: Sequence[str] = ()

    @property
    def best(self) -> Option | None:
        """The cheapest way that pays, by what it is expected to cost."""
        paying = [option for option in self.spot if option.pays is not False and option.usd]
        return paying[0] if paying else None


def forecast(job: PlannedJob) -> Forecast:
    """Return the plan of *job*."""
    spot, on_demand, unpriced = [], [], []
    futures = _Futures()
    for known in _ways(job):
        listed = listing(known.type, job.region)
        usd = known.usd_per_hour if known.usd_per_hour is not None else listed.spot_usd
        sure = known.on_demand_usd_per_hour
        sure = listed.on_demand_usd if sure is None else sure
        if usd is None:
            unpriced.append(known.type)
        else:
            spot.append(_option(job, known, listed, futures, usd=usd, on_demand=sure, spot=True))
        if sure is not None:
            on_demand.append(
                _option(job, known, listed, futures, usd=sure, on_demand=sure, spot=False)
            )
    spot.sort(key=_cost)
    on_demand.sort(key=_cost)
    surest = on_demand[0] if on_demand else None
    plan = Forecast(
        job=job,
        spot=spot,
        on_demand=surest,
        deadline=_deadline(job, surest),
        unpriced=unpriced,
    )
    return replace(plan, warnings=_warnings(plan))


def ever_finishes(job: PlannedJob, history: History) -> float:
    """Return the chance that *job*, without checkpoints, is done by its deadline or in 30 days."""
    limit = min(job.deadline_hours or PATIENCE_HOURS, PATIENCE_HOURS)
    dead = (job.boot_seconds + job.detection_seconds) / HOUR_SECONDS
    luck = random.Random(1)
    return fmean(
        odds.finishes_without_checkpoints(
            work_hours=job.work_hours,
            hazard_per_hour=_hazard(history, luck),
            limit_hours=max(limit, job.work_hours),
            dead_hours=dead,
            grid=100,
        )
        for _ in range(CHANCES)
    )


def _ways(job: PlannedJob) -> list[KnownPool]:
    """Return each type once for each zone that the user knows something of."""
    told = {pool.type for pool in job.pools}
    return [*job.pools, *(KnownPool(type=kind) for kind in job.types if kind not in told)]


def _cost(option: Option) -> tuple[bool, float, str]:
    mean = option.usd.mean if option.usd else math.inf
    return (option.pays is False, mean, option.name)


def _option(
    job: PlannedJob,
    known: KnownPool,
    listed: Listing,
    futures: _Futures,
    *,
    usd: float,
    on_demand: float | None,
    spot: bool,
) -> Option:
    history = (known.history or NOTHING_KNOWN) if spot else NOTHING_KNOWN
    case = _Case(job, listed, history, spot=spot)
    ends = futures.of(case)
    hours = [end[0] for end in ends if end is not None]
    dollars = [usd * job.hosts * end[1] for end in ends if end is not None]
    finished = len(hours) / len(ends)
    due = job.deadline_hours
    return Option(
        type=known.type,
        zone=known.zone,
        spot=spot,
        usd_per_hour=usd,
        on_demand_usd_per_hour=on_demand,
        listed=listed,
        history=history,
        fits=case.fits,
        largest_gigabytes=case.largest_gigabytes,
        recall=case.recall,
        interval_seconds=case.interval,
        overhead=case.overhead,
        no_interruption=history.survival(job.work_hours) if spot else 1.0,
        interruptions=history.hazard_per_hour * job.work_hours if spot else 0.0,
        finishes=finished,
        hours=_spread(hours),
        usd=_spread(dollars),
        on_time=None if due is None else sum(1 for h in hours if h <= due) / len(ends),
        break_even=(
            spending.break_even(
                spending.discount(spot_usd_per_hour=usd, on_demand_usd_per_hour=on_demand)
            )
            if spot and on_demand
            else None
        ),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    ranked = sorted(values)
    p5, p50, p95 = (ranked[math.ceil(p * len(ranked)) - 1] for p in (0.05, 0.5, 0.95))
    return Spread(fmean(ranked), p5, p50, p95)


def _hazard(history: History, luck: random.Random) -> float:
    """Return λ per hour, drawn from the pool's Gamma posterior."""
    shape = PRIOR_INTERRUPTIONS + history.interruptions
    return luck.gammavariate(shape, 1 / (PRIOR_HOURS + history.hours))


class _Case:
    """A job in one pool: its interval, and one possible future after the other."""

    def __init__(
        self,
        job: PlannedJob,
        listed: Listing,
        history: History,
        *,
        spot: bool,
    ) -> None:
        self._job, self._history, self._spot = job, history, spot
        saving = job.checkpoints
        self.largest_gigabytes: float | None = None
        self.fits = saving is not None
        self._emergency = USUAL_EMERGENCY
        if saving and listed.gbit_per_second:
            window = Window(upload_gbit_per_second=listed.gbit_per_second)
            self.largest_gigabytes = window.largest_gigabytes
            self.fits = window.fits(job.state_gigabytes)
            margin = window.clock.margin.total_seconds()
            self._emergency = window.needed(job.state_gigabytes).total_seconds() - margin
        if saving and saving.emergency_seconds is not None:
            self._emergency = saving.emergency_seconds
            self.fits = self._emergency + DELIVERY_SECONDS <= REAL_NOTICE.total_seconds()
        answers = bool(saving and saving.on_notice and self.fits)
        self.recall = saving.rate.estimate if saving and answers else 0.0
        self._dead = interval.Recovery(
            boot_seconds=job.boot_seconds,
            restore_seconds=job.restore_seconds if saving else 0.0,
            emergency_seconds=self._emergency if answers else 0.0,
            detection_seconds=job.detection_seconds,
        )
        self._save = saving.save_seconds if saving else 0.0
        hazard = history.hazard_per_hour if spot else 0.0
        self.interval = math.inf
        if saving:
            self.interval = interval.checkpoint_interval(
                save_seconds=self._save,
                hazard_per_hour=hazard,
                recall=self.recall,
                silent_hazard_per_hour=job.silent_losses_per_hour,
                longest=(
                    interval.LONGEST_WITH_DEADLINE if job.deadline_hours else interval.LONGEST
                ),
            ).total_seconds()
        self.overhead = (
            interval.waste(
                interval_seconds=self.interval,
                save_seconds=self._save,
                hazard_per_hour=hazard,
                dead_seconds=self._dead.replaced_at_notice,
                recall=self.recall,
                silent_hazard_per_hour=job.silent_losses_per_hour,
            ).total
            if saving or not spot
            else odds.hours_without_checkpoints(work_hours=job.work_hours, hazard_per_hour=hazard)
            / job.work_hours
            - 1
        )

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the futures: pools that share it differ in price alone."""
        return self._spot, self._history, self.recall, self.interval, self._emergency

    def draw(self) -> list[tuple[float, float] | None]:
        """Return hours until the end and hours paid, of each future; None if it never ended."""
        luck = random.Random(1)
        return [self._future(luck) for _ in range(DRAWS)]

    def _future(self, luck: random.Random) -> tuple[float, float] | None:
        hazard = _hazard(self._history, luck) if self._spot else 0.0
        rate = (hazard + self._job.silent_losses_per_hour) / HOUR_SECONDS
        announced = hazard / HOUR_SECONDS / rate if rate else 0.0
        left, at, paid, durable = self._job.work_hours * HOUR_SECONDS, 0.0, 0.0, 0.0
        start = self._job.boot_seconds
        while True:
            life = luck.expovariate(rate) if rate else math.inf
            need = self._wall(left)
            if life >= need:
                at += start + need
                paid += start + need
                return at / HOUR_SECONDS, paid / HOUR_SECONDS
            noticed = luck.random() < announced
            saved = noticed and luck.random() < self.recall
            durable = self._kept(life, saved=saved)
            left -= durable
            lived = start + life + (self._emergency if noticed else 0.0)
            free = noticed and lived < spending.FIRST_HOUR.total_seconds()
            paid += 0.0 if free else lived
            at += start + life
            start = self._standing_still(noticed=noticed)
            if at > PATIENCE_HOURS * HOUR_SECONDS:
                return None

    def _wall(self, work: float) -> float:
        saves = 0 if math.isinf(self.interval) else max(0, math.ceil(work / self.interval) - 1)
        return work + saves * self._save

    def _kept(self, life: float, *, saved: bool) -> float:
        if math.isinf(self.interval):
            return life if saved else 0.0
        cycles, rest = divmod(life, self.interval + self._save)
        return cycles * self.interval + (min(rest, self.interval) if saved else 0.0)

    def _standing_still(self, *, noticed: bool) -> float:
        replaced = noticed and self._job.checkpoints is not None
        return self._dead.replaced_at_notice if replaced else self._dead.unannounced


class _Futures:
    """The draws of one plan, each made once."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[object, ...], list[tuple[float, float] | None]] = {}

    def of(self, case: _Case) -> list[tuple[float, float] | None]:
        if case.key not in self._drawn:
            self._drawn[case.key] = case.draw()
        return self._drawn[case.key]


def _deadline(job: PlannedJob, surest: Option | None) -> Deadline | None:
    if job.deadline_hours is None:
        return None
    saving = job.checkpoints
    longest = interval.LONGEST_WITH_DEADLINE.total_seconds()
    undurable = longest + saving.save_seconds if saving else job.work_hours * HOUR_SECONDS
    rule = UniformProgress(
        work_seconds=job.work_hours * HOUR_SECONDS,
        deadline_seconds=job.deadline_hours * HOUR_SECONDS,
        changeover_seconds=job.boot_seconds + job.restore_seconds,
        undurable_seconds=undurable,
    )
    return Deadline(
        hours=job.deadline_hours,
        feasible=rule.feasible(boot_seconds=job.boot_seconds),
        switch_slack_hours=rule.least_slack / HOUR_SECONDS,
        on_demand_usd=surest.usd.mean if surest and surest.usd else None,
    )


def _warnings(plan: Forecast) -> list[str]:
    job = plan.job
    found = []
    if plan.deadline and not plan.deadline.feasible:
        found.append(
            f"{job.deadline_hours:g} h can't be met, not even on demand: the work alone takes "
            f"{job.work_hours:g} h and a boot {timedelta(seconds=job.boot_seconds)}"
        )
    if job.checkpoints is None:
        found.append("without a checkpoint hook every interruption starts the job over")
    elif not job.checkpoints.on_notice:
        found.append("the notice isn't used: each interruption repeats half an interval")
    small = [option.type for option in plan.spot if not option.fits]
    if small and job.checkpoints and job.checkpoints.on_notice:
        found.append(
            f"the state doesn't fit into the notice on {', '.join(dict.fromkeys(small))}: "
            "there only periodic checkpoints count"
        )
    dear = [option.name for option in plan.spot if option.pays is False]
    if dear and job.checkpoints:
        found.append(f"no cheaper than on demand: {', '.join(dear)}")
    if plan.unpriced:
        found.append(f"no price known, left out: {', '.join(plan.unpriced)}")
    if all(option.history == NOTHING_KNOWN for option in plan.spot):
        found.append(
            "no history of these pools: the hazard is a wide prior around "
            f"{NOTHING_KNOWN.hazard_per_hour:g} interruptions per hour; give your own under pools"
        )
    if len({option.type for option in plan.spot}) == 1:
        found.append("a single type may be out of capacity for hours: name several")
    return found
