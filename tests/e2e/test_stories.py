"""Every scenario, on the deployed stack: real functions, real agents, real checkpoints."""

from __future__ import annotations

import pytest

from tests.e2e.theatre import SCENARIOS, Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Those of public bug reports (`op_…`) are played by test_field_cases.
STORIES = sorted(path.stem for path in SCENARIOS.glob("*.yaml") if path.stem[:3] != "op_")


@pytest.mark.parametrize("name", STORIES)
def test_the_story_holds(theatre: Theatre, name: str) -> None:
    outcome = theatre.play(story(name))
    assert outcome.holds, theatre.explain(outcome)
