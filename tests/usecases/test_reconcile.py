"""What the sweep finds by itself, told as it happens; nobody sends it a word."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from reprieve.adapters.memory import InMemoryFleet, InMemoryRows
from reprieve.domain.errors import LeaseLostError, UnknownOutcomeError
from reprieve.domain.host import HostState, Instance, InstanceState, Market
from reprieve.domain.job import CheckpointRef, JobStatus
from reprieve.domain.lease import Cause, LeaseState, Outcome
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import FleetAnswer, FleetError, OrderState
from reprieve.domain.settlement import Decision, Nothing
from reprieve.ports.rows import Snapshot, Wanted
from reprieve.protocol import OrderMessage
from reprieve.usecases.sweep_view import Swept
from tests.usecases.story import CLOCK, Host, Story, a_pool

SWEEP = CLOCK.sweep.total_seconds()
SILENT = CLOCK.silent_sweeps


def crew(story: Story, count: int) -> list[Host]:
    """Launch *count* hosts, each running a job."""
    for _ in range(count):
        story.submit()
    hosts = [Host(story, i.instance_id) for f in story.fill_orders() for i in f.launched]
    assert len(hosts) == count
    for host in hosts:
        host.idle()
        host.run()
    return hosts


def big(hosts: int = 300) -> Story:
    return Story(pool=a_pool(max_hosts=hosts, max_usd_per_hour=10_000.0))


def idle_host(story: Story) -> Host:
    """Return a host whose job is over."""
    job = story.submit()
    host = story.launch()
    host.run()
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(job)
    host.idle()
    return host


def sweep(story: Story, times: int = 1, *, beating: list[Host] | None = None) -> Swept:
    """Sweep, one period apart, while the hosts in *beating* renew; what failed is kept."""
    swept = Swept()
    for _ in range(times):
        story.later(SWEEP)
        for host in beating or []:
            host.step(1)
        swept = story.uses.reconcile()
    return swept


# The closed list of evidence --------------------------------------------------------------


@pytest.mark.parametrize("state", [InstanceState.GONE, InstanceState.NOT_FOUND])
def test_ec2_says_that_the_host_is_gone(state: InstanceState) -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.later(301)  # not found counts once the instance is old enough to be listed
    story.memory.fleet.set_state(host.instance_id, state)

    story.sweep()

    assert story.job(job).attempt == 2
    assert story.memory.attempt_rows[job, 1].cause is Cause.LOST


def test_ec2_does_not_list_a_young_host_yet() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    del story.memory.fleet.instances[host.instance_id]

    story.sweep(3)

    assert story.job(job).attempt == 1
    assert story.memory.host_rows[host.instance_id].state is HostState.READY


def test_a_host_that_speaks_after_ec2_was_asked_is_believed() -> None:
    """The beat that was read before EC2's word must still stand when the attempt is ended."""
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.gone(host)

    def speak(operation: str) -> None:
        if operation == "watch.observe":  # EC2 was asked, nothing is written yet
            story.memory.before = lambda _: None
            host.step(7)

    story.memory.before = speak
    swept = sweep(story)

    assert not swept.failures
    assert story.job(job).attempt == 1


def test_a_host_is_unheard_then_in_doubt_then_given_up() -> None:
    """What people see meanwhile is neither that it runs nor that it is lost."""
    story = big(4)
    hosts = crew(story, 3)
    hung, others = hosts[0], hosts[1:]
    assert hung.key
    job = hung.key.job
    story.uses.settle(job)

    sweep(story, 2, beating=others)
    assert story.job(job).reason == "running"

    swept = sweep(story, beating=others)
    assert swept.unheard == [hung.instance_id]
    assert story.job(job).status is JobStatus.RUNNING
    assert story.job(job).reason.startswith(f"cannot tell: {hung.instance_id} not heard since")
    assert "EC2 says alive" in story.job(job).reason

    sweep(story, SILENT - 2, beating=others)
    assert story.job(job).attempt == 2
    assert story.memory.attempt_rows[job, 1].cause is Cause.SILENT
    assert hung.instance_id in story.memory.fleet.terminated
    kinds = [event.kind for event in story.memory.jobs.events(job)]
    assert kinds.count("silence") == 1
    with pytest.raises(LeaseLostError):
        hung.step(9)


