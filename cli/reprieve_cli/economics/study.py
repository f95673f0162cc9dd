"""
Policies on the same starts: means with intervals, and differences paired by start.

Two intervals, because two questions are asked. ``starts`` says how well the mean over this
trace is known: starts are spread evenly over it, and each is drawn within its stretch.
``blocks`` says what another stretch of the same pools might have shown: starts closer to each
other than the job is long see the same hours, so means of whole blocks are compared with
Student's t. Nothing here speaks for other pools or other years.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from reprieve.domain.economics.spending import HOUR_SECONDS
from reprieve_cli.economics.market import Market
from reprieve_cli.economics.policies import Policy
from reprieve_cli.economics.production import Planner
from reprieve_cli.economics.queueing import play
from reprieve_cli.economics.run import Outcome
from reprieve_cli.economics.scenario import Job, World
from reprieve_cli.economics.traces import Trace

NORMAL_95 = 1.96
# Student's t, two-sided 95 %, by degrees of freedom from 1 on.
STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One trace, one job, one world, and how many starts of it."""

    trace: Trace
    job: Job
    world: World
    starts: int = 300
    seed: int = 1
    jobs: int = 1
    slots: int = 1

    @property
    def name(self) -> str:
        """The words that the results carry."""
        return f"{self.trace.name}, {self.job.name} job"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its two half widths; a block half width is None with a single block."""

    mean: float
    starts: float
    blocks: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a policy came to over all starts."""

    policy: Policy
    outcomes: Sequence[Outcome]
    usd_per_useful_gpu_hour: float | None
    cost_index: Estimate | None
    makespan_hours: Estimate | None
    makespan_p95_hours: float | None
    lost_hours: Estimate
    goodput: float | None
    finish_rate: float
    deadline_misses: int
    interruptions: float
    launches: float
    failed_launches: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """How much less ours takes than *peer*, as shares of the peer's; positive is better."""

    peer: str
    cost: Estimate
    makespan: Estimate
    lost: float | None


def starts(scenario: Scenario) -> list[float]:
    """Return the moments at which every policy starts, one drawn from each equal stretch."""
    draw = random.Random(f"starts {scenario.seed}")
    width = scenario.trace.seconds / scenario.starts
    return [(index + draw.random()) * width for index in range(scenario.starts)]


def study(
    scenario: Scenario,
    policies: Sequence[Policy],
    *,
    told: Callable[[Policy, int], None] = lambda _policy, _done: None,
) -> list[Row]:
    """Run every policy from the same starts; *told* hears of each finished run."""
    trace = scenario.trace.for_gang(scenario.job.hosts)
    scenario = replace(scenario, trace=trace)
    market = Market(trace, scenario.world)
    planner = Planner(market.pools, scenario.world.clock)
    moments = starts(scenario)
    rows = []
    for policy in policies:
        outcomes = []
        for index, start in enumerate(moments):
            outcomes.append(
                play(
                    policy,
                    scenario.job,
                    scenario.world,
                    market,
                    planner,
                    seed=scenario.seed,
                    index=index,
                    start=start,
                    jobs=scenario.jobs,
                    slots=scenario.slots,
                )
            )
            told(policy, index + 1)
        rows.append(_row(scenario, policy, outcomes))
    return rows


def pairs(scenario: Scenario, rows: Sequence[Row], ours: str = "reprieve") -> list[Pair]:
    """Compare *ours* with each policy whose every start finished, start by start."""
    own = next((row for row in rows if row.policy.name == ours), None)
    if own is None or own.finish_rate < 1:
        return []
    return [_pair(scenario, own, row) for row in rows if row is not own and row.finish_rate == 1]


def _pair(scenario: Scenario, own: Row, peer: Row) -> Pair:
    def share(value: Callable[[Outcome], float]) -> Estimate:
        base = fmean(value(outcome) for outcome in peer.outcomes)
        return estimate(
            scenario,
            [
                (value(theirs) - value(mine)) / base
                for mine, theirs in zip(own.outcomes, peer.outcomes, strict=True)
            ],
        )

    lost = fmean(outcome.lost_seconds for outcome in peer.outcomes)
    mine = fmean(outcome.lost_seconds for outcome in own.outcomes)
    return Pair(
        peer=peer.policy.name,
        cost=share(lambda outcome: outcome.usd),
        makespan=share(lambda outcome: outcome.makespan_seconds),
        lost=1 - mine / lost if lost else None,
    )


def _row(scenario: Scenario, policy: Policy, outcomes: Sequence[Outcome]) -> Row:
    job, world = scenario.job, scenario.world
    useful = sum(outcome.useful_seconds for outcome in outcomes) / HOUR_SECONDS * job.hosts
    usd = sum(outcome.usd for outcome in outcomes)
    paid = sum(outcome.charged_seconds for outcome in outcomes) / HOUR_SECONDS
    ended = [outcome for outcome in outcomes if outcome.finished]
    hours = sorted(outcome.makespan_seconds / HOUR_SECONDS for outcome in ended)
    ideal = world.spot_usd_per_hour * job.work_hours * job.hosts * scenario.jobs
    due = job.deadline_hours
    return Row(
        policy=policy,
        outcomes=outcomes,
        usd_per_useful_gpu_hour=usd / useful / job.gpus_per_host if useful else None,
        cost_index=estimate(scenario, [outcome.usd / ideal for outcome in outcomes])
        if len(ended) == len(outcomes)
        else None,
        makespan_hours=estimate(
            scenario,
            [outcome.makespan_seconds / HOUR_SECONDS for outcome in ended],
            [outcome.start for outcome in ended],
        )
        if ended
        else None,
        makespan_p95_hours=hours[math.ceil(0.95 * len(hours)) - 1] if hours else None,
        lost_hours=estimate(
            scenario, [outcome.lost_seconds / HOUR_SECONDS for outcome in outcomes]
        ),
        goodput=useful / paid if paid else None,
        finish_rate=len(ended) / len(outcomes),
        deadline_misses=sum(
            1
            for outcome in outcomes
            if due is not None
            and (not outcome.finished or outcome.makespan_seconds > due * HOUR_SECONDS)
        ),
        interruptions=fmean(outcome.interruptions for outcome in outcomes),
        launches=fmean(outcome.launches for outcome in outcomes),
        failed_launches=fmean(outcome.refused for outcome in outcomes),
    )


def estimate(
    scenario: Scenario, values: Sequence[float], moments: Sequence[float] | None = None
) -> Estimate:
    """Return the mean of *values*, one a start, with both half widths."""
    moments = starts(scenario) if moments is None else moments
    if len(values) <= 1:
        return Estimate(fmean(values), 0.0, None)
    half = NORMAL_95 * stdev(values) / math.sqrt(len(values))
    count = int(scenario.trace.seconds // scenario.job.work_seconds)
    blocks: dict[int, list[float]] = {}
    for value, moment in zip(values, moments, strict=True):
        index = min(int(moment // (scenario.trace.seconds / max(count, 1))), count - 1)
        blocks.setdefault(index, []).append(value)
    means = [fmean(block) for block in blocks.values()]
    if count <= 1 or len(means) <= 1:
        return Estimate(fmean(values), half, None)
    quantile = STUDENT_95[min(len(means) - 1, len(STUDENT_95)) - 1]
    return Estimate(fmean(values), half, quantile * stdev(means) / math.sqrt(len(means)))
