"""Whether an emergency save is worth trying, and what happens where it isn't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.domain.checkpoint import Measured
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.estimator import NEWEST, SAFETY, Choice, Estimates, Verdict, judge
from tests.agent.test_machine import (
    BASE,
    KEY,
    Play,
    committed,
    interruption,
    only,
    preparing,
    released,
    running,
)

KNOWN = Estimates(save_seconds=10.0, bytes=30e9, bytes_per_second=1e9, step_seconds=2.0)


def judged(estimates: Estimates, left: float, **changes: int | None) -> Verdict:
    at: dict[str, int | None] = {"step": 1000, "durable_step": 900, "pending": None} | changes
    return judge(
        estimates,
        left=left,
        margin=8.0,
        step=at["step"],
        durable_step=at["durable_step"],
        pending=at["pending"],
    )


def test_the_first_save_is_all_that_is_known_and_the_next_ones_move_it() -> None:
    first = Estimates().saved(sent=100, sent_seconds=2.0, save_seconds=1.0)
    assert (first.bytes, first.bytes_per_second, first.save_seconds) == (100, 50.0, 1.0)

    later = first.saved(sent=200, sent_seconds=2.0, save_seconds=2.0)
    assert later.bytes == pytest.approx(100 + NEWEST * 100)
    assert later.bytes_per_second == pytest.approx(50 + NEWEST * 50)
    assert later.save_seconds == pytest.approx(1 + NEWEST)


def test_a_transfer_that_says_nothing_about_the_link_moves_no_rate() -> None:
    known = Estimates().saved(sent=100, sent_seconds=2.0, save_seconds=None)

    assert known.saved(sent=100, sent_seconds=None, save_seconds=None) == known
    assert known.saved(sent=0, sent_seconds=0.0, save_seconds=None).bytes_per_second == 50.0


def test_a_step_takes_what_lies_between_two_of_them() -> None:
    at_work = Estimates().progressed(10, 100.0).progressed(20, 105.0)
    assert at_work.step_seconds == 0.5

    assert at_work.progressed(20, 109.0).step_seconds == 0.5  # said twice
    assert at_work.progressed(5, 110.0).step_seconds == 0.5  # a job that began anew


def test_the_ladder_is_step_and_save_and_upload_and_margin() -> None:
    needed = 2.0 + 10.0 + 30.0 * SAFETY
    assert KNOWN.needed == pytest.approx(needed)

    assert judged(KNOWN, needed + 8.0 + 0.1).choice is Choice.EMERGENCY
    assert judged(KNOWN, needed + 8.0).choice is Choice.PENDING


def test_who_knows_nothing_tries() -> None:
    for unknown in (Estimates(), replace(KNOWN, bytes=None), replace(KNOWN, bytes_per_second=None)):
        assert judged(unknown, 1.0).choice is Choice.EMERGENCY


MEASURED = Measured("g5.xlarge", 10.0, 30e9, 1e9, 2.0)


def test_a_host_of_the_same_type_goes_on_from_what_the_last_one_measured() -> None:
    carried = Estimates.carried(MEASURED, "g5.xlarge")
    assert carried == KNOWN

    later = carried.saved(sent=40_000_000_000, sent_seconds=20.0, save_seconds=20.0)
    assert later.bytes == pytest.approx(33e9)
    assert later.bytes_per_second == pytest.approx(1.3e9)
    assert later.save_seconds == pytest.approx(13.0)


def test_another_type_of_host_is_taken_to_be_half_as_fast_until_it_measured_itself() -> None:
    guess = Estimates.carried(MEASURED, "g6.xlarge")
    assert guess.guessed
    assert (guess.save_seconds, guess.bytes, guess.bytes_per_second) == (20.0, 30e9, 0.5e9)
    assert guess.step_seconds == 4.0
    assert guess.needed == pytest.approx(4.0 + 20.0 + 60.0 * SAFETY)

    at_work = guess.progressed(10, 100.0).progressed(20, 105.0)
    own = at_work.saved(sent=30_000_000_000, sent_seconds=15.0, save_seconds=5.0)
    assert (own.save_seconds, own.bytes_per_second, own.step_seconds) == (5.0, 2e9, 0.5)
    assert not own.guessed
    assert own.saved(sent=30_000_000_000, sent_seconds=15.0, save_seconds=15.0).save_seconds == 8.0


def test_who_only_guesses_tries_unless_something_on_its_way_would_suffer() -> None:
    guess = Estimates.carried(MEASURED, "g6.xlarge")

    assert judged(guess, 60.0).choice is Choice.EMERGENCY
    assert "another type of host" in judged(guess, 60.0).text
    assert judged(guess, 60.0, pending=950).choice is Choice.PENDING
    assert judged(guess, 200.0, pending=950).text == "save now: it needs 110.0 s of 200.0 s left"


def test_what_was_guessed_or_never_measured_is_not_handed_on() -> None:
    assert KNOWN.on("g5.xlarge") == MEASURED
    assert Estimates(save_seconds=1.0).on("g5.xlarge") is None
    assert Estimates.carried(MEASURED, "g6.xlarge").on("g6.xlarge") is None
    assert Estimates.carried(None, "g6.xlarge") == Estimates()


def test_an_attempt_begins_with_what_its_checkpoint_tells() -> None:
    play = preparing()
    play.tell(on.Prepared(KEY, BASE, 40, Estimates.carried(MEASURED, "g5.xlarge")))

    assert play.state.tenure is not None
    assert play.state.tenure.estimates == KNOWN


def test_a_verdict_says_what_is_lost_either_way() -> None:
    assert judged(KNOWN, 20.0, pending=950).text == (
        "no new save: it needs 59.0 s of 20.0 s left; "
        "step 950 is being sent, 50 steps lost at least"
    )
    assert judged(KNOWN, 20.0).text.endswith("nothing is being sent, 100 steps lost at least")
    assert judged(KNOWN, 120.0).text == "save now: it needs 59.0 s of 120.0 s left"


def test_a_job_that_trains_few_of_its_weights_is_judged_by_those() -> None:
    lora = Estimates().saved(sent=10_000_000_000, sent_seconds=10.0, save_seconds=None)
    for _ in range(20):
        lora = lora.saved(sent=10_000_000, sent_seconds=0.01, save_seconds=None)

    assert judged(lora, 20.0).choice is Choice.EMERGENCY


# What the agent makes of it: 120 s of notice, 15 s of margin, 5 s of reserve ------------------


def after_a_save(sent_seconds: float) -> Play:
    """Return a job that runs, has step 50 in the bucket, and took so long to send it."""
    play = running()
    play.tell(on.CheckpointFound(KEY, 50))
    play.tell(committed(50, sent=1000, sent_seconds=sent_seconds, save_seconds=1.0))
    return play


def test_a_save_that_fits_is_asked_for_and_the_receipt_says_why() -> None:
    play = after_a_save(sent_seconds=10.0)

    (ask,) = only(do.Ask, play.tell(interruption()))

    assert ask.request.open
    assert ask.request.verdict == "save now: it needs 19.0 s of 105.0 s left"


def test_a_job_whose_save_would_not_arrive_trains_on_to_the_end() -> None:
    play = after_a_save(sent_seconds=90.0)
    play.tell(on.JobProgress(KEY, 70))

    assert only(do.Ask, play.tell(interruption())) == []
    assert only(do.Kill, play.wait(99)) == []
    assert only(do.Terminate, play.done) == []
    assert len(only(do.Kill, play.wait(2))) == 1  # 5 s before the work must have ended

    told = play.tell(on.JobExited(KEY, -9), on.Swept(KEY, (), None))
    assert released(told)[0] == "interrupted"
    (said,) = only(do.SendReport, play.tell(on.Released(KEY)))[:1]
    assert str(said.data["verdict"]).startswith("no new save: it needs 123.0 s of 105.0 s left")
    assert said.data["committed_step"] == 50


def test_what_is_being_sent_then_has_the_link_for_itself() -> None:
    play = after_a_save(sent_seconds=90.0)
    play.tell(on.CheckpointFound(KEY, 60), interruption())
    assert play.tenure.uploading == (60,)

    assert only(do.Upload, play.tell(on.CheckpointFound(KEY, 70))) == []
    sent = only(do.Upload, play.tell(committed(60)))

    assert [upload.step for upload in sent] == [70]