def test_a_host_that_is_heard_again_is_in_doubt_no_more() -> None:
    story = big(4)
    hosts = crew(story, 3)
    assert hosts[0].key
    job = hosts[0].key.job
    story.uses.settle(job)
    sweep(story, 4, beating=hosts[1:])
    assert story.job(job).reason.startswith("cannot tell")

    sweep(story, 1, beating=hosts)

    assert story.job(job).reason == "running"
    assert story.memory.jobs.events(job)[-1].kind == "heard"
    assert story.job(job).attempt == 1


def test_half_the_pool_in_doubt_is_told_and_ends_with_ec2s_word() -> None:
    story = big(4)
    first, second = crew(story, 2)
    assert first.key
    assert second.key

    swept = sweep(story, SILENT + 1)
    assert swept.cannot_tell == sorted([first.instance_id, second.instance_id])
    assert swept.silent == []
    for host in (first, second):
        assert host.key
        assert story.job(host.key.job).reason.startswith("cannot tell together")
        assert story.job(host.key.job).attempt == 1

    story.gone(first)
    sweep(story)
    assert story.job(first.key.job).attempt == 2


def test_idle_hosts_are_left_alone_while_half_of_those_with_a_job_are_in_doubt() -> None:
    story = big(6)
    crew(story, 2)
    third = idle_host(story)

    sweep(story, SILENT + 2)

    assert third.instance_id not in story.memory.fleet.terminated


def test_silence_is_not_counted_while_ec2_and_the_table_are_out() -> None:
    """An outage of ours breaks off the sweeps, so that they count nothing."""
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    sweep(story, SILENT - 1)

    def out(operation: str) -> None:
        if operation.startswith(("rows.", "jobs.", "hosts.", "watch.")):
            raise UnknownOutcomeError("the table doesn't answer")

    story.memory.before = out
    story.memory.fleet.blind = True
    for _ in range(10):
        assert sweep(story).failures
    story.memory.before = lambda _: None
    story.memory.fleet.blind = False
    sweep(story, 2)

    assert story.job(job).attempt == 1
    assert not story.memory.fleet.terminated


def test_an_ec2_that_cannot_be_asked_is_told_and_ends_nothing() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.gone(host)
    story.memory.fleet.blind = True

    swept = sweep(story)

    assert any(isinstance(error, UnknownOutcomeError) for error in swept.failures)
    assert story.job(job).attempt == 1

    story.memory.fleet.blind = False
    sweep(story)
    assert story.job(job).attempt == 2


def test_a_holder_of_two_leases_is_believed_in_nothing() -> None:
    """Somebody wrote a lease row who isn't an agent of ours: tell, and decide nothing on it."""
    story = big(4)
    first, second = crew(story, 2)
    assert first.key
    assert second.key
    forged = replace(story.lease(second.key.job), holder=first.holder)
    story.memory.lease_rows[second.key] = forged
    story.gone(first)

    swept = sweep(story)

    assert swept.anomalies == [first.instance_id]
    assert [story.job(h.key.job).attempt for h in (first, second) if h.key] == [1, 1]


def told_of(story: Story) -> list[Decision]:
    """Return the list that every decision from now on is added to."""
    told: list[Decision] = []
    story.uses = replace(story.uses, told=told.append)
    return told


def anomalies(told: list[Decision]) -> list[str]:
    return [one.reason for one in told if isinstance(one, Nothing) and one.anomaly]


def test_a_job_that_ends_between_two_reads_is_no_anomaly() -> None:
    """The sweep reads the job's row, then the job ends, then it reads the lease, closed."""
    story = big()
    (host,) = crew(story, 1)
    assert host.key
    job, told, reads = host.key.job, told_of(story), 0

    def before(operation: str) -> None:
        nonlocal reads
        reads += operation == "rows.read"
        if reads == 2:
            story.memory.before = lambda _: None
            host.release(Outcome.FINISHED, Cause.DONE, 0)
            story.uses.settle(job)

    story.memory.before = before
    sweep(story)

    assert story.job(job).status is JobStatus.SUCCEEDED
    assert anomalies(told) == []


