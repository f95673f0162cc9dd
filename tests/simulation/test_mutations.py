"""The search finds each rule's absence: without that, its silence would mean nothing."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.search import search

# From which seed on, and within how many: all are found from seed 0 within 400; the slower
# ones begin nearer to what finds them, to spare CPU time.
WITHIN = {
    "no seal": (140, 60),
    "no strong read in settle": (40, 60),
    "outcome only in the report": (0, 40),
    "plan not stored": (0, 60),
    "silence by the holder's clock": (0, 40),
    "claim takes over a released lease": (160, 60),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_search_misses_the_rule(name: str) -> None:
    first, count = WITHIN[name]
    with MUTATIONS[name]():
        found = next(search(range(first, first + count)), None)
    assert found is not None, f"{name}: not found in {count} seeds from {first} on"
