"""Each call of each use case is a crash point of some story, and none breaks a promise."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.crash_points import CALLS, STORIES, Call, calls, points
from tests.simulation.faults import Draw, draw
from tests.simulation.search import play

KNOWN = {Call(by, part, name) for (by, part), names in CALLS.items() for name in names}
STRIDE = 331  # a prime, so that each way to fail meets other calls


def test_the_stories_together_make_every_call_of_every_use_case() -> None:
    made = {call for story in STORIES.values() for both in calls(story) for call in both}
    assert made == KNOWN


@pytest.mark.parametrize("of", Draw)
def test_no_drawn_world_makes_a_call_that_isnt_struck(of: Draw) -> None:
    made = {call for seed in range(8) for both in calls(draw(seed, of)) for call in both}
    assert made <= KNOWN


@pytest.mark.parametrize("name", STORIES)
def test_no_crash_breaks_a_promise_of_one_who_was(name: str) -> None:
    for point in islice(points(name), 7, None, STRIDE):
        found = play(point.schedule)
        assert found is None, f"{point.call}: {found}"
