"""Money and time in the running system: each decision, its numbers in the timeline, its switch."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reprieve.domain.economics.hosting import Terms
from reprieve.domain.economics.pools import History
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.economics.switches import Policy
from reprieve.domain.host import CapacityPool, HostState, Market
from reprieve.domain.job import Event, JobStatus
from reprieve.domain.lease import Cause
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import OrderState
from reprieve.domain.spec import Due, Remedy
from tests.builders import NOON
from tests.usecases.story import CLOCK, Host, Story, a_pool

SPOT = [
    CapacityPool(kind, zone, Market.SPOT)
    for kind in ("g5.xlarge", "g6.xlarge")
    for zone in ("us-east-1a", "us-east-1b")
]
STEPS = 1000
WORK = timedelta(hours=48)


def due(hours: float) -> Due:
    return Due(NOON + timedelta(hours=hours), WORK, STEPS)


def told(story: Story, job: str, kind: str = "policy") -> list[Event]:
    return [event for event in story.memory.jobs.events(job) if event.kind == kind]


def without_spot(**pool: object) -> Story:
    """Return a story in which EC2 has no Spot host."""
    story = Story(pool=a_pool(**pool))
    story.memory.fleet.empty = set(SPOT)
    return story


def next_try(story: Story, job: str) -> None:
    """Let time pass until the parked job is tried again."""
    at = story.job(job).next_try_at
    assert at
    story.later((at - story.now()).total_seconds())
    story.sweep()


def market(host: Host) -> Market:
    return host.capacity.market


def interrupted(story: Story, host: Host, *, at_step: int, durable: int) -> None:
    """Let EC2 take *host* back, its job's newest checkpoint being the one of step *durable*."""
    host.commit(durable)
    host.step(at_step)
    story.notice(host)
    host.release()
    assert host.key
    story.uses.settle(host.key.job)
    story.gone(host)
    story.sweep()


# Deadlines ----------------------------------------------------------------------------------


def test_a_job_with_time_to_spare_waits_for_spot_and_says_until_when() -> None:
    story = without_spot()
    job = story.submit(due=due(60))

    assert [f.launched for f in story.fill_orders()] == [()]

    assert story.job(job).status is JobStatus.PARKED
    assert "waits for Spot: 0 min ahead of its line to the deadline" in story.job(job).reason
    facts = told(story, job, "capacity")[-1].data
    assert facts["slack_s"] == 12 * 3600
    assert facts["least_slack_s"] == 2 * (300 + 60) + 1800 + 30


def test_a_job_that_fell_behind_its_line_pays_for_on_demand() -> None:
    story = without_spot()
    job = story.submit(due=due(60))
    story.fill_orders()
    next_try(story, job)

    host = story.launch()

    assert market(host) is Market.ON_DEMAND
    (policy,) = told(story, job)
    assert policy.text.startswith("on demand: 3 min behind its line")
    assert policy.data["move"] == "on-demand"


def test_a_job_out_of_slack_passes_spot_by() -> None:
    story = Story()
    job = story.submit(due=due(48.5))

    host = story.launch()

    assert market(host) is Market.ON_DEMAND
    assert "on-demand to the end: 0 min ahead of its line" in told(story, job)[0].text


def test_where_on_demand_has_nothing_either_a_late_job_takes_what_there_is() -> None:
    story = Story()
    on_demand = {CapacityPool(at.type, at.zone, Market.ON_DEMAND) for at in SPOT}
    story.memory.fleet.empty = on_demand
    job = story.submit(due=due(48.5))
    story.fill_orders()
    assert story.job(job).status is JobStatus.PARKED
    next_try(story, job)

    assert market(story.launch()) is Market.SPOT


def on_demand_and_ahead(**pool: object) -> tuple[Story, str, Host]:
    """Return a job that runs on demand and has caught up."""
    story = without_spot(max_hosts=4, **pool)
    job = story.submit(due=due(60))
    story.fill_orders()
    next_try(story, job)
    host = story.launch()
    host.run()
    story.uses.settle(job)
    story.later(3600)
    host.step(100)  # a tenth of the work: 4.8 h, where 1.1 h would do
    return story, job, host


