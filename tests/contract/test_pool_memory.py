"""PoolMemory: a pool that had nothing to give stays cold for a while, and not longer."""

from __future__ import annotations

from tests.builders import POOL, SPOT_A, SPOT_B, at
from tests.contract.stores import Stores


def test_a_chilled_pool_is_cold_with_its_reason_until_its_time(stores: Stores) -> None:
    stores.pools.chill(POOL, SPOT_A, until=at(180), why="InsufficientInstanceCapacity")

    assert stores.pools.cold(POOL, now=at(179.999)) == {SPOT_A: "InsufficientInstanceCapacity"}
    assert stores.pools.cold(POOL, now=at(180)) == {}


def test_the_later_end_wins_with_its_reason(stores: Stores) -> None:
    stores.pools.chill(POOL, SPOT_A, until=at(180), why="first")
    stores.pools.chill(POOL, SPOT_A, until=at(60), why="shorter")
    assert stores.pools.cold(POOL, now=at(100)) == {SPOT_A: "first"}

    stores.pools.chill(POOL, SPOT_A, until=at(240), why="longer")
    assert stores.pools.cold(POOL, now=at(200)) == {SPOT_A: "longer"}


def test_each_pool_and_each_capacity_is_cold_by_itself(stores: Stores) -> None:
    stores.pools.chill(POOL, SPOT_A, until=at(180), why="a")
    stores.pools.chill(POOL, SPOT_B, until=at(60), why="b")
    stores.pools.chill("large", SPOT_B, until=at(180), why="c")

    assert stores.pools.cold(POOL, now=at(0)) == {SPOT_A: "a", SPOT_B: "b"}
    assert stores.pools.cold(POOL, now=at(100)) == {SPOT_A: "a"}
    assert stores.pools.cold("large", now=at(100)) == {SPOT_B: "c"}
