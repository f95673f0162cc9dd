"""Every scenario, on the deployed stack: real functions, real agents, real checkpoints."""

from __future__ import annotations

import pytest

from tests.e2e.theatre import SCENARIOS, Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_the_story_holds(theatre: Theatre, name: str) -> None:
    outcome = theatre.play(story(name))
    assert outcome.holds, theatre.explain(outcome)