def test_a_contradiction_that_stays_is_an_anomaly() -> None:
    """The lease is closed, the job's row knows nothing of it: nobody of ours wrote that."""
    story = big()
    (host,) = crew(story, 1)
    assert host.key
    lease = story.lease(host.key.job)
    story.memory.lease_rows[host.key] = replace(lease, state=LeaseState.CLOSED)
    told = told_of(story)

    sweep(story)

    assert anomalies(told) == ["lease closed"]


# The third detector -----------------------------------------------------------------------


def test_only_the_spot_request_says_that_the_host_is_taken() -> None:
    """Neither the event nor the metadata came; the request's status turns at once."""
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.memory.fleet.reclaimed.add(host.instance_id)

    swept = sweep(story)

    assert swept.unannounced == [host.instance_id]
    assert story.job(job).status is JobStatus.DRAINING
    assert [n.channel for n in story.memory.signals.sent] == [Channel.SWEEP]
    assert len(story.memory.mail.orders) == 1  # its replacement


def test_a_notice_that_came_before_the_hosts_row_is_found_at_adoption() -> None:
    """The launch's answer was lost, and the notice was a stranger's when it came."""
    story = Story()
    story.submit()
    lose_the_answer(story)
    (instance_id,) = story.memory.fleet.instances
    story.notice(Host(story, instance_id))
    story.memory.fleet.reclaimed.add(instance_id)
    story.later(181)

    swept = sweep(story)

    assert swept.strays.adopted == {story.pool.name: [instance_id]}
    assert story.memory.host_rows[instance_id].state is HostState.DRAINING


