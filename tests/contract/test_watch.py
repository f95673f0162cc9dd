"""Watch: silence is counted sight by sight, and only by sweeps that ran in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.builders import at
from tests.contract.stores import Stores

SUBJECT = "JOB#job-1"
MIN_GAP, MAX_GAP = timedelta(seconds=30), timedelta(seconds=120)


def see(stores: Stores, beat: str, now: datetime, subject: str = SUBJECT) -> int:
    return stores.watch.observe(subject, beat, now=now, min_gap=MIN_GAP, max_gap=MAX_GAP)


def test_an_unchanged_beat_is_counted_up(stores: Stores) -> None:
    assert [see(stores, "7", at(60 * n)) for n in range(4)] == [1, 2, 3, 4]


def test_another_beat_starts_the_count_anew(stores: Stores) -> None:
    see(stores, "7", at(0))
    see(stores, "7", at(60))

    assert see(stores, "8", at(120)) == 1
    assert see(stores, "8", at(180)) == 2
    assert see(stores, "7", at(240)) == 1


def test_another_beat_counts_at_once(stores: Stores) -> None:
    see(stores, "7", at(0))

    assert see(stores, "8", at(1)) == 1
    assert see(stores, "8", at(31)) == 2


def test_a_gap_in_the_sweeps_starts_the_count_anew(stores: Stores) -> None:
    see(stores, "7", at(0))

    assert see(stores, "7", at(120)) == 2
    assert see(stores, "7", at(240.000001)) == 1


def test_two_sweeps_at_once_count_once(stores: Stores) -> None:
    see(stores, "7", at(0))

    assert see(stores, "7", at(29.999999)) == 1
    assert see(stores, "7", at(30)) == 2
    assert see(stores, "7", at(59)) == 2
    assert see(stores, "7", at(60)) == 3


def test_subjects_are_counted_apart(stores: Stores) -> None:
    see(stores, "7", at(0))

    assert see(stores, "7", at(60), "HOST#i-1") == 1
    assert see(stores, "7", at(60)) == 2
