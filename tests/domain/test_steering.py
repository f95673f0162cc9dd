"""Properties of what hosts and functions decide about money and time."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.deadline import Move, UniformProgress
from reprieve.domain.economics.hosting import (
    SaveCost,
    Terms,
    save_interval,
    saves_on_advice,
    stays_until_reclaimed,
    terms,
)
from reprieve.domain.economics.interval import young
from reprieve.domain.economics.pools import History
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.job import CheckpointRef, Counters
from reprieve.domain.prices import discount_of
from reprieve.domain.spec import Due
from reprieve.domain.steering import before_asking, past_break_even, while_on_demand, work_done
from tests.builders import NOON, a_job, a_spec, at
from tests.usecases.story import a_pool

HOURS = 3600.0
DUE = Due(at(60 * HOURS), timedelta(hours=48), 1000)

hazards = st.floats(0, 5)
seconds = st.floats(0.01, 600)
rates = st.integers(0, 50).flatmap(
    lambda tried: st.integers(0, tried).map(lambda held: SuccessRate(tried, held))
)
rules = st.builds(
    UniformProgress,
    work_seconds=st.floats(HOURS, 100 * HOURS),
    deadline_seconds=st.floats(100 * HOURS, 200 * HOURS),
    changeover_seconds=st.floats(1, 1800),
    undurable_seconds=st.floats(0, 1900),
)


def interval(terms: Terms, rate: SuccessRate, save: float, *, due: bool = False) -> float:
    cost = SaveCost(save)
    return save_interval(terms, rate, cost, window_seconds=105, due=due).total_seconds()


@given(hazards, rates, seconds)
def test_the_interval_is_t_star_within_its_bounds(
    hazard: float, rate: SuccessRate, save: float
) -> None:
    told = Terms(hazard_per_hour=hazard, silent_hazard_per_hour=1e-4)
    best = young(save_seconds=save, losing_hazard_per_hour=(1 - rate.estimate) * hazard + 1e-4)
    assert interval(told, rate, save) == pytest.approx(min(max(best, 60), 7200), abs=1e-3)
    assert interval(told, rate, save, due=True) <= 1800


@given(hazards, rates, seconds, seconds)
def test_dearer_saves_are_rarer_and_riskier_hosts_save_more_often(
    hazard: float, rate: SuccessRate, one: float, other: float
) -> None:
    told = Terms(hazard_per_hour=hazard)
    cheap, dear = sorted((one, other))
    assert interval(told, rate, cheap) <= interval(told, rate, dear)
    riskier = replace(told, hazard_per_hour=hazard + 1)
    assert interval(riskier, rate, one) <= interval(told, rate, one)


@given(st.floats(0.01, 1), seconds, st.floats(0, 7200))
def test_advice_deserves_a_save_exactly_beyond_c_over_p(
    precision: float, save: float, unsaved: float
) -> None:
    verdict = saves_on_advice(Terms(precision=precision), SaveCost(save), unsaved_seconds=unsaved)
    assert verdict.yes == (unsaved > save / precision)
    assert verdict.facts["threshold_s"] == pytest.approx(save / precision, abs=0.1)


@given(st.floats(0, 10_000))
def test_a_host_waits_for_its_reclaim_exactly_while_that_is_free(age: float) -> None:
    told = Terms(launched_at=NOON)
    assert stays_until_reclaimed(told, reclaimed_at=at(age)).yes == (age < HOURS)


def test_what_is_rare_is_learnt_from_all_of_a_pool() -> None:
    histories = {
        ("g5.xlarge", "a"): History(hours=10, interruptions=3, advised=20, advised_rightly=3),
        ("g5.xlarge", "b"): History(hours=90, interruptions=1, silent_losses=2),
    }
    told = terms(histories, ("g5.xlarge", "a"), launched_at=NOON)
    assert told.hazard_per_hour == pytest.approx(3.5 / 12)
    assert told.silent_hazard_per_hour == pytest.approx(2.5 / 3100)
    assert told.precision == pytest.approx(6 / 30)
    assert terms(histories, None, launched_at=NOON).hazard_per_hour == 0


@given(rules, st.floats(0, 1), st.floats(0, 90 * HOURS), st.floats(0, 0.999))
def test_an_idle_job_has_nothing_to_think_over_before_its_next_decision(
    rule: UniformProgress, share: float, elapsed: float, part: float
) -> None:
    done = share * rule.work_seconds
    # On a boundary to the last bit there is nothing to wait for: the next sweep is beyond it.
    assume(abs(done - rule.line(elapsed)) > 0.001)
    assume(abs(rule.slack(elapsed=elapsed, done=done) - rule.least_slack) > 0.001)
    move = rule.when_idle(elapsed=elapsed, done=done, spot_available=False)
    ahead = rule.next_decision(elapsed=elapsed, done=done)
    if ahead is None:
        assert move is not Move.WAIT
        return
    soon = elapsed + part * (ahead - elapsed) * (1 - 1e-9)
    assert rule.when_idle(elapsed=soon, done=done, spot_available=False) is move


@given(st.integers(0, 1000), st.floats(0, 59 * HOURS))
def test_nobody_leaves_on_demand_into_the_safety_net(step: int, elapsed: float) -> None:
    job = a_job(spec=a_spec(due=DUE), checkpoint=CheckpointRef(step, "manifest"), created_at=NOON)
    pool, clock, now = a_pool(), NoticeClock(), at(elapsed)
    steer = while_on_demand(job, step, pool, now=now, clock=clock)
    assert steer
    if steer.move is Move.SPOT:
        assert before_asking(job, pool, {}, now=now, clock=clock) is None


def test_progress_is_the_share_of_steps_of_the_work() -> None:
    job = a_job(spec=a_spec(due=DUE))
    assert work_done(job, 250) == 12 * HOURS
    assert work_done(job, None) == 0
    assert work_done(job, 5000) == 48 * HOURS


@given(st.integers(0, 5000), st.integers(0, 5000), st.floats(0.05, 0.9))
def test_spot_has_lost_exactly_past_break_even(redone: int, useful: int, discount: float) -> None:
    job = a_job(
        steps_lost=redone,
        checkpoint=CheckpointRef(useful, "manifest"),
        counters=Counters(interruptions=3),
    )
    bound = (1 / (1 - discount) - 1) * useful
    if not math.isclose(redone, bound, rel_tol=1e-9):
        assert bool(past_break_even(job, discount)) == (redone > bound)
    forgiven = replace(job, forgiven=redone)
    assert not past_break_even(forgiven, discount)
    early = replace(job, counters=Counters(interruptions=2))
    assert not past_break_even(early, discount)
    assert not past_break_even(job, None)


def test_discounts_are_known_where_on_demand_is_listed() -> None:
    assert discount_of("g5.xlarge", "us-east-1a", 0.503) == pytest.approx(0.5)
    assert discount_of("g5.xlarge", "eu-north-1a", 0.503) is None
    assert discount_of("g5.xlarge", "us-east-1a", 1.2) is None
    assert discount_of("nobody.knows", "us-east-1a", 0.1) is None
