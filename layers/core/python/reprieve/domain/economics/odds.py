"""Chances: of no interruption at all, and of ever finishing without checkpoints."""

from __future__ import annotations

import math

GRID = 2000  # steps over the work of the job; 200 move a chance by about 0.005


def no_interruption(*, hazard_per_hour: float, hours: float) -> float:
    """Return e^(-λt)."""
    return math.exp(-hazard_per_hour * hours)


def expected_interruptions(*, hazard_per_hour: float, hours: float) -> float:
    """Return λt."""
    return hazard_per_hour * hours


def hours_without_checkpoints(
    *, work_hours: float, hazard_per_hour: float, dead_hours: float = 0.0
) -> float:
    """
    Return the mean time to get through *work_hours* in one piece, starting over each time.

    (e^(λW) - 1)·(1/λ + K): 48 h at 0.5/h would take six million years.
    """
    if hazard_per_hour <= 0:
        return work_hours
    exponent = hazard_per_hour * work_hours
    if exponent > 700:  # noqa: PLR2004 - where a float ends
        return math.inf
    return math.expm1(exponent) * (1 / hazard_per_hour + dead_hours)


def finishes_without_checkpoints(
    *,
    work_hours: float,
    hazard_per_hour: float,
    limit_hours: float,
    dead_hours: float = 0.0,
    grid: int = GRID,
) -> float:
    """
    Return the chance F that some attempt of *work_hours* is done by *limit_hours*.

    Renewal equation F(h) = e^(-λW)[h ≥ W] + ∫₀^W λe^(-λs) F(h-s-K) ds, on a grid of
    W/*grid*; the exponential kernel makes the integral a running sum.
    """
    if limit_hours < work_hours:
        return 0.0
    through = no_interruption(hazard_per_hour=hazard_per_hour, hours=work_hours)
    if hazard_per_hour <= 0:
        return 1.0
    step = work_hours / grid
    decay = math.exp(-hazard_per_hour * step)
    dead = round(dead_hours / step)
    chance: list[float] = []
    integral = 0.0
    for index in range(math.floor(limit_hours / step + 1e-9) + 1):
        # A loss in (s, s+step] leaves F from the middle of that step on, K later.
        new = _at(chance, index - dead - 1)
        old = _at(chance, index - dead - 1 - grid)
        integral = decay * integral + (1 - decay) * (new - through * old)
        chance.append(min(1.0, (through if index >= grid else 0.0) + integral))
    return chance[-1]


def _at(values: list[float], index: int) -> float:
    return values[index] if 0 <= index < len(values) else 0.0