def test_a_third_detector_that_is_blind_says_so_and_the_rest_of_the_sweep_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right to ask for Spot requests was lost; nobody would notice until it is needed."""
    story = big()
    dead, _ = crew(story, 2)
    story.gone(dead)

    def refuse(_self: InMemoryFleet, _ids: object) -> frozenset[str]:
        raise UnknownOutcomeError("spot requests: UnauthorizedOperation")

    monkeypatch.setattr(InMemoryFleet, "marked", refuse)
    swept = sweep(story)

    assert [str(error) for error in swept.failures] == ["spot requests: UnauthorizedOperation"]
    assert dead.key
    assert story.job(dead.key.job).attempt == 2


def test_a_cancelled_job_whose_host_is_deaf_costs_no_more_than_its_silence() -> None:
    """Its lease is closed, its agent hangs: nothing of it is heard, and it holds nothing."""
    story = big()
    deaf, other = crew(story, 2)
    assert deaf.key
    story.uses.cancel(deaf.key.job)

    sweep(story, SILENT + 1, beating=[other])

    assert story.memory.fleet.terminated == [deaf.instance_id]


def test_on_demand_hosts_have_no_spot_request_to_ask_about() -> None:
    story = Story(pool=a_pool(on_demand_base=2))
    story.submit()
    story.launch().run()

    sweep(story)

    assert "fleet.marked" not in story.memory.calls


def test_maintenance_whose_time_has_come_drains_its_host() -> None:
    """It was announced days ahead, so the job went on; no second event will come."""
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    story.notice(host, NoticeKind.MAINTENANCE, seconds=86_400)
    sweep(story, beating=[host])
    assert story.job(job).status is JobStatus.RUNNING

    story.later(86_400 - 600)
    swept = sweep(story, beating=[host])

    assert swept.unannounced == [host.instance_id]
    assert story.job(job).status is JobStatus.DRAINING


# Strays -----------------------------------------------------------------------------------


def lose_the_answer(story: Story) -> None:
    """Let the function die between EC2's launch and the host's row; its message is gone, too."""

    def die(operation: str) -> None:
        if operation == "fleet.launch":
            story.memory.after = lambda _: None
            raise UnknownOutcomeError("the function died")

    story.memory.after = die
    story.fill_orders()
    story.memory.mail.orders.clear()


def by_hand(story: Story, instance_id: str = "i-0dd00000000000001", **tags: str) -> str:
    """Let a person or a group launch an instance with our tags."""
    story.memory.fleet.instances[instance_id] = Instance(
        instance_id=instance_id,
        type="g5.xlarge",
        zone="us-east-1a",
        market=Market.ON_DEMAND,
        state=InstanceState.ALIVE,
        launched_at=story.time,
        tags={"reprieve:stack": "Reprieve"} | {f"reprieve:{k}": v for k, v in tags.items()},
    )
    return instance_id


def test_a_launch_whose_answer_was_lost_is_adopted_if_its_job_still_waits() -> None:
    story = Story()
    job = story.submit()
    lose_the_answer(story)
    (instance_id,) = story.memory.fleet.instances

    sweep(story, 2)
    assert instance_id not in story.memory.host_rows  # its row may be on its way

    sweep(story, 2)
    assert story.memory.host_rows[instance_id].state is HostState.READY
    host = Host(story, instance_id)
    host.idle()
    host.run()
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING
    assert len(story.memory.fleet.instances) == 1


def test_a_launch_whose_answer_was_lost_goes_if_its_job_was_cancelled() -> None:
    story = Story()
    job = story.submit()
    lose_the_answer(story)
    story.uses.cancel(job)
    (instance_id,) = story.memory.fleet.instances

    swept = sweep(story, 4)

    assert swept.strays.retired == {instance_id: "a stray nobody needs"}
    assert story.memory.fleet.terminated == [instance_id]
    assert story.job(job).status is JobStatus.CANCELLED


def test_of_several_strays_only_as_many_stay_as_are_needed() -> None:
    story = big()
    jobs = []
    for _ in range(3):
        jobs.append(story.submit())
        lose_the_answer(story)
    assert len(story.memory.fleet.instances) == 3
    story.uses.cancel(jobs[0])
    story.later(200)

    swept = sweep(story)

    assert len(swept.strays.adopted["small"]) == 2
    assert len(swept.strays.retired) == 1


def test_an_order_that_is_delivered_after_its_stray_was_adopted_buys_no_second_host() -> None:
    """EC2 answers the token of the stored plan with the instance that is there already."""
    story = Story()
    job = story.submit()
    lose_the_answer(story)
    sweep(story, 4)

    story.memory.mail.order(OrderMessage(job, 1, "delivered again"))
    story.fill_orders()

    assert len(story.memory.fleet.instances) == 1
    assert story.memory.order_rows[job, 1].state in {OrderState.LANDED, OrderState.NOT_NEEDED}


def test_a_host_launched_by_hand_is_adopted_at_once_and_takes_work() -> None:
    story = Story()
    instance_id = by_hand(story, pool="small")

    swept = sweep(story)
    assert swept.strays.adopted == {"small": [instance_id]}

    host = Host(story, instance_id)
    host.idle()
    job = story.submit()
    (filled,) = story.fill_orders()
    assert filled.order
    assert filled.order.state is OrderState.NOT_NEEDED
    host.run()
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING


def test_a_host_that_ran_for_days_before_it_got_our_tags_has_time_to_become_ready() -> None:
    """The boot limit counts from its adoption."""
    story = Story()
    instance_id = by_hand(story, pool="small")
    story.later(3 * 86_400)

    sweep(story, 4)
    assert story.memory.host_rows[instance_id].state is HostState.READY

    sweep(story, 3)
    assert story.memory.fleet.terminated == [instance_id]


def test_what_others_launched_is_never_terminated_for_want_of_room() -> None:
    story = Story(pool=a_pool(max_hosts=1))
    kept, beyond = by_hand(story, pool="small"), by_hand(story, "i-0dd00000000000002", pool="small")
    lost = by_hand(story, "i-0dd00000000000003", pool="smal")

    swept = sweep(story, 4)

    assert list(swept.strays.unclaimed) == [beyond, lost]
    assert kept in story.memory.host_rows
    assert not {beyond, lost} & set(story.memory.fleet.terminated)


def test_an_idle_host_of_a_pool_that_is_configured_no_more_goes() -> None:
    story = Story()
    host = idle_host(story)
    row = story.memory.host_rows[host.instance_id]
    story.memory.host_rows[host.instance_id] = replace(row, pool="retired")

    swept = sweep(story)

    assert swept.retired == {host.instance_id: "pool retired isn't configured any more"}
    assert story.memory.fleet.terminated == [host.instance_id]


# Hosts ------------------------------------------------------------------------------------


def test_a_host_that_is_gone_leaves_its_life_to_the_pools_memory_once() -> None:
    story = Story()
    story.submit()
    host = story.launch()
    host.run()
    story.later(3600 - SWEEP)
    story.gone(host)

    sweep(story, 3)

    (history,) = story.memory.seen_rows.values()
    assert (round(history.hours, 2), history.launches_won) == (1.0, 1)


def test_an_idle_host_that_does_not_leave_is_told_to() -> None:
    """Its agent beats and beats, and never goes: a bug, and money."""
    story = Story()
    host = idle_host(story)
    for _ in range(19):
        host.idle()
        sweep(story)
        assert host.instance_id not in story.memory.fleet.terminated

    for _ in range(3):
        host.idle()
        sweep(story)

    assert story.memory.fleet.terminated == [host.instance_id]


def test_the_idle_hosts_of_a_buffer_stay() -> None:
    story = Story(pool=a_pool(buffer=1))
    host = idle_host(story)

    for _ in range(40):
        host.idle()
        sweep(story)

    assert not story.memory.fleet.terminated


def test_a_host_that_ec2_did_not_take_back_leaves() -> None:
    story = Story()
    story.submit()
    host = story.launch()
    host.run()
    story.notice(host)
    host.commit(5)
    host.release()
    for _ in range(2):
        sweep(story)
    assert host.instance_id not in story.memory.fleet.terminated

    for _ in range(4):
        host.idle()
        sweep(story)

    assert host.instance_id in story.memory.fleet.terminated


def test_a_drained_host_leaves_as_soon_as_it_is_empty() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    drain(story, host)
    assert story.job(job).status is JobStatus.DRAINING
    assert len(story.memory.mail.orders) == 1
    sweep(story)
    assert host.instance_id not in story.memory.fleet.terminated

    base = host.commit(5)
    host.release()
    story.uses.settle(job)
    sweep(story)

    assert host.instance_id in story.memory.fleet.terminated
    assert story.job(job).counters.crashes == 0
    story.launch().run(base=base, restored=5)
    story.uses.settle(job)
    assert story.job(job).status is JobStatus.RUNNING


def test_a_drained_host_that_does_not_let_go_loses_its_job_to_the_operators_word() -> None:
    """Evidence (d): its agent is deaf, and a person wants the host empty."""
    story = Story()
    job = story.submit()
    host = story.launch()
    host.run()
    host.commit(5)
    drain(story, host)
    for _ in range(3):
        host.step(6)
        sweep(story)
    assert story.job(job).attempt == 1

    host.step(7)
    sweep(story)

    assert story.job(job).attempt == 2
    assert story.memory.attempt_rows[job, 1].cause is Cause.OPERATOR
    assert host.instance_id in story.memory.fleet.terminated
    with pytest.raises(LeaseLostError):
        host.step(8)


def test_a_drained_host_that_is_idle_just_leaves() -> None:
    story = Story()
    host = idle_host(story)
    drain(story, host)

    sweep(story)

    assert story.memory.fleet.terminated == [host.instance_id]
    assert not story.memory.mail.orders


def drain(story: Story, host: Host) -> None:
    due = story.time + CLOCK.notice
    notice = Notice(NoticeKind.DRAIN, host.instance_id, story.time, Channel.OPERATOR, due)
    for handled in story.uses.handle_notice([notice]):
        assert handled.failure is None


def test_many_hosts_are_retired_with_one_call() -> None:
    story = big()
    for _ in range(30):
        story.submit()
    story.fill_orders()
    story.later(301)  # none of them ever became ready

    before = len(story.memory.calls)
    sweep(story)

    assert len(story.memory.fleet.terminated) == 30
    assert story.memory.calls[before:].count("fleet.terminate") == 1


# Orders and tickets -----------------------------------------------------------------------


def test_an_order_whose_message_was_lost_is_rung_again() -> None:
    story = Story()
    story.submit()
    story.memory.mail.orders.clear()

    assert sweep(story, 4).rung == []
    swept = sweep(story)

    assert len(swept.rung) == 1
    story.launch()


def test_a_job_without_an_order_gets_one() -> None:
    """Submit died between the job and its order."""
    story = Story()
    job = story.submit()
    story.memory.order_rows.clear()
    story.memory.mail.orders.clear()

    sweep(story)

    assert [message.job for message in story.memory.mail.orders] == [job]


def test_a_ticket_that_was_lost_is_sent_again_and_not_before_its_time() -> None:
    story = Story()
    story.submit()
    host = story.launch()
    story.memory.mail.tickets.clear()

    for _ in range(4):
        host.idle()
        sweep(story)
    assert not story.memory.mail.tickets

    host.idle()
    sweep(story)
    assert len(story.memory.mail.tickets) == 1
    host.run()


def test_hosts_that_landed_and_died_are_ordered_anew_in_one_sweep() -> None:
    story = big()
    for _ in range(5):
        story.submit()
    for filled in story.fill_orders():
        story.gone(Host(story, filled.launched[0].instance_id))

    sweep(story)  # they are marked as gone
    swept = sweep(story)

    assert len(swept.reordered) == 5
    assert sum(len(filled.launched) for filled in story.fill_orders()) == 5


def test_an_order_of_a_job_that_is_over_is_closed_and_listed_no_more() -> None:
    story = Story()
    job = story.submit()
    shortage = FleetAnswer(errors=(FleetError("UnfulfillableCapacity"),))
    story.memory.fleet.script += [shortage, shortage]
    story.fill_orders()
    story.uses.cancel(job)

    swept = sweep(story)

    assert swept.closed == [f"{job}#1"]
    assert not story.memory.jobs.live(story.pool.name).orders


def test_a_parked_job_goes_on_when_its_time_has_come() -> None:
    story = Story()
    job = story.submit()
    shortage = FleetAnswer(errors=(FleetError("UnfulfillableCapacity"),))
    story.memory.fleet.script += [shortage, shortage]
    story.fill_orders()
    assert story.job(job).status is JobStatus.PARKED

    sweep(story, 2)
    assert story.job(job).status is JobStatus.PARKED

    sweep(story, 2)
    assert story.job(job).status is JobStatus.QUEUED
    story.launch().run()


# Commits nobody heard of ------------------------------------------------------------------


@dataclass
class Bucket:
    """``Manifests``: what lies in the bucket, and whether it answers."""

    commits: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    silent: bool = False
    asked: int = 0

    def newest(self, job: str, attempt: int, *, after: int | None) -> CheckpointRef | None:
        self.asked += 1
        if self.silent:
            raise UnknownOutcomeError("the bucket doesn't answer")
        steps = [s for s in self.commits.get((job, attempt), []) if after is None or s > after]
        if not steps:
            return None
        key = f"jobs/{job}/manifests/{attempt:06d}-{max(steps):012d}.json"
        return CheckpointRef(max(steps), key)


def with_bucket(story: Story) -> Bucket:
    bucket = Bucket()
    ports = replace(story.ports, manifests=bucket)
    story.uses = replace(story.uses, ports=ports)
    return bucket


def test_a_commit_that_nobody_reported_is_found_and_the_loss_put_right() -> None:
    """The host died between its manifest and its next renewal."""
    story, job, bucket = committed_in_silence()

    swept = sweep(story, 2)

    found = story.job(job)
    assert swept.found or bucket.asked
    assert found.checkpoint
    assert found.checkpoint.step == 45
    assert found.steps_lost == 2
    assert found.counters.no_progress == 0
    assert [event.kind for event in story.memory.jobs.events(job)].count("found") == 1


def committed_in_silence() -> tuple[Story, str, Bucket]:
    story = Story()
    bucket = with_bucket(story)
    job = story.submit()
    host = story.launch()
    host.run()
    host.commit(30)
    host.step(47)
    bucket.commits[job, 1] = [30, 45]
    story.gone(host)
    sweep(story)
    assert story.job(job).attempt == 2
    return story, job, bucket


def test_a_commit_outside_the_lineage_is_not_found() -> None:
    """Attempt 1 thawed and committed after attempt 2 had sealed its own beginning."""
    story, job, bucket = committed_in_silence()
    sweep(story, 2)
    base = story.job(job).checkpoint
    assert base
    second = story.launch()
    second.run(base=base.manifest, restored=45)
    bucket.commits[job, 1] += [999]
    story.gone(second)

    sweep(story, 3)

    assert story.job(job).attempt == 3
    assert story.job(job).checkpoint == base


def test_the_bucket_is_asked_twice_an_attempt_and_then_left_alone() -> None:
    story, _, bucket = committed_in_silence()
    before = bucket.asked

    sweep(story, 20)

    assert bucket.asked - before == 2


def test_a_bucket_that_does_not_answer_is_told_and_keeps_nothing_else() -> None:
    story, job, bucket = committed_in_silence()
    bucket.silent = True

    swept = sweep(story)

    assert [str(error) for error in swept.failures] == ["the bucket doesn't answer"]
    bucket.silent = False
    sweep(story)
    found = story.job(job).checkpoint
    assert found
    assert found.step == 45


# As many calls for a hundred as for one ---------------------------------------------------


def quiet(jobs: int, waiting: int = 0) -> Story:
    story = big()
    hosts = crew(story, jobs)
    for host in hosts:
        assert host.key
        story.uses.settle(host.key.job)
    for _ in range(waiting):
        story.submit()
    story.later(1)
    return story


def calls_of_a_sweep(story: Story) -> list[str]:
    story.later(SWEEP)
    before = len(story.memory.calls)
    swept = story.uses.reconcile()
    assert not swept.failures
    return story.memory.calls[before:]


def test_a_sweep_of_a_hundred_quiet_jobs_costs_as_many_calls_as_one_of_one() -> None:
    """Port by port; a port's call is one call of AWS for each hundred rows or two hundred ids."""
    assert calls_of_a_sweep(quiet(100)) == calls_of_a_sweep(quiet(1))
    assert calls_of_a_sweep(quiet(100)) == [
        "fleet.ours",
        "hosts.read",
        "jobs.live",
        "rows.read",  # jobs, hosts, what they hold, open orders
        "rows.read",  # leases, orders of waiting jobs
        "fleet.states",
        "watch.observe",
        "fleet.marked",
    ]


