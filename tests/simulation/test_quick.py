"""What the search makes quicker gives the same answers."""

from __future__ import annotations

from tests.simulation.faults import Draw, draw
from tests.simulation.quick import quickly
from tests.simulation.world import World


def _story(seed: int) -> list[str]:
    world = World(draw(seed, Draw.TINY))
    world.play()
    return world.trace


def test_the_quick_forms_play_the_same_story() -> None:
    slowly = [_story(seed) for seed in range(5)]
    with quickly():
        assert [_story(seed) for seed in range(5)] == slowly
