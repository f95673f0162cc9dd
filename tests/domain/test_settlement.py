"""decide() is total, says the same twice, and never breaks a promise whatever the rows say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.checkpoint import manifest_key
from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Host, HostState, InstanceState
from reprieve.domain.job import TERMINAL, CheckpointRef, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState, Outcome, Phase
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import Order, OrderState
from reprieve.domain.settlement import Decision, End, Facts, Move, Nothing, decide, stood_down
from tests.builders import a_holder, a_host, a_job, a_lease, a_notice, an_order, at

steps = st.none() | st.integers(0, 1000)


@st.composite
def jobs(draw: st.DrawFn, statuses: frozenset[JobStatus]) -> Job:
    return a_job(
        status=draw(st.sampled_from(sorted(statuses))),
        attempt=draw(st.integers(1, 4)),
        next_try_at=draw(st.none() | st.just(at(100)) | st.just(at(9000))),
    )


@st.composite
def leases(draw: st.DrawFn, job: Job, state: LeaseState, outcomes: frozenset[Outcome]) -> Lease:
    outcome = draw(st.sampled_from(sorted(outcomes))) if state is LeaseState.DONE else None
    return a_lease(
        job,
        state=state,
        holder=a_holder() if state in {LeaseState.HELD, LeaseState.DONE} else None,
        phase=draw(st.none() | st.sampled_from(list(Phase))),
        step=draw(steps),
        restored_step=draw(steps),
        committed_step=draw(steps),
        committed_manifest="jobs/job-1/manifests/000001-000000000001.json",
        sealed_attempt=draw(st.integers(0, job.attempt)),
        outcome=outcome,
        cause=draw(st.sampled_from(list(Cause))) if outcome else None,
    )


@st.composite
def hosts(draw: st.DrawFn) -> Host | None:
    state = draw(st.sampled_from(list(HostState)))
    notice = draw(st.none() | st.just(a_notice()))
    return draw(st.none() | st.just(a_host(state=state, notice=notice)))


@st.composite
def orders(draw: st.DrawFn) -> Order | None:
    order = an_order(state=draw(st.sampled_from(list(OrderState))), next_try_at=at(500))
    return draw(st.none() | st.just(order))


ANY_STATUS = frozenset(JobStatus)
ANY_OUTCOME = frozenset(Outcome)


@st.composite
def facts(
    draw: st.DrawFn,
    *,
    statuses: frozenset[JobStatus] = ANY_STATUS,
    lease: LeaseState | None = None,
    outcomes: frozenset[Outcome] = ANY_OUTCOME,
) -> Facts:
    job = draw(jobs(statuses))
    state = lease or draw(st.sampled_from(list(LeaseState)))
    row = leases(job, state, outcomes)
    return Facts(
        job=job,
        lease=draw(row) if lease else draw(st.none() | row),
        host=draw(hosts()),
        instance=draw(st.sampled_from(list(InstanceState))),
        silent=draw(st.booleans()),
        order=draw(orders()),
    )


LIVE = ANY_STATUS - TERMINAL
ended_early = facts(statuses=LIVE, lease=LeaseState.DONE, outcomes=ANY_OUTCOME - {Outcome.FINISHED})
held = facts(statuses=LIVE, lease=LeaseState.HELD)


def settle(given_facts: Facts, seconds: float = 1000) -> Decision:
    return decide(given_facts, now=at(seconds), clock=NoticeClock(), token="t2")


@given(facts())
def test_deciding_is_total_and_says_the_same_twice(found: Facts) -> None:
    assert settle(found) == settle(found)


@given(held)
def test_no_restart_without_evidence(found: Facts) -> None:
    """A held lease ends only when EC2 says the host is gone, or after counted silence."""
    without = [
        replace(found, silent=False, instance=instance)
        for instance in (InstanceState.ALIVE, InstanceState.UNKNOWN)
    ]
    assert not any(isinstance(settle(each), End) for each in without)


@given(facts(statuses=LIVE, lease=LeaseState.DONE, outcomes=frozenset({Outcome.FINISHED})))
def test_a_finished_lease_succeeds_on_every_path(found: Facts) -> None:
    decision = settle(found)
    assert isinstance(decision, End)
    assert decision.job.status is JobStatus.SUCCEEDED
    assert decision.successor is None


@given(facts(statuses=TERMINAL))
def test_a_terminal_job_is_never_touched(found: Facts) -> None:
    assert isinstance(settle(found), Nothing)


@given(ended_early)
def test_a_successor_carries_the_sealed_lineage_and_the_next_number(found: Facts) -> None:
    decision = settle(found)
    assert isinstance(decision, End)
    assert found.lease
    armed = decision.successor
    if armed is None:
        assert decision.job.status in {JobStatus.FAILED, JobStatus.PARKED}
        return
    assert armed.key == decision.job.lease_key
    assert armed.key.attempt == found.job.attempt + 1
    assert (armed.sealed_attempt, armed.base) == (found.lease.sealed_attempt, found.lease.base)
    assert armed.state is LeaseState.FREE
    checkpoint = decision.job.checkpoint
    assert armed.pointer == (checkpoint.manifest if checkpoint else None)


@given(held | ended_early)
def test_the_pointer_rises_only_by_a_sealed_attempt(found: Facts) -> None:
    decision = settle(found)
    if isinstance(decision, Move | End) and decision.job.checkpoint != found.job.checkpoint:
        assert found.lease
        assert found.lease.sealed
        assert decision.job.checkpoint
        assert decision.job.checkpoint.step > (
            found.job.checkpoint.step if found.job.checkpoint else -1
        )


def passed_over(*, outcome: Outcome) -> tuple[Job, End]:
    """End an attempt that began at 20, because what was committed up to step 60 was bad."""
    bad = CheckpointRef(60, manifest_key("job-1", 1, 60))
    job = a_job(attempt=2, status=JobStatus.RUNNING, checkpoint=bad)
    lease = a_lease(
        job,
        state=LeaseState.DONE,
        holder=a_holder(),
        sealed_attempt=2,
        base=manifest_key("job-1", 1, 20),
        pointer=bad.manifest,
        restored_step=20,
        step=45,
        committed_step=40,
        committed_manifest=manifest_key("job-1", 2, 40),
        outcome=outcome,
        cause=Cause.DONE if outcome is Outcome.FINISHED else Cause.STOP,
    )
    decision = settle(Facts(job, lease, a_host()))
    assert isinstance(decision, End)
    return job, decision


@pytest.mark.parametrize("outcome", [Outcome.FINISHED, Outcome.INTERRUPTED])
def test_an_attempt_that_began_below_a_bad_checkpoint_has_the_newest_one(outcome: Outcome) -> None:
    _, end = passed_over(outcome=outcome)
    assert end.job.checkpoint == CheckpointRef(40, manifest_key("job-1", 2, 40))


@pytest.mark.parametrize(("outcome", "lost"), [(Outcome.FINISHED, 40), (Outcome.INTERRUPTED, 45)])
def test_the_steps_of_bad_checkpoints_are_lost_ones(outcome: Outcome, lost: int) -> None:
    job, end = passed_over(outcome=outcome)
    assert end.ended.steps_lost == lost
    assert end.job.steps_lost == job.steps_lost + lost


@given(ended_early)
def test_an_ended_attempt_is_charged_to_at_most_one_budget(found: Facts) -> None:
    decision = settle(found)
    assert isinstance(decision, End)
    old, new = found.job.counters, decision.job.counters
    charged = (new.interruptions - old.interruptions) + (new.crashes - old.crashes)
    assert charged in {0, 1}


def test_silence_inside_a_notice_may_be_the_saving_itself() -> None:
    job = a_job(status=JobStatus.DRAINING)
    lease = a_lease(job, state=LeaseState.HELD, holder=a_holder())
    host = a_host(state=HostState.DRAINING, notice=a_notice())
    found = Facts(job, lease, host, silent=True)
    assert not isinstance(settle(found, 60), End)
    assert isinstance(settle(found, 130), End)


def test_a_young_instance_that_ec2_cannot_find_is_not_gone() -> None:
    job = a_job(status=JobStatus.RUNNING)
    lease = a_lease(job, state=LeaseState.HELD, holder=a_holder())
    found = Facts(job, lease, a_host(), instance=InstanceState.NOT_FOUND)
    assert not isinstance(settle(found, 299), End)
    assert isinstance(settle(found, 301), End)


def test_a_job_without_a_valid_checkpoint_waits_for_you_and_never_starts_from_zero() -> None:
    job = a_job(attempt=4)
    lease = a_lease(
        job,
        state=LeaseState.DONE,
        holder=a_holder(),
        outcome=Outcome.FAILED,
        cause=Cause.NO_VALID_CHECKPOINT,
        detail="step 400: last file 8 bytes short",
    )
    decision = settle(Facts(job, lease, a_host()))
    assert isinstance(decision, End)
    assert decision.successor is None
    assert decision.job.status is JobStatus.PARKED
    assert decision.job.needs_you
    assert "8 bytes short" in decision.job.reason


def test_a_lease_held_from_another_pool_moves_nothing_and_is_an_anomaly() -> None:
    job = a_job()
    lease = a_lease(job, state=LeaseState.HELD, holder=a_holder())
    decision = settle(Facts(job, lease, replace(a_host(), pool="other")))
    assert isinstance(decision, Nothing)
    assert decision.anomaly


def test_advice_that_nothing_followed_is_one_line_of_the_timeline() -> None:
    advised = a_host(notice=a_notice(NoticeKind.REBALANCE))
    line = stood_down(advised, 2, clock=NoticeClock())
    assert line
    assert line == stood_down(advised, 2, clock=NoticeClock())
    assert (line.at, line.attempt) == (at(1200), 2)
    assert "stands down" in line.text


@pytest.mark.parametrize(
    "host",
    [
        a_host(),
        a_host(state=HostState.DRAINING, notice=a_notice()),
        a_host(state=HostState.RETIRING, notice=a_notice(NoticeKind.REBALANCE)),
        a_host(notice=a_notice(NoticeKind.MAINTENANCE, reclaimed_at=at(10**6))),
    ],
)
def test_a_verdict_never_stands_down(host: Host) -> None:
    assert stood_down(host, 1, clock=NoticeClock()) is None


def test_terminal_states_are_the_three_ends() -> None:
    assert {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED} == TERMINAL
