"""The promises hold in every drawn schedule, and a schedule runs the same way each time."""

from __future__ import annotations

import pytest

from tests.simulation.faults import draw
from tests.simulation.search import play, search, shorten
from tests.simulation.world import World

SEEDS = 120
BLOCKS = 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_schedule_breaks_a_promise(block: int) -> None:
    seeds = range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS)
    found = next(search(seeds), None)
    assert found is None, str(shorten(found))


def test_a_seed_replays_to_the_same_step() -> None:
    stories = []
    for _ in range(2):
        world = World(draw(6))
        world.play()
        stories.append((world.steps, world.memory.calls, world.trace))
    assert stories[0] == stories[1]


def test_the_search_reaches_what_it_is_for() -> None:
    attempts = hosts = struck = 0
    for seed in range(30):
        world = World(draw(seed))
        world.play()
        attempts += sum(job.attempt for job in world.memory.job_rows.values())
        hosts += len(world.agents)
        struck += sum("FAULT" in line for line in world.trace)
    assert (attempts > 40, hosts > 40, struck > 60) == (True, True, True)


def test_a_broken_promise_is_told_as_a_short_story() -> None:
    schedule = draw(6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.simulation.promises.SILENCE", -1.0)
        patch.setattr(
            "tests.simulation.promises.Promises._nothing_leaks", lambda _self: ["made up"]
        )
        found = play(schedule)
        assert found is not None
        short = shorten(found)
    assert not short.schedule.faults
    assert "made up" in str(short)
