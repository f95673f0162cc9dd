"""What a host decides by the formulas: how often to save, whether on advice, when to leave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reprieve.domain.economics.hosting import Terms
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.economics.switches import Policy
from reprieve.domain.lease import Holds
from reprieve.domain.notice import NoticeKind
from reprieve.domain.spec import Due
from reprieve.ports.leases import Claim
from reprieve.protocol import POLICY, ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.state import AckState
from tests.agent.test_machine import (
    BASE,
    JOB,
    KEY,
    Play,
    committed,
    interruption,
    only,
    running,
)
from tests.builders import HOST, a_lease, a_spec, at

SPOT = Terms(hazard_per_hour=0.25, silent_hazard_per_hour=0.0, launched_at=at(-600))


def job_on(terms: Terms, *, rate: SuccessRate | None = None, **spec: Any) -> Play:
    """Return a job that runs on a host with these terms."""
    play = Play()
    play.tell(on.HoldsRead(Holds(HOST, terms=terms)))
    play.tell(on.TicketCame(KEY, "receipt"), on.ClaimAnswered(KEY, Claim.WON))
    lease = a_lease(spec=a_spec(**spec), rate=rate or SuccessRate())
    play.tell(on.LeaseRead(KEY, lease), on.Prepared(KEY, BASE, 40))
    play.tell(on.Sealed(KEY, BASE, play.now.boot))
    play.tell(on.Launched(KEY, JOB), on.JobReady(KEY), on.JobProgress(KEY, 41))
    return play


def asked_after(play: Play) -> float:
    """Return how long the job runs until it is asked to save."""
    begun = play.seconds
    while not only(do.Ask, play.wait(50)):
        assert play.seconds < 10_000
    (ask,) = only(do.Ask, play.done)[-1:]
    return ask.request.since - 1000.0 - begun


def saves(play: Play, step: int, *, seconds: float) -> None:
    """Let the job answer what it was asked, its save taking *seconds*."""
    (ask,) = only(do.Ask, play.done)[-1:]
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVING, None))
    play.seconds += seconds
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, step))
    play.tell(on.CheckpointFound(KEY, step), committed(step))


def test_a_job_is_asked_to_save_at_t_star_from_what_its_host_was_told() -> None:
    # C 30 s (usual), q 1/2, λ 0.25/h: √(2·30·3600/0.125)
    assert asked_after(job_on(SPOT)) == pytest.approx(1314.5, abs=1)


def test_the_interval_follows_the_measured_cost_and_its_numbers_are_told() -> None:
    play = job_on(SPOT)
    (started,) = [r for r in only(do.SendReport, play.done) if r.kind is ReportKind.STARTED]
    assert started.data["save_every_s"] == pytest.approx(1314.5, abs=1)
    assert "λ 0.25/h, q 0.50" in str(started.data[POLICY])

    asked_after(play)
    saves(play, 50, seconds=7.5)  # a quarter of the usual: half the interval

    told = [r for r in only(do.SendReport, play.done) if r.kind is ReportKind.COMMITTED][-1]
    assert told.data["save_every_s"] == pytest.approx(657.3, abs=1)
    assert told.data["save_cost_s"] == 7.5


def test_what_a_job_says_of_its_saves_counts_more_than_when_it_answered() -> None:
    play = job_on(SPOT)
    play.tell(on.CheckpointFound(KEY, 50), committed(50, save_seconds=120.0))
    told = [r for r in only(do.SendReport, play.done) if r.kind is ReportKind.COMMITTED][-1]
    assert told.data["save_every_s"] == pytest.approx(2629.1, abs=1)


def test_an_emergency_save_that_takes_longer_than_a_notice_doesn_t_count_on_it() -> None:
    play = job_on(SPOT, rate=SuccessRate(8, 8))
    slow = committed(50, save_seconds=30.0, sent=1000, sent_seconds=100.0)  # 130 s with its safety
    play.tell(on.CheckpointFound(KEY, 50), slow)
    told = [r for r in only(do.SendReport, play.done) if r.kind is ReportKind.COMMITTED][-1]
    assert told.data["recall"] == 0.0
    assert "a save takes longer than a notice" in str(told.data[POLICY])
    assert told.data["save_every_s"] == pytest.approx(929.5, abs=1)


def test_saves_that_held_at_every_notice_make_periodic_ones_rarer() -> None:
    assert asked_after(job_on(SPOT, rate=SuccessRate(8, 8))) == pytest.approx(2939.4, abs=1)


def test_a_job_that_saves_by_itself_is_asked_only_when_it_is_late() -> None:
    play = job_on(SPOT)
    for step in (50, 60, 70):
        play.wait(1200)
        play.tell(on.CheckpointFound(KEY, step), committed(step))
    assert only(do.Ask, play.done) == []
    assert only(do.Ask, play.wait(1320))


@pytest.mark.parametrize(
    ("terms", "spec"),
    [
        (SPOT, {"periodic_saves": False}),
        (Terms(hazard_per_hour=0.25, off=(Policy.INTERVAL,)), {}),
    ],
)
def test_periodic_saves_can_be_switched_off(terms: Terms, spec: dict[str, Any]) -> None:
    play = job_on(terms, **spec)
    assert only(do.Ask, play.wait(20_000)) == []


def test_what_was_submitted_comes_before_the_formula() -> None:
    assert asked_after(job_on(SPOT, save_every=timedelta(minutes=5))) == pytest.approx(300)


def test_with_a_deadline_no_more_than_half_an_hour_is_ever_unsaved() -> None:
    due = Due(at(200_000), timedelta(hours=48), 1000)
    assert asked_after(job_on(SPOT, rate=SuccessRate(8, 8), due=due)) == pytest.approx(1800)


def advised(play: Play) -> tuple[list[do.Ask], str]:
    actions = play.tell(interruption(NoticeKind.REBALANCE))
    (report,) = only(do.SendReport, actions)
    assert report.kind is ReportKind.NOTICED
    return only(do.Ask, actions), str(report.data[POLICY])


def test_advice_is_worth_a_save_once_more_than_c_over_p_is_unsaved() -> None:
    play = job_on(SPOT)
    asked_after(play)
    saves(play, 50, seconds=30.0)  # C/p = 30 s / 0.3 = 100 s
    play.wait(120)
    early, why = advised(play)
    assert early == []
    assert "asked for one" in why  # that save is never followed by another one so soon

    play = job_on(SPOT)
    asked_after(play)
    saves(play, 50, seconds=30.0)
    play.wait(400)
    late, why = advised(play)
    assert len(late) == 1
    assert "C/p = 30 s / 0.30 = 100 s" in why


def test_advice_about_a_job_that_has_just_saved_by_itself_costs_no_save() -> None:
    play = job_on(SPOT)
    play.wait(500)
    play.tell(on.CheckpointFound(KEY, 50), committed(50))
    play.wait(60)
    asked, why = advised(play)
    assert asked == []
    assert why == "no save: 62 s unsaved, C/p = 30 s / 0.30 = 100 s"


def test_advice_is_always_answered_where_that_policy_is_off() -> None:
    play = job_on(Terms(hazard_per_hour=0.25, off=(Policy.ADVICE,)))
    play.wait(500)
    play.tell(on.CheckpointFound(KEY, 50), committed(50))
    play.wait(60)
    assert len(advised(play)[0]) == 1


def left_after_its_job(terms: Terms) -> tuple[list[do.Leave], str]:
    """Let a job of a host with *terms* be handed over at a notice; return whether it leaves."""
    play = job_on(terms)
    play.tell(interruption())
    saves(play, 50, seconds=5.0)
    actions = play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (50,), None), on.Released(KEY))
    (report,) = [r for r in only(do.SendReport, actions) if r.kind is ReportKind.INTERRUPTED]
    return only(do.Leave, actions), str(report.data[POLICY])


def test_a_host_in_its_first_hour_waits_until_ec2_takes_it_since_that_is_free() -> None:
    left, why = left_after_its_job(SPOT)
    assert left == []
    assert why == "stays until EC2 takes it: reclaimed 12 min after launch it is free"


def test_an_older_host_leaves_as_soon_as_it_is_done() -> None:
    (leave,), why = left_after_its_job(Terms(launched_at=at(-4000)))
    assert leave.shutdown
    assert (
        why
        == leave.reason
        == ("leaves now: reclaimed 69 min after launch it is paid to the second")
    )


def test_every_host_waits_where_that_policy_is_off() -> None:
    off = Terms(launched_at=at(-4000), off=(Policy.FIRST_HOUR,))
    assert left_after_its_job(off)[0] == []


def test_a_host_that_nobody_told_its_age_waits() -> None:
    play = running()
    play.tell(interruption())
    saves(play, 50, seconds=5.0)
    actions = play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (50,), None), on.Released(KEY))
    assert only(do.Leave, actions) == []
