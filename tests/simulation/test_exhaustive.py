"""A part of the small worlds; `make simulate-faults` plays all of them."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.exhaustive import SINGLES, length
from tests.simulation.search import play

# Primes, so that each kind of fault meets other moments and calls.
STRIDES = {"fault x moment": 23, "fault x crash point of a function": 17}
OTHERS = 7


@pytest.mark.parametrize("name", SINGLES)
def test_no_single_fault_breaks_a_promise(name: str) -> None:
    stride = STRIDES.get(name, OTHERS)
    for schedule in islice(SINGLES[name](), stride // 2, None, stride):
        found = play(schedule)
        assert found is None, str(found)


def test_the_story_gives_every_use_case_its_turn() -> None:
    calls, reports = length()
    assert (calls > 50, reports > 5) == (True, True)
