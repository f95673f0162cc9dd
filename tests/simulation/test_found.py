"""Schedules that broke a promise once, the shortest form of each."""

from __future__ import annotations

from reprieve.domain.job import JobStatus
from tests.simulation.cases import small, work
from tests.simulation.faults import Fault, Kind, Schedule, Work
from tests.simulation.search import play
from tests.usecases.story import Story


def test_a_job_parked_until_you_speak_can_be_cancelled() -> None:
    story = Story()
    job = story.submit(max_without_progress=1)
    host = story.launch()
    host.run()
    host.release()
    story.uses.settle(job)
    assert story.job(job).needs_you
    story.uses.cancel(job)
    assert story.job(job).status is JobStatus.CANCELLED


def test_a_person_who_requeues_a_running_job_doesnt_park_it() -> None:
    story = Story()
    job = story.submit(max_without_progress=1)
    story.launch().run()
    story.uses.settle(job, requeued=True)
    assert story.job(job).status is JobStatus.QUEUED


def test_two_hosts_that_break_at_once_are_given_up_in_the_end() -> None:
    job = Work(pool=0, at=0.0, seconds=1000.0, save_every=60.0, deaf=False)
    # Both machines stop, and EC2 goes on calling them running.
    faults = (Fault(400.0, Kind.DIE_UNTOLD, 0.0), Fault(400.5, Kind.DIE_UNTOLD, 0.6))
    found = play(Schedule(1, (job, job), faults, max_hosts=2))
    assert found is None, str(found)


def test_a_loss_right_after_the_start_is_told_with_the_step_that_the_job_goes_on_from() -> None:
    # The second host dies before its lease says where it began.
    faults = (
        Fault(80.0, Kind.REBOOT, 0.0),
        Fault(80.0, Kind.HOST_DIES_AFTER, 0.0, 0.0, "start"),
    )
    found = play(small(*faults, works=(work(240.0, save_every=40.0),)))
    assert found is None, str(found)


def test_a_world_isnt_quiet_before_its_job_was_submitted() -> None:
    # A fault of the search itself: the table came back after the faults' end.
    outage = Fault(0.0, Kind.OUTAGE, 0.0, 500.0)
    found = play(small(outage, works=(work(at=60.0),)))
    assert found is None, str(found)
