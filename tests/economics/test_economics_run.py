"""One run at a time, in markets small enough to work out by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reprieve.domain.economics import interval
from reprieve.domain.economics.pools import History
from reprieve.domain.economics.recall import SuccessRate
from reprieve_cli.economics.forecast import forecast
from reprieve_cli.economics.jobfile import Checkpoints, KnownPool, PlannedJob
from reprieve_cli.economics.market import Market
from reprieve_cli.economics.policies import POLICIES, REPRIEVE, VARIANTS, Leaving, Policy, Saving
from reprieve_cli.economics.production import Planner
from reprieve_cli.economics.queueing import play
from reprieve_cli.economics.run import Host, Outcome, Progress, Run
from reprieve_cli.economics.scenario import Job, World
from reprieve_cli.economics.traces import Slot, Trace, TracePool

HOUR = 3600.0
JOB = Job(name="toy", work_hours=4.0, recall=1.0)
WORLD = World(launch_seconds=0.0, history_hours=0.0, horizon_hours=48.0)
FIXED = replace(REPRIEVE, saving=Saving.FIXED)


def a_trace(*slots: Slot, hours: float = 24.0) -> Trace:
    return Trace(
        name="toy",
        seconds=hours * HOUR,
        pools=tuple(
            TracePool(
                name=f"p{n}", type="toy", zone=f"us-east-1{'abcdef'[n]}",
                slots=(slot,), shared=True,
            )
            for n, slot in enumerate(slots)
        ),
    )  # fmt: skip


def played(
    trace: Trace,
    policy: Policy = FIXED,
    job: Job = JOB,
    world: World = WORLD,
    *,
    start: float = 0.0,
    jobs: int = 1,
    slots: int = 1,
) -> Outcome:
    market = Market(trace, world)
    planner = Planner(market.pools, world.clock)
    return play(
        policy, job, world, market, planner,
        seed=1, index=0, start=start, jobs=jobs, slots=slots,
    )  # fmt: skip


ALWAYS: Slot = ((0.0, 24 * HOUR),)


def test_without_interruptions_a_job_pays_boot_work_and_saves() -> None:
    outcome = played(a_trace(ALWAYS))
    saves = 7 * JOB.save_seconds  # none after the last half hour
    assert outcome.makespan_seconds == pytest.approx(180 + 4 * HOUR + saves)
    assert outcome.usd == pytest.approx(0.918 * outcome.makespan_seconds / HOUR)
    assert outcome.finished
    assert outcome.interruptions == outcome.lost_seconds == 0


def test_on_demand_only_costs_its_price() -> None:
    outcome = played(a_trace(ALWAYS), POLICIES["on-demand"])
    assert outcome.makespan_seconds == pytest.approx(180 + 4 * HOUR)
    assert outcome.usd == pytest.approx(3.06 * (180 + 4 * HOUR) / HOUR)


def test_a_notice_in_time_costs_only_the_changeover() -> None:
    """Pool p0 goes at 2 h; p1 is there all the time, and is asked for at the notice."""
    outcome = played(a_trace(((0.0, 2 * HOUR),), ALWAYS, hours=24))
    calm = played(a_trace(ALWAYS))
    if outcome.interruptions == 0:  # luck chose p1 at once
        outcome = played(a_trace(ALWAYS, ((0.0, 2 * HOUR),)))
    assert outcome.interruptions == 1
    assert outcome.lost_seconds == 0
    # max(B, E) + R = 240 s stand still; the save at the notice replaces a periodic one.
    extra = outcome.makespan_seconds - calm.makespan_seconds
    assert extra == pytest.approx(240, abs=JOB.save_seconds)


def only(pool: Slot, then: float) -> Trace:
    """One pool, up in *pool* and again from *then* on."""
    return a_trace((*pool, (then, 24 * HOUR)))


def test_a_first_hour_that_ec2_takes_back_is_free() -> None:
    trace = only(((0.0, 0.75 * HOUR),), 1.0 * HOUR)
    free = played(trace)
    charged = played(trace, world=replace(WORLD, first_hour_credit=False))
    assert charged.usd - free.usd == pytest.approx(0.918 * 0.75)
    left_at_once = played(trace, replace(FIXED, leaves=Leaving.AT_ONCE))
    # Notice after 43 min and 5 s, saved 45 s later, and that is what it pays.
    assert left_at_once.usd - free.usd == pytest.approx(0.918 * (2700 - 120 + 5 + 45) / HOUR)


def test_after_the_first_hour_staying_until_the_reclaim_costs_its_seconds() -> None:
    trace = only(((0.0, 1.5 * HOUR),), 2.0 * HOUR)
    leaves = played(trace)
    stays = played(trace, replace(FIXED, leaves=Leaving.NEVER))
    assert stays.usd - leaves.usd == pytest.approx(0.918 * (120 - 5 - 45) / HOUR)


def test_without_recall_what_was_not_durable_is_lost() -> None:
    trace = only(((0.0, 1.7 * HOUR),), 2.0 * HOUR)
    outcome = played(trace, job=replace(JOB, recall=0.0))
    heard = 1.7 * HOUR - 120 + 5
    ran = heard - 180
    cycles = (ran - 30) // (1800 + 10)
    worked = (ran // 1810) * 1800 + min(ran % 1810, 1800)
    assert outcome.lost_seconds == pytest.approx(worked - cycles * 1800)
    assert outcome.finished


def test_a_save_that_takes_longer_than_the_notice_counts_as_none() -> None:
    trace = only(((0.0, 1.7 * HOUR),), 2.0 * HOUR)
    slow = played(trace, job=replace(JOB, emergency_seconds=116.0))
    fast = played(trace, job=replace(JOB, emergency_seconds=115.0))
    assert fast.lost_seconds == 0
    assert slow.lost_seconds > 0


def test_without_any_checkpoint_everything_starts_over() -> None:
    trace = a_trace(((0.0, 3 * HOUR), (4 * HOUR, 24 * HOUR)))
    outcome = played(trace, POLICIES["naive"])
    assert outcome.lost_seconds == pytest.approx(3 * HOUR - 180)
    assert outcome.makespan_seconds == pytest.approx(8 * HOUR + 180, abs=60)


def test_a_job_that_never_fits_is_cut_at_the_horizon() -> None:
    trace = a_trace(tuple((n * HOUR, (n + 0.9) * HOUR) for n in range(24)))
    outcome = played(trace, POLICIES["naive"])
    assert not outcome.finished
    assert outcome.makespan_seconds == WORLD.horizon_seconds
    assert outcome.useful_seconds == 0


def test_both_pools_under_notice_are_left_alone() -> None:
    """Two pools die 60 s apart; who only avoids the last one bounces between them."""
    trace = a_trace(
        ((0.0, 2 * HOUR), (2.5 * HOUR, 24 * HOUR)),
        ((0.0, 2 * HOUR + 60), (2.5 * HOUR, 24 * HOUR)),
    )
    outcome = played(trace)
    assert outcome.interruptions <= 2
    assert outcome.finished


def test_a_silent_loss_costs_its_detection_and_what_was_not_saved() -> None:
    world = replace(WORLD, silent_losses_per_hour=0.2)
    outcomes = [played(a_trace(ALWAYS), world=world, start=float(n)) for n in range(5)]
    calm = played(a_trace(ALWAYS))
    assert outcomes[0].interruptions > 0
    assert outcomes[0].lost_seconds > 0
    slower = outcomes[0].makespan_seconds - calm.makespan_seconds
    assert slower >= outcomes[0].interruptions * (360 + 180)


def test_a_queue_keeps_its_host_between_jobs() -> None:
    one = played(a_trace(ALWAYS))
    three = played(a_trace(ALWAYS), jobs=3)
    assert three.makespan_seconds == pytest.approx(3 * one.makespan_seconds - 2 * 180)
    assert three.launches == 1
    two_hosts = played(a_trace(ALWAYS), jobs=3, slots=2)
    assert two_hosts.launches == 2
    assert two_hosts.makespan_seconds == pytest.approx(2 * one.makespan_seconds - 180)
    assert two_hosts.useful_seconds == 3 * JOB.work_seconds


def test_a_gang_pays_for_all_its_hosts() -> None:
    one = played(a_trace(ALWAYS))
    four = played(a_trace(ALWAYS), job=replace(JOB, hosts=4))
    assert four.usd == pytest.approx(4 * one.usd)


def test_the_safety_net_buys_on_demand_in_time() -> None:
    never: Slot = ((23.9 * HOUR, 24 * HOUR),)
    for policy in (FIXED, VARIANTS["greedy-net"], VARIANTS["uniform-as-published"]):
        outcome = played(a_trace(never), policy, replace(JOB, deadline_hours=6.0))
        assert outcome.makespan_seconds <= 6 * HOUR
        assert outcome.usd > 3.06 * 4
    late = played(a_trace(never), POLICIES["drain-30m"], replace(JOB, deadline_hours=6.0))
    assert late.makespan_seconds > 6 * HOUR


def test_a_job_ahead_of_its_line_goes_back_to_spot() -> None:
    trace = a_trace(((3 * HOUR, 24 * HOUR),))
    outcome = played(trace, job=replace(JOB, deadline_hours=12.0))
    assert outcome.makespan_seconds <= 12 * HOUR
    assert outcome.launches >= 2
    assert outcome.usd < 3.06 * 3.5  # 3 h on demand, 1 h of Spot, two boots


def test_a_checkpoint_that_crosses_regions_costs_its_transfer() -> None:
    pools = (
        TracePool(
            name="east", type="a", zone="us-east-1a", slots=(((0.0, 2 * HOUR),),), shared=True
        ),
        TracePool(
            name="west",
            type="b",
            zone="us-west-2a",
            slots=(((1.5 * HOUR, 24 * HOUR),),),
            shared=True,
        ),
    )
    trace = Trace(name="toy", seconds=24 * HOUR, pools=pools)
    small, large = (
        played(trace, job=replace(JOB, state_gigabytes=gigabytes)) for gigabytes in (0.0, 100.0)
    )
    assert large.usd - small.usd == pytest.approx(100 * 0.02)


def test_progress_counts_saves_by_when_they_are_durable() -> None:
    progress = Progress(begin=100.0, interval=1000.0, save=10.0, durable_after=30.0)
    assert progress.useful(100.0 + 1005) == 1000
    assert progress.useful(100.0 + 1500) == 1490
    assert progress.durable(stopped=100 + 1500, gone=100 + 1500) == 1000
    assert progress.durable(stopped=100 + 1010, gone=100 + 1039) == 0
    assert progress.durable(stopped=100 + 1009, gone=100 + 1500) == 0
    assert progress.finish(1000) == 1100
    assert progress.finish(1001) == 1111


class FixedRun(Run):
    """A run whose interval is set from outside, to compare it with the formula."""

    best = 0.0

    def _interval(self, host: Host) -> float:
        return self.best


@pytest.mark.parametrize(
    ("hazard", "recall", "dead"),
    [(0.023, 0.0, 240.0), (0.041, 0.0, 240.0), (0.023, 0.9, 240.0), (0.041, 0.9, 240.0)],
)
def test_a_poisson_market_wastes_what_the_formula_says(
    hazard: float, recall: float, dead: float
) -> None:
    """1,000 h of work in 40 markets whose interruptions come at random."""
    best = interval.young(
        save_seconds=30,
        losing_hazard_per_hour=interval.losing_hazard(hazard_per_hour=hazard, recall=recall),
    )
    job = Job(name="toy", work_hours=1000.0, save_seconds=30.0, durable_seconds=0.0, recall=recall)
    world = World(
        launch_seconds=0, history_hours=0, horizon_hours=2000, delivery_seconds=0,
        first_hour_credit=False,
    )  # fmt: skip
    policy = replace(REPRIEVE, leaves=Leaving.AT_ONCE)
    spent = 0.0
    luck = random.Random(7)
    for index in range(40):
        trace = a_poisson_trace(hazard, luck)
        market = Market(trace, world)
        planner = Planner(market.pools, world.clock)
        run = FixedRun(policy, job, world, market, planner, seed=3, index=index)
        run.best = best
        run.begin(0.0)
        assert run.job() is not None
        spent += run.outcome().makespan_seconds - job.work_seconds
    measured = spent / 40 / job.work_seconds
    formula = interval.least_waste(
        save_seconds=30, hazard_per_hour=hazard, dead_seconds=dead, recall=recall
    )
    assert measured == pytest.approx(formula, rel=0.06)


def a_poisson_trace(hazard: float, luck: random.Random) -> Trace:
    """Two pools that are never down for longer than a moment, interrupted at random."""
    slots = []
    for _ in range(3):
        ends, at = [], 0.0
        while at < 2500 * HOUR:
            life = luck.expovariate(hazard) * HOUR
            ends.append((at, at + life))
            at += life + 1.0
        slots.append(tuple(ends))
    return a_trace(*slots, hours=2600)


def test_the_plan_foresees_what_the_simulator_finds() -> None:
    """One hazard, known for certain: hours and dollars of both within a few per cent."""
    hazard = 0.25
    known = KnownPool(
        type="toy",
        usd_per_hour=0.918,
        on_demand_usd_per_hour=3.06,
        history=History(hours=400_000, interruptions=100_000),
    )
    job = PlannedJob(
        name="toy",
        work_hours=48.0,
        types=("toy",),
        checkpoints=Checkpoints(save_seconds=10, emergency_seconds=45, rate=SuccessRate(998, 899)),
        pools=(known,),
    )
    (option,) = forecast(job).spot
    assert option.hours
    assert option.usd
    world = replace(WORLD, horizon_hours=200)
    luck = random.Random(11)
    found = []
    for index in range(60):
        trace = a_poisson_trace(hazard, luck)
        market = Market(trace, world)
        planner = Planner(market.pools, world.clock)
        run = FixedRun(REPRIEVE, Job(name="toy"), world, market, planner, seed=5, index=index)
        run.best = option.interval_seconds
        run.begin(0.0)
        assert run.job() is not None
        found.append(run.outcome())
    hours = sum(outcome.makespan_seconds for outcome in found) / 60 / HOUR
    usd = sum(outcome.usd for outcome in found) / 60
    assert hours == pytest.approx(option.hours.mean, rel=0.01)
    assert usd == pytest.approx(option.usd.mean, rel=0.03)
