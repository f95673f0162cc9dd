"""Watch: silence is counted sight by sight, and only by sweeps that ran in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from reprieve.domain.silence import Sights
from tests.builders import at
from tests.contract.stores import Stores

POOL, SUBJECT = "small", "i-0aa00000000000001"
MIN_GAP, MAX_GAP = timedelta(seconds=30), timedelta(seconds=120)


def sweep(stores: Stores, now: datetime, pool: str = POOL, **beats: str) -> Sights:
    return stores.watch.observe(pool, beats, now=now, min_gap=MIN_GAP, max_gap=MAX_GAP)


def see(stores: Stores, beat: str, now: datetime) -> int:
    return sweep(stores, now, **{SUBJECT: beat}).count(SUBJECT)


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


def test_subjects_and_pools_are_counted_apart(stores: Stores) -> None:
    sweep(stores, at(0), a="7", b="7")
    sweep(stores, at(0), pool="large", a="7")

    after = sweep(stores, at(60), a="7", b="8", c="1")

    assert [after.count(subject) for subject in "abcd"] == [2, 1, 1, 0]
    assert stores.watch.sights("large").count("a") == 1


def test_what_is_seen_no_more_is_forgotten(stores: Stores) -> None:
    sweep(stores, at(0), a="7", b="7")
    sweep(stores, at(60), a="7")

    assert sweep(stores, at(120), a="7", b="7").count("b") == 1


def test_looking_counts_nothing(stores: Stores) -> None:
    sweep(stores, at(0), a="7")

    assert [stores.watch.sights(POOL).count("a") for _ in range(3)] == [1, 1, 1]


def test_where_a_sweep_left_off_is_told_to_the_next_one_once(stores: Stores) -> None:
    sweep(stores, at(0), a="7")
    stores.watch.leave_off(POOL, "job job-7")

    first, second = sweep(stores, at(60), a="7"), sweep(stores, at(120), a="7")

    assert (first.left_off, second.left_off) == ("job job-7", "")
    assert second.count("a") == 3


def test_a_pool_without_hosts_has_nothing_to_remember(stores: Stores) -> None:
    assert sweep(stores, at(0)) == Sights()
    assert stores.watch.sights("unheard of") == Sights()