def test_waiting_jobs_cost_no_call_of_their_own_either() -> None:
    assert calls_of_a_sweep(quiet(1, waiting=100)) == calls_of_a_sweep(quiet(1, waiting=1))


def test_what_a_hundred_dead_hosts_cost_is_bounded_by_the_work_they_make() -> None:
    story = quiet(100)
    for instance_id in list(story.memory.fleet.instances):
        story.memory.fleet.set_state(instance_id, InstanceState.GONE)

    calls = calls_of_a_sweep(story)

    assert calls.count("fleet.states") == 1  # EC2's word is asked once for all of them
    assert len(calls) <= 10 + 6 * 100


# Whatever fails, whoever else is at it, however little time there is --------------------------


def test_one_job_that_cannot_be_settled_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = big()
    hosts = crew(story, 3)
    for host in hosts:
        story.gone(host)
    assert hosts[1].key
    poisoned, commit = hosts[1].key.job, InMemoryRows.commit

    def fail(self: InMemoryRows, writes: list[object]) -> None:
        if poisoned in str(writes):
            raise ZeroDivisionError("a defect of ours")
        commit(self, writes)  # type: ignore[arg-type]

    monkeypatch.setattr(InMemoryRows, "commit", fail)
    swept = sweep(story)

    assert [type(error) for error in swept.failures] == [ZeroDivisionError]
    attempts = [story.job(host.key.job).attempt for host in hosts if host.key]
    assert attempts == [2, 1, 2]


