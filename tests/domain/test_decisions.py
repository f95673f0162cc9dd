"""What holds of `decide` in every situation there is: tried one by one, none is drawn by chance."""

from __future__ import annotations

import pytest

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import HostState, InstanceState
from reprieve.domain.job import TERMINAL, TRANSITIONS, JobStatus
from reprieve.domain.lease import LeaseState
from reprieve.domain.settlement import (
    Decision,
    End,
    Facts,
    Move,
    Nothing,
    decide,
    requeue,
)
from tests.domain.situations import NOW, carried_out, situations

CLOCK = NoticeClock()
MOST_STEPS = 4  # parked for want of a host, its time has come, queued and ordered, nothing left

Judged = tuple[Facts, Decision]


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    """Return every situation with what is decided in it."""
    return [(facts, _decide(facts)) for facts in situations()]


def _decide(facts: Facts) -> Decision:
    return decide(facts, now=NOW, clock=CLOCK, token="t2")


def test_there_are_thousands_of_situations(judged: list[Judged]) -> None:
    assert len(judged) > 10_000


def test_every_decision_has_a_reason(judged: list[Judged]) -> None:
    assert all(decision.reason for _, decision in judged)


def test_whoever_asks_why_is_told_of_every_act_that_no_host_reports(judged: list[Judged]) -> None:
    for facts, decision in judged:
        silent = isinstance(decision, Nothing)
        if isinstance(decision, Move):
            silent = facts.lease is not None and facts.lease.state is LeaseState.HELD
        assert bool(decision.events) == (not silent), decision


def test_what_was_carried_out_is_not_decided_again(judged: list[Judged]) -> None:
    """However often the bells ring: after a few decisions the rows say what the facts mean."""
    for start, first in judged:
        facts, decision, steps = start, first, 0
        while not isinstance(decision, Nothing):
            steps += 1
            assert steps < MOST_STEPS, (start, first, decision)
            facts = carried_out(decision, facts).facts
            decision = _decide(facts)


def test_a_job_moves_only_through_the_table(judged: list[Judged]) -> None:
    for facts, decision in judged:
        if isinstance(decision, Nothing):
            continue
        old, new = facts.job.status, decision.job.status
        assert new is old or new in TRANSITIONS[old]


def test_what_is_over_stays_over(judged: list[Judged]) -> None:
    for facts, decision in judged:
        if facts.job.status in TERMINAL:
            assert isinstance(decision, Nothing)


def test_no_attempt_ends_without_evidence(judged: list[Judged]) -> None:
    """A lease that was released, EC2's word that the host is gone, or silence counted out."""
    for facts, decision in judged:
        if not isinstance(decision, End):
            continue
        assert facts.lease
        released = facts.lease.state is LeaseState.DONE
        gone = facts.instance in {InstanceState.GONE, InstanceState.NOT_FOUND}
        assert released or (facts.lease.state is LeaseState.HELD and (gone or facts.silent))


def test_an_ended_attempt_is_succeeded_by_the_next_or_by_nothing(judged: list[Judged]) -> None:
    for facts, decision in judged:
        if isinstance(decision, End):
            waits = decision.job.status is JobStatus.QUEUED
            assert (decision.successor is not None) == waits
            assert decision.job.attempt == facts.job.attempt + waits


def test_counters_only_rise_but_for_progress_and_a_move(judged: list[Judged]) -> None:
    for facts, decision in judged:
        if isinstance(decision, Nothing):
            continue
        old, new = facts.job.counters, decision.job.counters
        assert new.interruptions >= old.interruptions
        assert new.launch_failures >= old.launch_failures
        assert new.crashes >= old.crashes
        assert (new.interruptions, new.crashes) == (old.interruptions, old.crashes) or isinstance(
            decision, End
        )
        progressed = (
            facts.lease is not None
            and facts.lease.committed_step is not None
            and facts.lease.committed_step > (facts.lease.restored_step or 0)
        )
        moved = decision.job.pool != facts.job.pool
        by_hand = isinstance(decision, End) and decision.ended.cause == "operator"
        assert new.no_progress >= old.no_progress or progressed or moved or by_hand


def test_only_crashes_fail_a_job(judged: list[Judged]) -> None:
    for facts, decision in judged:
        if isinstance(decision, End) and decision.job.status is JobStatus.FAILED:
            assert decision.job.counters.crashes > facts.job.spec.max_restarts
            assert decision.job.counters.interruptions == facts.job.counters.interruptions


def test_a_stuck_job_goes_to_its_fallback_pool_or_waits_for_you(judged: list[Judged]) -> None:
    found = {JobStatus.QUEUED: 0, JobStatus.PARKED: 0}
    for facts, decision in judged:
        if not isinstance(decision, End) or not decision.stuck:
            continue
        found[decision.job.status] += 1
        if decision.job.status is JobStatus.PARKED:
            assert decision.job.needs_you
        else:
            assert decision.job.pool == facts.job.spec.fallback_pool != facts.job.pool
            assert decision.successor
            assert decision.successor.pool == decision.job.pool
            assert decision.job.counters.no_progress == 0
            assert "steady" in decision.reason
    assert all(found.values())


def test_a_job_that_is_stuck_in_its_fallback_pool_too_waits_for_you(judged: list[Judged]) -> None:
    found = 0
    for facts, decision in judged:
        if facts.job.spec.fallback_pool != facts.job.pool or not isinstance(decision, End):
            continue
        if decision.stuck:
            assert decision.job.status is JobStatus.PARKED
            found += 1
    assert found


def test_a_person_s_word_is_never_lost_and_never_wakes_the_dead(judged: list[Judged]) -> None:
    for facts, _ in judged:
        decision = requeue(facts, now=NOW, clock=CLOCK, token="t2")
        if facts.job.status in TERMINAL or facts.lease is None:
            assert isinstance(decision, Nothing)
        if facts.job.status is JobStatus.PARKED and not (
            facts.lease is None or facts.lease.outcome is not None
        ):
            assert not isinstance(decision, Nothing)


def test_a_host_that_is_only_advised_keeps_its_job_where_it_is(judged: list[Judged]) -> None:
    for facts, decision in judged:
        host = facts.host
        if host is None or host.state is not HostState.READY or host.notice is None:
            continue
        if isinstance(decision, Move) and facts.job.status is not JobStatus.DRAINING:
            assert decision.job.status is not JobStatus.DRAINING
