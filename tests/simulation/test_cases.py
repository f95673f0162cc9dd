"""Each schedule that taught a rule: kept with it, broken without it."""

from __future__ import annotations

import pytest

from tests.simulation.cases import CASES
from tests.simulation.mutations import RULES
from tests.simulation.search import play


@pytest.mark.parametrize("name", CASES)
def test_the_promises_hold_although(name: str) -> None:
    for seed in range(3):
        found = play(CASES[name].told(seed))
        assert found is None, str(found)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rule])
def test_without_its_rule_it_happens_that(name: str) -> None:
    case = CASES[name]
    with RULES[str(case.rule)].without():
        broken = (play(case.told(seed)) for seed in range(case.noise))
        assert any(broken), f"not in {case.noise} orders of what the case doesn't name"