def test_a_row_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came with a hundred others, throttled or spoilt by hand."""
    story = big()
    hosts = crew(story, 5)
    for host in hosts:
        story.gone(host)
    assert hosts[2].key
    spoilt, read = hosts[2].key.job, InMemoryRows.read

    def leave_out(self: InMemoryRows, wanted: Wanted) -> Snapshot:
        unread = Wanted(jobs=wanted.jobs & {spoilt})
        return replace(read(self, wanted - unread), unread=unread)

    monkeypatch.setattr(InMemoryRows, "read", leave_out)
    swept = sweep(story)

    assert [str(error) for error in swept.failures] == [f"jobs: {spoilt} couldn't be read"]
    attempts = [story.job(host.key.job).attempt for host in hosts if host.key]
    assert attempts == [2, 2, 1, 2, 2]


def test_one_pool_that_cannot_be_read_keeps_no_other_unswept() -> None:
    story = Story()
    other = a_pool(name="other")
    story.uses = replace(
        story.uses,
        deployment=replace(story.uses.deployment, pools={"small": story.pool, "other": other}),
    )
    job = story.submit()
    host = story.launch()
    host.run()
    story.gone(host)
    broken: list[str] = []

    def fail_once(operation: str) -> None:
        if operation == "jobs.live" and not broken:
            broken.append(operation)
            raise UnknownOutcomeError("throttled")

    for _ in range(2):  # whichever pool has its turn first
        broken.clear()
        story.memory.before = fail_once
        assert sweep(story).failures
        story.memory.before = lambda _: None

    assert story.job(job).attempt == 2


def test_a_sweep_in_the_middle_of_another_changes_nothing_twice() -> None:
    """At each of its calls in turn, another sweep runs from end to end."""
    alone = wreck()
    before = len(alone.memory.calls)
    sweep(alone, 2)
    steps = len(alone.memory.calls) - before
    outcome = standing(alone)

    for step in range(0, steps, 2):
        story = wreck()
        left = [step]

        def intrude(_operation: str, story: Story = story, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                story.uses.reconcile()

        story.memory.before = intrude
        for _ in range(2):
            story.later(SWEEP)
            story.uses.reconcile()
        story.memory.before = lambda _: None
        assert standing(story) == outcome, f"another sweep at call {step}"


def wreck() -> Story:
    """Return a pool in which much has happened that nobody told."""
    story = big(8)
    dead, taken, alive = crew(story, 3)
    for host in (dead, taken, alive):
        assert host.key
        story.uses.settle(host.key.job)
    story.gone(dead)
    story.memory.fleet.reclaimed.add(taken.instance_id)
    story.submit()
    story.memory.mail.orders.clear()
    story.memory.mail.tickets.clear()
    by_hand(story, pool="small")
    story.later(250)
    return story


def standing(story: Story) -> object:
    """Return what matters of where everything stands; how often a bell rang doesn't."""
    memory = story.memory
    jobs = [
        memory.job_rows[job]
        for job in sorted(memory.job_rows, key=lambda j: memory.job_rows[j].created_at)
    ]
    return (
        [(job.status, job.attempt, job.counters) for job in jobs],
        sorted((host.instance_id, host.state) for host in memory.host_rows.values()),
        sorted(order.attempt for order in memory.order_rows.values()),
        sorted(memory.fleet.terminated),
        len(memory.fleet.instances),
    )


