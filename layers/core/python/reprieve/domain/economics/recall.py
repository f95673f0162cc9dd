"""What fits into the notice, and how often it has worked."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from reprieve.domain.clock import NoticeClock

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """
    The notice as an emergency checkpoint finds it, on one instance type.

    ``step_seconds`` is the longest wait for a step boundary. ``upload_gbit_per_second`` is
    what the type sustains, not the burst on its data sheet.
    """

    upload_gbit_per_second: float
    delivery_seconds: float = 5.0
    step_seconds: float = 2.0
    clock: NoticeClock = field(default_factory=NoticeClock)

    @property
    def upload_seconds(self) -> float:
        """What delivery, step boundary and margin leave for the upload."""
        return max(
            0.0,
            (self.clock.notice - self.clock.margin).total_seconds()
            - self.delivery_seconds
            - self.step_seconds,
        )

    @property
    def largest_gigabytes(self) -> float:
        """The largest state S with D + t_step + 8S/G + margin ≤ notice."""
        return self.upload_seconds * self.upload_gbit_per_second / BITS_PER_BYTE

    def needed(self, state_gigabytes: float) -> timedelta:
        """Return D + t_step + 8S/G + margin for a state of that size."""
        upload = state_gigabytes * BITS_PER_BYTE / self.upload_gbit_per_second
        before = timedelta(seconds=self.delivery_seconds + self.step_seconds)
        return before + timedelta(seconds=upload) + self.clock.margin

    def fits(self, state_gigabytes: float) -> bool:
        """Tell whether such a state can be saved in the notice; if not, plan with q = 0."""
        return state_gigabytes <= self.largest_gigabytes


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Emergency checkpoints of one (job, type): how many were tried, how many held."""

    attempts: int = 0
    successes: int = 0

    @property
    def estimate(self) -> float:
        """q̂ = (1 + successes)/(2 + attempts): one half until something is known."""
        return (1 + self.successes) / (2 + self.attempts)

    def after(self, *, success: bool) -> SuccessRate:
        """Return the rate with one more attempt."""
        return SuccessRate(self.attempts + 1, self.successes + success)