def test_a_job_that_caught_up_goes_back_to_spot_once_a_spot_host_is_ready() -> None:
    story, job, paid = on_demand_and_ahead()
    story.memory.fleet.empty = set()

    story.sweep()
    assert story.memory.host_rows[paid.instance_id].state is HostState.READY
    spot = story.launch()
    assert market(spot) is Market.SPOT
    story.sweep()

    assert story.memory.host_rows[paid.instance_id].state is HostState.DRAINING
    paid.commit(100)
    paid.release()
    story.uses.settle(job)
    story.fill_orders()
    del story.memory.mail.tickets[:-1]  # those of the first attempt
    spot.run(restored=100)
    story.uses.settle(job)
    assert story.job(job).attempt == 2
    assert len(story.memory.fleet.instances) == 2
    texts = [event.text for event in told(story, job)]
    assert any("a Spot host is asked for beside the on-demand one: spot: " in t for t in texts)
    assert any(f"goes back to Spot, to {spot.instance_id}" in text for text in texts)
    story.sweep(3)
    assert story.job(job).status is JobStatus.RUNNING


def test_while_there_is_no_spot_the_job_runs_on_where_it_is() -> None:
    story, job, paid = on_demand_and_ahead()

    for nth in range(8):
        paid.step(101 + nth)  # it is heard
        story.sweep()
        story.fill_orders()

    assert story.job(job).status is JobStatus.RUNNING
    assert story.memory.host_rows[paid.instance_id].state is HostState.READY
    order = story.memory.orders.read(job, 2)
    assert order
    assert order.state is OrderState.NOT_NEEDED
    assert len(story.memory.fleet.instances) == 1


def test_a_job_on_demand_that_isn_t_ahead_stays() -> None:
    story, job, paid = on_demand_and_ahead()
    story.memory.fleet.empty = set()
    story.later(8 * 3600)
    story.sweep()

    assert story.fill_orders() == []
    assert story.memory.host_rows[paid.instance_id].state is HostState.READY
    assert story.job(job).status is JobStatus.RUNNING


def test_with_deadlines_switched_off_tiers_are_asked_in_their_order() -> None:
    story = without_spot(off=(Policy.DEADLINE,))
    job = story.submit(due=due(60))

    assert market(story.launch()) is Market.ON_DEMAND
    assert told(story, job) == []


# What Spot has cost -------------------------------------------------------------------------


def priced(**pool: object) -> Story:
    """Return a story in which Spot is 56 % off: redone work may be 127 % of the useful."""
    story = Story(pool=a_pool(**pool))
    for at in SPOT:
        story.memory.fleet.prices[Market.SPOT, at.type, at.zone] = 1.006 * 0.44
        story.memory.fleet.prices[Market.ON_DEMAND, at.type, at.zone] = 1.006
    return story