def test_a_sweep_that_runs_out_of_time_stops_and_the_next_goes_on_there() -> None:
    story = big()
    hosts = crew(story, 10)
    for host in hosts:
        story.gone(host)
    rounds = []
    for _ in range(4):
        story.later(SWEEP)
        left = [4]

        def out_of_time(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        swept = story.uses.reconcile(out_of_time)
        rounds.append(
            sorted(
                host.key.job for host in hosts if host.key and story.job(host.key.job).attempt == 2
            )
        )
        assert swept.unfinished or len(rounds) > 3

    assert [len(done) for done in rounds] == [4, 8, 10, 10]


def test_a_job_that_fails_each_time_does_not_keep_the_rest_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is time for one piece a sweep, and the first one never succeeds."""
    story = big()
    hosts = crew(story, 3)
    names = sorted(host.key.job for host in hosts if host.key)
    for host in hosts:
        story.gone(host)
    commit = InMemoryRows.commit

    def fail(self: InMemoryRows, writes: list[object]) -> None:
        if names[0] in str(writes):
            raise UnknownOutcomeError("throttled")
        commit(self, writes)  # type: ignore[arg-type]

    monkeypatch.setattr(InMemoryRows, "commit", fail)
    for _ in range(8):
        story.later(SWEEP)
        turns = iter([False, True])
        story.uses.reconcile(lambda turns=turns: next(turns, True))  # type: ignore[misc]

    assert [story.job(name).attempt for name in names] == [1, 2, 2]
