"""What happens to a job, told from submit to its end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reprieve.domain.errors import LeaseLostError, UnknownOutcomeError
from reprieve.domain.host import CapacityPool, HostState, InstanceState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause, LeaseState, Outcome
from reprieve.domain.notice import Channel, NoticeKind
from reprieve.domain.order import FleetAnswer, FleetError, Launched, OrderState
from reprieve.ports.leases import Claim
from tests.usecases.story import CLOCK, Host, Story, a_pool


def test_a_job_survives_an_interruption_and_finishes_elsewhere() -> None:
    story = Story()
    job = story.submit()
    first = story.launch()
    first.run()
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING

    story.later(600)
    story.notice(first)
    assert story.job(job).status is JobStatus.DRAINING
    assert [n.instance_id for n in story.memory.signals.sent] == [first.instance_id]

    second = story.launch()
    assert second.capacity != first.capacity
    base = first.commit(40)
    first.release()
    story.uses.settle(job)
    resumed = story.job(job)
    assert (resumed.status, resumed.attempt) == (JobStatus.QUEUED, 2)
    assert resumed.counters.interruptions == 1
    assert resumed.checkpoint
    assert resumed.checkpoint.step == 40

    assert story.lease(job).sealed_attempt == 1
    second.run(base=base, restored=40)
    story.uses.settle(job)
    second.step(100)
    second.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.SUCCEEDED
    assert story.lease(job).state is LeaseState.CLOSED
    assert story.job(job).steps_lost == 0
    story.fill_orders()
    assert len(story.memory.fleet.instances) == 2


def test_a_notice_and_the_requeue_after_it_make_one_order() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    for _ in range(3):
        story.notice(host)
    host.commit(10)
    host.release()
    story.uses.settle(job)
    assert set(story.memory.order_rows) == {(job, 1), (job, 2)}
    story.launch()  # each delivery rings again, as the first bell may be lost: one host comes


def test_a_host_that_vanishes_without_a_word_costs_one_sweep() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    host.commit(30)
    host.step(37)
    story.gone(host)
    story.sweep()
    requeued = story.job(job)
    assert (requeued.status, requeued.attempt) == (JobStatus.QUEUED, 2)
    assert requeued.steps_lost == 7
    assert story.memory.host_rows[host.instance_id].state is HostState.GONE
    replacement = story.launch()
    replacement.run(restored=30)
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING


def test_a_loss_stays_a_loss_when_the_spot_request_says_terminated_as_well() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.gone(host)
    story.memory.fleet.reclaimed.add(host.instance_id)
    story.sweep()
    assert story.memory.attempt_rows[job, 1].cause is Cause.LOST
    assert not story.memory.signals.sent


def test_a_host_that_dies_in_the_middle_of_a_sweep_is_a_loss_too() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()

    def die(operation: str) -> None:
        if operation == "fleet.marked":
            story.gone(host)
            story.memory.fleet.reclaimed.add(host.instance_id)

    story.memory.before = die
    story.sweep(2)
    assert story.memory.attempt_rows[job, 1].cause is Cause.LOST


def test_a_state_change_is_only_a_bell() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.uses.settle(job)
    story.notice(host, NoticeKind.STATE_CHANGE)
    assert story.job(job).status is JobStatus.RUNNING
    story.gone(host)
    story.notice(host, NoticeKind.STATE_CHANGE)
    assert story.job(job).attempt == 2


def test_a_passed_deadline_is_no_evidence() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.notice(host)
    story.later(300)
    story.notice(host, seconds=-100)
    assert story.job(job).attempt == 1
    host.step(50)  # the lease is still its own
    story.gone(host)
    story.notice(host, seconds=-100)
    assert story.job(job).attempt == 2


def test_an_outage_of_ours_is_not_the_hosts_death() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.memory.fleet.blind = True
    for _ in range(5):
        story.later(60)
        swept = story.uses.reconcile()
        assert swept.failures  # EC2 couldn't be asked, and that is told
    assert story.job(job).attempt == 1


def test_silence_counts_only_in_unbroken_sweeps() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.sweep(6)
    story.later(1000)  # the sweep itself was off: the count starts anew
    story.sweep(6)
    assert story.job(job).attempt == 1
    story.sweep()
    assert story.job(job).attempt == 2
    assert host.instance_id in story.memory.fleet.terminated
    with pytest.raises(LeaseLostError):
        host.step(99)


def test_a_host_that_speaks_is_not_silent() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    for step in range(20):
        host.step(step)
        story.sweep()
    assert story.job(job).attempt == 1


def test_when_half_a_pool_falls_silent_together_nobody_is_killed() -> None:
    story = Story(pool=a_pool(max_hosts=4))
    jobs = [story.submit() for _ in range(2)]
    hosts = [Host(story, i.instance_id) for filled in story.fill_orders() for i in filled.launched]
    for host in hosts:
        host.idle()
        host.run()
    story.sweep(8)
    story.later(60)
    assert len(story.uses.reconcile().cannot_tell) == 2
    assert [story.job(job).attempt for job in jobs] == [1, 1]


def test_a_lost_report_of_a_finished_job_does_not_run_it_again() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    host.step(100)
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.gone(host)
    story.sweep()
    assert story.job(job).status is JobStatus.SUCCEEDED
    assert not story.memory.mail.orders


def test_a_host_that_died_before_any_report_is_found_by_its_lease() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    assert host.claim() is Claim.WON
    assert story.job(job).status is JobStatus.QUEUED
    story.gone(host)
    story.sweep()
    assert story.job(job).attempt == 2


def test_a_ticket_of_a_finished_attempt_is_worth_nothing() -> None:
    story = Story()
    job = story.submit()
    ticket = story.memory.mail.tickets[0][1]
    first = story.launch()
    first.run()
    first.release(Outcome.FINISHED, Cause.DONE, 0)
    assert first.claim(ticket) is Claim.TAKEN
    story.uses.settle(job)
    assert first.claim(ticket) is Claim.TAKEN


def test_cancel_stops_the_holder_and_leaves_nothing_queued() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.uses.cancel(job)
    with pytest.raises(LeaseLostError):
        host.step(5)
    assert not story.memory.holds_rows[host.instance_id].leases
    story.sweep(3)
    assert story.job(job).status is JobStatus.CANCELLED
    assert not story.memory.mail.orders


def test_a_job_cancelled_while_its_host_was_launched_leaves_no_instance() -> None:
    story = Story()
    job = story.submit()

    def cancel_during_launch(operation: str) -> None:
        if operation == "fleet.launch":
            story.memory.after = lambda _: None
            story.uses.cancel(job)

    story.memory.after = cancel_during_launch
    story.fill_orders()
    assert len(story.memory.fleet.terminated) == 1
    assert story.job(job).status is JobStatus.CANCELLED


def test_an_instance_that_came_with_errors_is_adopted_and_the_dry_pool_chilled() -> None:
    story = Story()
    story.submit()
    dry = CapacityPool("g5.xlarge", "us-east-1a", Market.SPOT)
    story.memory.fleet.script.append(
        FleetAnswer(
            (
                Launched(
                    "i-0bb00000000000001", CapacityPool("g6.xlarge", "us-east-1b", Market.SPOT)
                ),
            ),
            (FleetError("InsufficientInstanceCapacity", capacity=dry),),
        )
    )
    (filled,) = story.fill_orders()
    assert filled.order
    assert filled.order.state is OrderState.LANDED
    assert story.memory.cold_rows["small", dry][0] > story.time
    assert not story.memory.fleet.terminated


def test_a_redelivered_order_replays_the_stored_plan_word_for_word() -> None:
    story = Story()
    story.submit()
    story.memory.fleet.script.append(UnknownOutcomeError("no answer"))
    story.fill_orders()
    cold = CapacityPool("g5.xlarge", "us-east-1a", Market.SPOT)
    story.memory.cold_rows["small", cold] = (story.time + timedelta(hours=1), "test")
    story.fill_orders()
    first, second = story.memory.fleet.launched
    assert first == second


def test_no_spot_anywhere_falls_back_to_on_demand_in_the_same_run() -> None:
    story = Story()
    story.submit()
    for kind in ("g5.xlarge", "g6.xlarge"):
        for zone in ("us-east-1a", "us-east-1b"):
            story.memory.fleet.empty.add(CapacityPool(kind, zone, Market.SPOT))
    (filled,) = story.fill_orders()
    assert [i.capacity.market for i in filled.launched] == [Market.ON_DEMAND]
    tokens = {plan.client_token for plan in story.memory.fleet.launched}
    assert len(tokens) == 2


def test_when_every_tier_says_no_the_job_waits_visibly_and_tries_again() -> None:
    story = Story()
    job = story.submit()
    shortage = FleetAnswer(errors=(FleetError("UnfulfillableCapacity"),))
    story.memory.fleet.script += [shortage, shortage]
    story.fill_orders()
    parked = story.job(job)
    assert parked.status is JobStatus.PARKED
    assert parked.next_try_at == story.time + CLOCK.cold
    assert "UnfulfillableCapacity" in parked.reason

    story.later(120)
    story.uses.reconcile()
    assert story.job(job).status is JobStatus.PARKED
    story.later(61)
    story.uses.reconcile()
    assert story.job(job).status is JobStatus.QUEUED
    host = story.launch()
    host.run()


def test_a_parked_job_is_still_claimable_by_a_host_that_falls_free() -> None:
    story = Story()
    job = story.submit()
    shortage = FleetAnswer(errors=(FleetError("UnfulfillableCapacity"),))
    story.memory.fleet.script += [shortage, shortage]
    story.fill_orders()
    story.later(200)  # the pools are warm again, but no sweep ran
    other = story.submit()
    host = story.launch()
    host.run()
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING
    assert story.job(other).status is JobStatus.QUEUED


def test_a_missing_permission_names_itself_and_needs_you() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script.append(FleetAnswer(errors=(FleetError("UnauthorizedOperation"),)))
    story.fill_orders()
    parked = story.job(job)
    assert parked.needs_you
    assert "UnauthorizedOperation" in parked.reason
    assert len(story.memory.fleet.launched) == 1


def test_interruptions_are_never_charged_as_crashes() -> None:
    story = Story()
    job = story.submit(max_restarts=3)
    for n in range(5):
        host = story.launch()
        host.run(restored=n * 10 or None)
        story.notice(host)
        host.commit(n * 10 + 10)
        host.release()
        story.uses.settle(job)
        story.gone(host)
        story.later(600)
    assert story.job(job).counters.interruptions == 5
    for _ in range(4):
        assert not story.job(job).terminal
        host = story.launch()
        host.run(restored=50)
        host.release(Outcome.FAILED, Cause.CRASH, 1)
        story.uses.settle(job)
        story.gone(host)
        story.sweep()
    failed = story.job(job)
    assert failed.status is JobStatus.FAILED
    assert failed.counters.crashes == 4


def test_attempts_without_progress_park_the_job_and_ask_for_you() -> None:
    story = Story()
    job = story.submit(max_without_progress=4)
    for _ in range(4):
        host = story.launch()
        host.run()
        story.gone(host)
        story.sweep()
        story.later(600)
    parked = story.job(job)
    assert parked.status is JobStatus.PARKED
    assert parked.needs_you
    assert story.lease(job).state is LeaseState.CLOSED


def test_a_job_that_needed_you_goes_on_from_its_checkpoint_when_you_say_so() -> None:
    story = Story()
    job = story.submit(max_without_progress=1)
    host = story.launch()
    host.run()
    base = host.commit(10)
    story.gone(host)
    story.sweep()
    host = story.launch()
    host.run(base=base, restored=10)
    story.gone(host)
    story.sweep()
    assert story.job(job).needs_you
    story.later(600)
    story.uses.settle(job, requeued=True)
    requeued = story.job(job)
    assert (requeued.status, requeued.attempt) == (JobStatus.QUEUED, 3)
    assert story.lease(job).base == base
    story.launch().run(base=base, restored=10)
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING


def test_a_job_that_needs_you_can_be_cancelled() -> None:
    story = Story()
    job = story.submit(max_without_progress=1)
    host = story.launch()
    host.run()
    host.release()
    story.uses.settle(job)
    assert story.job(job).needs_you
    assert story.uses.cancel(job).status is JobStatus.CANCELLED


def test_requeue_takes_a_running_job_off_its_host() -> None:
    story = Story()
    job = story.submit(max_without_progress=1)
    host = story.launch()
    host.run()
    story.uses.settle(job, requeued=True)
    with pytest.raises(LeaseLostError):
        host.step(5)
    requeued = story.job(job)
    assert (requeued.status, requeued.counters.interruptions) == (JobStatus.QUEUED, 0)


def test_requeue_of_a_job_that_is_over_changes_nothing() -> None:
    story = Story()
    job = story.submit()
    over = story.uses.cancel(job)
    story.uses.settle(job, requeued=True)
    assert story.job(job) == over


def test_advice_keeps_the_job_where_it_is() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.uses.settle(job)
    story.notice(host, NoticeKind.REBALANCE)
    story.sweep(2)
    assert story.job(job).status is JobStatus.RUNNING
    assert story.job(job).attempt == 1
    assert not story.memory.mail.orders
    story.notice(host)
    assert story.job(job).status is JobStatus.DRAINING
    story.notice(host, NoticeKind.REBALANCE)
    assert story.job(job).status is JobStatus.DRAINING


def test_advice_orders_a_spare_only_where_the_pool_pays_for_it_and_once() -> None:
    story = Story(pool=a_pool(spares_per_hour=1))
    job = story.submit()
    host = story.launch()
    host.run()
    story.uses.settle(job)
    for _ in range(2):
        story.notice(host, NoticeKind.REBALANCE)
    assert story.memory.order_rows[job, 2].spare
    assert len(story.memory.mail.orders) == 1
    story.fill_orders()
    story.notice(host)
    assert story.job(job).status is JobStatus.DRAINING
    story.fill_orders()
    assert len(story.memory.fleet.instances) == 2


def test_a_lost_ticket_and_a_lost_order_are_sent_again() -> None:
    story = Story()
    job = story.submit()
    story.memory.mail.tickets.clear()
    story.memory.mail.orders.clear()
    story.sweep(5)
    host = story.launch()
    host.run()
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING


def test_an_idle_host_makes_a_launch_unnecessary() -> None:
    story = Story()
    first = story.submit()
    host = story.launch()
    host.run()
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(first)
    host.idle()
    second = story.submit()
    (filled,) = story.fill_orders()
    assert filled.order
    assert filled.order.state is OrderState.NOT_NEEDED
    host.run()
    story.uses.settle(second)
    assert story.job(second).status is JobStatus.RUNNING


def test_a_hung_idle_host_is_found_and_replaced() -> None:
    story = Story()
    first = story.submit()
    host = story.launch()
    host.run()
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(first)
    host.idle()
    second = story.submit()
    story.fill_orders()  # not needed: the host looks idle
    story.sweep(8)
    assert host.instance_id in story.memory.fleet.terminated
    replacement = story.launch()
    replacement.run()
    story.uses.settle(second)
    assert story.job(second).status is JobStatus.RUNNING


def test_a_host_whose_agent_never_comes_up_is_terminated_and_replaced() -> None:
    story = Story()
    story.submit()
    story.fill_orders()
    story.later(301)
    story.sweep()
    assert len(story.memory.fleet.terminated) == 1
    story.later(60)
    story.uses.reconcile()
    host = story.launch()
    host.run()


def test_an_instance_whose_launch_answer_was_lost_is_not_leaked() -> None:
    story = Story()
    job = story.submit()

    def crash_after_launch(operation: str) -> None:
        if operation == "fleet.launch":
            story.memory.after = lambda _: None
            raise UnknownOutcomeError("the function died")

    story.memory.after = crash_after_launch
    story.fill_orders()
    story.memory.mail.orders.clear()  # and its message is gone, too
    story.uses.cancel(job)
    story.later(200)
    story.sweep()
    assert not [i for i in story.memory.fleet.instances.values() if i.state is InstanceState.ALIVE]


def test_a_retired_host_is_not_terminated_while_it_holds_a_job() -> None:
    story = Story()
    story.submit()
    host = story.launch()
    host.run()
    assert not story.uses.retire(host.instance_id, reason="test")
    assert not story.memory.fleet.terminated
    host.release()
    assert story.uses.retire(host.instance_id, reason="test")


def test_a_stranger_costs_no_write() -> None:
    story = Story()
    before = len(story.memory.calls)
    story.notice(Host(story, "i-0ff00000000000099"))
    assert story.memory.calls[before:] == ["rows.read"]


def test_what_only_the_spot_request_says_is_found_by_the_sweep() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.memory.fleet.reclaimed.add(host.instance_id)
    story.sweep()
    assert story.job(job).status is JobStatus.DRAINING
    notice = story.memory.host_rows[host.instance_id].notice
    assert notice
    assert notice.channel is Channel.SWEEP
    assert [n.instance_id for n in story.memory.signals.sent] == [host.instance_id]