def after_three_losses(story: Story, job: str, *, redone: int) -> None:
    """Interrupt the job three times; *redone* steps are lost beside 300 durable ones."""
    for nth in (1, 2, 3):
        host = story.launch()
        host.run(restored=(nth - 1) * 100 or None)
        story.uses.settle(job)
        story.later(1200)
        interrupted(story, host, at_step=nth * 100 + redone // 3, durable=nth * 100)


def test_a_job_that_redid_more_than_spot_saves_is_asked_for_on_demand() -> None:
    story = priced()
    job = story.submit()
    after_three_losses(story, job, redone=390)
    after_loss = [f for f in story.fill_orders() if f.launched]
    assert after_loss[0].launched[0].capacity.market is Market.ON_DEMAND

    (policy,) = told(story, job)
    assert "390 steps redone beside 300 useful ones (130%)" in policy.text
    assert policy.data["break_even"] == pytest.approx(1.2727, abs=0.01)


@pytest.mark.parametrize(
    ("spec", "pool", "redone"),
    [
        ({}, {}, 360),  # 120 %: not yet
        ({"if_spot_loses": Remedy.NOTHING}, {}, 600),
        ({}, {"off": (Policy.BREAK_EVEN,)}, 600),
    ],
)
def test_it_stays_on_spot_below_that_or_where_it_was_told_to(
    spec: dict[str, object], pool: dict[str, object], redone: int
) -> None:
    story = priced(**pool)
    job = story.submit(**spec)
    after_three_losses(story, job, redone=redone)
    (filled,) = [f for f in story.fill_orders() if f.launched]
    assert filled.launched[0].capacity.market is Market.SPOT
    assert told(story, job) == []


def test_it_waits_for_a_person_if_it_was_told_so_and_what_they_saw_is_forgiven() -> None:
    story = priced()
    job = story.submit(if_spot_loses=Remedy.PARK)
    after_three_losses(story, job, redone=390)

    parked = story.job(job)
    assert (parked.status, parked.needs_you) == (JobStatus.PARKED, True)
    assert "past break-even: 390 steps redone" in parked.reason
    story.uses.settle(job, requeued=True)
    assert story.job(job).status is JobStatus.QUEUED
    assert story.job(job).forgiven == 390


def test_a_job_that_gets_nowhere_is_asked_for_on_demand_if_it_was_told_so() -> None:
    story = Story()
    job = story.submit(max_without_progress=1, if_stuck=Remedy.ON_DEMAND)
    host = story.launch()
    host.run()
    story.uses.settle(job)
    host.release(cause=Cause.LOST)
    story.uses.settle(job)
    story.gone(host)
    story.sweep()
    story.fill_orders()

    assert story.job(job).on_demand == "1 attempts in a row without a new checkpoint"
    assert any(market(Host(story, i)) is Market.ON_DEMAND for i in story.memory.host_rows)
    assert told(story, job)[0].text.startswith("on demand: 1 attempts in a row")


# What hosts and pools have shown ------------------------------------------------------------


def test_a_host_is_told_its_odds_when_it_lands() -> None:
    story = Story(pool=a_pool(off=(Policy.ADVICE,)))
    story.memory.seen_rows["small", "g5.xlarge", "us-east-1a"] = History(
        hours=10.0, interruptions=3, silent_losses=1, advised=30, advised_rightly=2
    )
    story.submit()
    host = story.launch()

    terms = story.memory.leases.idle(host.instance_id).terms
    assert host.capacity == SPOT[0]
    assert terms == Terms(
        hazard_per_hour=3.5 / 12,
        silent_hazard_per_hour=1.5 / 3010,
        precision=5 / 40,
        launched_at=NOON,
        off=(Policy.ADVICE,),
    )


def test_a_host_on_demand_is_told_that_nobody_takes_it_back() -> None:
    story = without_spot()
    story.submit()
    terms = story.memory.leases.idle(story.launch().instance_id).terms
    assert terms
    assert terms.hazard_per_hour == 0.0


def test_the_life_of_a_host_is_remembered_whoever_sees_its_end_first() -> None:
    for bell in (True, False):
        story = Story()
        story.submit()
        host = story.launch()
        story.later(7200)
        story.notice(host, NoticeKind.REBALANCE)
        story.notice(host)
        story.gone(host)
        if bell:
            story.notice(host, NoticeKind.STATE_CHANGE)
        story.sweep(2)

        at = (story.pool.name, host.capacity.type, host.capacity.zone)
        seen = story.memory.seen_rows[at]
        assert seen.hours == pytest.approx(2.0, abs=0.1)
        assert (seen.interruptions, seen.advised, seen.advised_rightly) == (1, 1, 1)
        assert (seen.silent_losses, seen.launches_won) == (0, 1)


def test_a_host_that_went_without_a_word_is_a_silent_loss() -> None:
    story = Story()
    story.submit()
    host = story.launch()
    story.gone(host)
    story.sweep()
    seen = story.memory.seen_rows[story.pool.name, host.capacity.type, host.capacity.zone]
    assert (seen.interruptions, seen.silent_losses) == (0, 1)


def test_emergency_saves_are_counted_and_told_to_the_next_host() -> None:
    story = Story()
    job = story.submit()
    for nth, saved in enumerate((True, False), start=1):
        host = story.launch()
        host.run(restored=(nth - 1) * 100 or None)
        story.uses.settle(job)
        interrupted(story, host, at_step=nth * 100 + (0 if saved else 5), durable=nth * 100)

    assert story.job(job).rate == SuccessRate(attempts=2, successes=1)
    assert story.lease(job).rate == SuccessRate(attempts=2, successes=1)


def test_pools_are_asked_by_price_alone_where_scores_are_off() -> None:
    history = History(hours=2000.0, interruptions=1, launches_tried=50, launches_won=2)
    first = {}
    for off in ((), (Policy.SCORES,)):
        story = priced(off=off)
        story.memory.fleet.prices[Market.SPOT, "g5.xlarge", "us-east-1a"] = 0.4
        story.memory.seen_rows["small", "g5.xlarge", "us-east-1a"] = history
        story.submit()
        story.fill_orders()
        first[off] = story.memory.fleet.launched[0].overrides[0].capacity
    assert first[Policy.SCORES,] == SPOT[0]
    assert first[()] != SPOT[0]  # it hardly ever has any


def test_advice_makes_a_pool_a_suspect_unless_that_is_off() -> None:
    asked = {}
    for off in ((), (Policy.SUSPECTS,)):
        story = Story(pool=a_pool(max_hosts=5, off=off))
        story.submit()
        host = story.launch()
        host.run()
        story.notice(host, NoticeKind.REBALANCE)
        story.submit()
        story.fill_orders()
        plans = story.memory.fleet.launched
        asked[off] = host.capacity in {override.capacity for override in plans[-1].overrides}
    assert asked == {(): False, (Policy.SUSPECTS,): True}


def test_the_clock_of_deadlines_is_that_of_the_system() -> None:
    assert (CLOCK.boot + CLOCK.lease).total_seconds() == 360
