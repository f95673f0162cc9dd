"""The periods at 120 s are the documented ones, and they fit together at any scale."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        ("notice", 120),
        ("margin", 15),
        ("lease", 60),
        ("renewal", 15),
        ("sweep", 60),
        ("boot", 300),
        ("cold", 180),
        ("overstay", 60),
        ("idle", 600),
    ],
)
def test_at_two_minutes_every_period_is_the_documented_one(period: str, seconds: float) -> None:
    assert getattr(NoticeClock(), period) == timedelta(seconds=seconds)


@given(st.floats(min_value=1, max_value=3600))
def test_the_periods_fit_together_at_any_scale(seconds: float) -> None:
    clock = NoticeClock.of_seconds(seconds)
    assert clock.renewal * 4 <= clock.lease * 1.001
    assert clock.lease * 5 <= clock.sweep * clock.silent_sweeps
    assert clock.idle > clock.notice + clock.margin
    assert clock.margin < clock.notice
