"""What the sweep may conclude from hosts that say nothing."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock
from reprieve.domain.silence import Sights, judge
from tests.builders import NOON

CLOCK = NoticeClock()
LONG, LONGER = CLOCK.silent_sweeps + 1, CLOCK.certain_sweeps + 1
MIN_GAP, MAX_GAP = CLOCK.sweep / 2, 2 * CLOCK.sweep


def test_one_silent_host_of_many_is_proven_silent() -> None:
    silence = judge({"a": LONG, "b": 1, "c": 1}, holding={"a", "b", "c"}, clock=CLOCK)

    assert (set(silence.proven), set(silence.doubtful)) == ({"a"}, set())


def test_a_host_alone_in_its_pool_is_proven_silent() -> None:
    assert judge({"a": LONG}, holding={"a"}, clock=CLOCK).proven == {"a"}


def test_silence_of_half_of_those_with_a_job_proves_nothing() -> None:
    counts = {"a": LONG, "b": LONG, "c": 1, "d": 1}

    silence = judge(counts, holding=set(counts), clock=CLOCK)

    assert (set(silence.proven), set(silence.doubtful)) == (set(), {"a", "b"})


def test_silence_of_less_than_half_proves_each() -> None:
    counts = {"a": LONG, "b": LONG, "c": 1, "d": 1, "e": 1}

    assert judge(counts, holding=set(counts), clock=CLOCK).proven == {"a", "b"}


def test_idle_hosts_are_left_alone_while_those_with_a_job_are_in_doubt() -> None:
    counts = {"a": LONG, "b": LONG, "idle": LONG}

    assert judge(counts, holding={"a", "b"}, clock=CLOCK).doubtful == {"a", "b", "idle"}


def test_idle_hosts_alone_cast_no_doubt() -> None:
    counts = {"idle-1": LONG, "idle-2": LONG, "a": 1}

    assert judge(counts, holding={"a"}, clock=CLOCK).proven == {"idle-1", "idle-2"}


def test_doubt_ends_when_a_live_host_would_have_left() -> None:
    silence = judge({"a": LONGER, "b": LONGER, "c": LONG}, holding=set("abc"), clock=CLOCK)

    assert (set(silence.proven), set(silence.doubtful)) == ({"a", "b"}, {"c"})


def test_a_lease_without_a_word_is_unheard_and_no_more() -> None:
    silence = judge(
        {"a": CLOCK.unheard_sweeps + 1, "b": CLOCK.unheard_sweeps}, holding="ab", clock=CLOCK
    )

    assert (set(silence.unheard), set(silence.proven)) == ({"a"}, set())


@given(
    gaps=st.lists(st.floats(0, 300), max_size=40),
    beats=st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
def test_a_count_never_says_more_than_sights_in_time_of_one_beat(
    gaps: list[float], beats: list[int]
) -> None:
    """A count of n takes n - 1 gaps, each long enough, of the same beat."""
    sights, now, spent = Sights(), NOON, timedelta()
    beat = -1
    for gap, seen in zip(gaps, beats, strict=False):
        step = timedelta(seconds=gap)
        now += step
        spent = spent + step if seen == beat and step <= MAX_GAP else timedelta()
        beat = seen
        sights = sights.seeing({"a": str(seen)}, now=now, min_gap=MIN_GAP, max_gap=MAX_GAP)

        assert (sights.count("a") - 1) * MIN_GAP <= spent
