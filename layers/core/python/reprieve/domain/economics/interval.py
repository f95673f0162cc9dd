"""
How often to save, and what saving and being interrupted cost.

First order: Young 1974, Daly 2006; with a notice that is answered in time with probability q
the hazard that costs work is (1-q)λ + λ_f (recall form of Aupy, Robert, Vivien, Zaidouni,
arXiv 1302.3752; the algebra is ours). Valid for C ≪ T ≪ 1/λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from reprieve.domain.economics.spending import HOUR_SECONDS

SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(hours=2)
# With a deadline, work that isn't durable must never be worth more than this.
LONGEST_WITH_DEADLINE = timedelta(minutes=30)


def losing_hazard(
    *, hazard_per_hour: float, recall: float = 0.0, silent_hazard_per_hour: float = 0.0
) -> float:
    """Return (1-q)λ + λ_f per hour: how often work is lost, not merely interrupted."""
    return (1 - recall) * hazard_per_hour + silent_hazard_per_hour


def young(*, save_seconds: float, losing_hazard_per_hour: float) -> float:
    """Return T* = √(2C/h) in seconds, unbounded: infinite where nothing is ever lost."""
    if losing_hazard_per_hour <= 0:
        return math.inf
    return math.sqrt(2 * save_seconds * HOUR_SECONDS / losing_hazard_per_hour)


def daly(*, save_seconds: float, losing_hazard_per_hour: float) -> float:
    """Return Daly's higher-order interval in seconds; under 1 % off Young's at our hazards."""
    if losing_hazard_per_hour <= 0:
        return math.inf
    mean = HOUR_SECONDS / losing_hazard_per_hour
    ratio = save_seconds / (2 * mean)
    if ratio >= 1:
        return mean
    return math.sqrt(2 * save_seconds * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - (
        save_seconds
    )


def checkpoint_interval(
    *,
    save_seconds: float,
    hazard_per_hour: float,
    recall: float = 0.0,
    silent_hazard_per_hour: float = 0.0,
    longest: timedelta = LONGEST,
) -> timedelta:
    """
    Return T = min(max(T*, 1 min), *longest*).

    The bound above is a backstop that the formula can't see: with q -> 1 and λ_f = 0 it says
    never, and one notice that comes late would cost everything.
    """
    hazard = losing_hazard(
        hazard_per_hour=hazard_per_hour,
        recall=recall,
        silent_hazard_per_hour=silent_hazard_per_hour,
    )
    best = young(save_seconds=save_seconds, losing_hazard_per_hour=hazard)
    return timedelta(seconds=min(max(best, SHORTEST.total_seconds()), longest.total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """What is lost per useful second: ω in its three parts."""

    saving: float
    redoing: float
    dead: float

    @property
    def total(self) -> float:
        """ω."""
        return self.saving + self.redoing + self.dead


def waste(
    *,
    interval_seconds: float,
    save_seconds: float,
    hazard_per_hour: float,
    dead_seconds: float,
    recall: float = 0.0,
    silent_hazard_per_hour: float = 0.0,
) -> Waste:
    """Return w(T) = C/T + [(1-q)λ + λ_f]·T/2 + λK; an infinite T saves nothing and loses all."""
    losing = losing_hazard(
        hazard_per_hour=hazard_per_hour,
        recall=recall,
        silent_hazard_per_hour=silent_hazard_per_hour,
    )
    redoing = losing / HOUR_SECONDS * interval_seconds / 2 if losing else 0.0
    return Waste(
        saving=save_seconds / interval_seconds,
        redoing=redoing,
        dead=hazard_per_hour / HOUR_SECONDS * dead_seconds,
    )


def least_waste(
    *,
    save_seconds: float,
    hazard_per_hour: float,
    dead_seconds: float,
    recall: float = 0.0,
    silent_hazard_per_hour: float = 0.0,
) -> float:
    """Return w(T*) = √(2C·[(1-q)λ + λ_f]) + λK."""
    losing = losing_hazard(
        hazard_per_hour=hazard_per_hour,
        recall=recall,
        silent_hazard_per_hour=silent_hazard_per_hour,
    )
    return math.sqrt(2 * save_seconds * losing / HOUR_SECONDS) + (
        hazard_per_hour / HOUR_SECONDS * dead_seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long a job stands still, by how its end was learnt: K in seconds."""

    boot_seconds: float
    restore_seconds: float
    emergency_seconds: float = 0.0
    detection_seconds: float = 0.0
    notice_seconds: float = 120.0

    @property
    def replaced_at_notice(self) -> float:
        """K = max(B, E) + R: the replacement boots while the old host still saves."""
        return max(self.boot_seconds, self.emergency_seconds) + self.restore_seconds

    @property
    def replaced_at_death(self) -> float:
        """K = 120 s + B + R: the job saved and stopped, and nobody acted until the end."""
        return self.notice_seconds + self.boot_seconds + self.restore_seconds

    @property
    def unannounced(self) -> float:
        """K = detection + B + R."""
        return self.detection_seconds + self.boot_seconds + self.restore_seconds
