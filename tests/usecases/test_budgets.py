"""Four budgets, each charged for its own kind of end, and what comes of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.domain.capacity import Tier
from reprieve.domain.host import CapacityPool, Market
from reprieve.domain.job import Counters, JobStatus
from reprieve.domain.lease import Cause, Outcome
from reprieve.domain.order import OrderState
from reprieve.usecases.wiring import UseCases
from tests.usecases.story import Host, Story, a_pool

STEADY = "steady"


def with_a_steady_pool() -> Story:
    """Return a story with a second pool, all of it on demand."""
    story = Story(pool=a_pool(max_hosts=20, max_usd_per_hour=1000.0))
    steady = replace(story.pool, name=STEADY, tiers=(Tier.ON_DEMAND,), launch_template="lt-0b")
    deployment = replace(story.uses.deployment, pools={story.pool.name: story.pool, STEADY: steady})
    story.uses = UseCases(story.ports, deployment, story.now)
    return story


def next_host(story: Story) -> Host:
    """Return the host that takes the waiting attempt, launched or idle."""
    launched = [i for filled in story.fill_orders() for i in filled.launched]
    (one,) = launched
    host = Host(story, one.instance_id)
    host.idle()
    host.run()
    return host


def interrupt(story: Story, host: Host, *, saved: int | None) -> None:
    """Take the host back; the attempt has saved *saved*, or nothing."""
    if saved is not None:
        host.commit(saved)
    story.notice(host)
    host.release()
    story.gone(host)
    assert host.key
    story.uses.settle(host.key.job)


@pytest.mark.parametrize("times", [5, 40])
def test_interruptions_never_fail_a_job_that_gets_on(times: int) -> None:
    story = with_a_steady_pool()
    job = story.submit()
    for n in range(1, times + 1):
        interrupt(story, next_host(story), saved=10 * n)
        story.later(300)
    assert story.job(job).status is JobStatus.QUEUED
    assert story.job(job).counters == Counters(interruptions=times)


def test_crashes_fail_it_and_interruptions_before_them_do_not_count() -> None:
    story = with_a_steady_pool()
    job = story.submit(max_restarts=2)
    for n in range(5):
        interrupt(story, next_host(story), saved=10 * n + 1)
        story.later(300)
    crashed = next_host(story)
    for n in range(3):
        if n:
            crashed.idle()
            crashed.run(restored=41)
        crashed.release(Outcome.FAILED, Cause.CRASH, exit_code=1)
        story.uses.settle(job)
    assert story.job(job).status is JobStatus.FAILED
    assert story.job(job).counters == Counters(interruptions=5, crashes=3)
    assert "restarts used up" in story.job(job).reason


def test_without_progress_it_waits_for_a_person_with_the_reason() -> None:
    story = with_a_steady_pool()
    job = story.submit()
    for _ in range(4):
        interrupt(story, next_host(story), saved=None)
        story.later(300)
    parked = story.job(job)
    assert parked.status is JobStatus.PARKED
    assert parked.needs_you
    assert "4 attempts in a row without a new checkpoint" in parked.reason


def test_without_progress_it_goes_on_in_its_fallback_pool() -> None:
    story = with_a_steady_pool()
    job = story.submit(fallback_pool=STEADY)
    for _ in range(4):
        interrupt(story, next_host(story), saved=None)
        story.later(300)
    assert story.job(job).pool == STEADY
    order = story.memory.orders.read(job, 5)
    assert order
    assert (order.pool, order.state) == (STEADY, OrderState.OPEN)

    host = next_host(story)

    assert host.capacity.market is Market.ON_DEMAND
    assert story.memory.host_rows[host.instance_id].pool == STEADY
    assert host.key
    assert story.lease(job).holder == host.holder
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING
    texts = [event.text for event in story.memory.jobs.events(job)]
    assert any(f"in pool {STEADY}" in text for text in texts)


def test_progress_starts_the_count_anew() -> None:
    story = with_a_steady_pool()
    job = story.submit()
    for saved in (None, None, None, 10, None, None, None):
        interrupt(story, next_host(story), saved=saved)
        story.later(300)
    assert story.job(job).status is JobStatus.QUEUED
    assert story.job(job).counters.no_progress == 3


def test_launch_failures_wait_ever_longer_and_charge_nothing_else() -> None:
    story = with_a_steady_pool()
    story.memory.fleet.empty |= {
        CapacityPool(kind, zone, market)
        for kind in story.pool.types
        for zone in story.uses.deployment.subnets
        for market in Market
    }
    job = story.submit()
    waits = []
    for _ in range(3):
        story.fill_orders()
        parked = story.job(job)
        assert parked.status is JobStatus.PARKED
        assert not parked.needs_you
        assert parked.next_try_at
        waits.append(parked.next_try_at - story.time)
        story.time = parked.next_try_at
        story.uses.settle(job)
        assert story.job(job).status is JobStatus.QUEUED
    assert waits == sorted(waits)
    assert story.job(job).counters == Counters(launch_failures=3)
