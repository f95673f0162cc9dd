"""The second opinion: every interleaving of the core within its bounds, with and without a rule."""

from __future__ import annotations

import pytest

from tests.simulation.core import Bounds, Core, Without, explore

# With three attempts and two faults it is a quarter of a million states, which `make
# simulate-faults` visits; what the rules are for shows in smaller bounds.
SMALL = Bounds(hosts=2, attempts=3, faults=1)
ENOUGH = {
    Without.SEAL: Bounds(hosts=2, attempts=3, faults=2, freezes_only=True),
    Without.CLOSED_BY_CANCEL: Bounds(hosts=2, attempts=2, faults=2),
    Without.START_CHECK: Bounds(hosts=2, attempts=2, faults=2),
}


def test_every_interleaving_of_the_core_keeps_its_promises() -> None:
    found = explore(Core(SMALL))
    assert not found.wrong, "\n".join((found.wrong, *found.trail))
    assert found.states > 5000


@pytest.mark.parametrize("without", [rule for rule in Without if rule is not Without.NOTHING])
def test_without_its_rule_the_core_breaks(without: Without) -> None:
    found = explore(Core(ENOUGH.get(without, SMALL), without))
    assert found.wrong, f"without {without} all {found.states} states are fine"
    assert found.trail
