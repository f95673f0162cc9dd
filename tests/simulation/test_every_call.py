"""One small story, and a fault at each single call that its functions make."""

from __future__ import annotations

import pytest

from tests.simulation.faults import AT_A_CALL_OF_A_FUNCTION, Fault, Kind, Schedule, Work
from tests.simulation.search import play
from tests.simulation.world import World

# A job is interrupted with notice, moves to another host, crashes there once and finishes.
STORY = Schedule(
    seed=1,
    works=(Work(pool=0, at=0.0, seconds=400.0, save_every=60.0, deaf=False),),
    faults=(Fault(250.0, Kind.RECLAIM), Fault(700.0, Kind.CRASH)),
)
# Sweeping an idle pool is the same again and again: the story ends where the faults end.
STRIDE = 23


def calls_of(schedule: Schedule) -> int:
    """Return how many calls the functions make."""
    world = World(schedule)
    world.play()
    return world.function_calls


@pytest.mark.parametrize("kind", AT_A_CALL_OF_A_FUNCTION)
def test_no_single_fault_at_any_call_breaks_a_promise(kind: Kind) -> None:
    first = AT_A_CALL_OF_A_FUNCTION.index(kind)
    for nth in range(1 + first, calls_of(STORY) + 1, STRIDE):
        found = play(single(kind, nth))
        assert found is None, f"{kind}, call {nth}: {found}"


def single(kind: Kind, nth: int) -> Schedule:
    """Return the story with one fault more."""
    return Schedule(STORY.seed, STORY.works, STORY.faults, strikes=((kind, nth),))
