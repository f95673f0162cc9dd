"""
Deadlines: when Spot may be waited for and when on-demand must be paid.

Uniform Progress (Wu et al., "Can't Be Late", NSDI 2024) keeps progress c(t) on the line
e(t) = t·C0/R0. Ours differs in the safety net, which also counts work that isn't durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Move(StrEnum):
    """What to run on now."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    ON_DEMAND_TO_THE_END = "on-demand to the end"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformProgress:
    """
    A job of ``work_seconds`` (C0) due ``deadline_seconds`` (R0) after its submission.

    ``changeover_seconds`` is d = B + R. ``undurable_seconds`` is the work that an
    interruption may take back, T + C; 0 gives the rule as published. All in seconds, as
    c(t) and t below.
    """

    work_seconds: float
    deadline_seconds: float
    changeover_seconds: float
    undurable_seconds: float = 0.0

    def line(self, elapsed: float) -> float:
        """Return e(t): where progress should be."""
        return elapsed * self.work_seconds / self.deadline_seconds

    def behind(self, *, elapsed: float, done: float) -> bool:
        """Tell whether c(t) < e(t)."""
        return done < self.line(elapsed)

    def may_leave_on_demand(self, *, elapsed: float, done: float) -> bool:
        """Tell whether c(t) ≥ e(t+2d), the hysteresis that pays for two changeovers."""
        return done >= self.line(elapsed + 2 * self.changeover_seconds)

    def slack(self, *, elapsed: float, done: float) -> float:
        """Return R(t) - C(t) in seconds."""
        return (self.deadline_seconds - elapsed) - (self.work_seconds - done)

    @property
    def least_slack(self) -> float:
        """2d + T + C: with less, an idle job goes on on-demand and stays there."""
        return 2 * self.changeover_seconds + self.undurable_seconds

    def out_of_slack(self, *, elapsed: float, done: float) -> bool:
        """Tell whether the safety net must catch the job now."""
        return self.slack(elapsed=elapsed, done=done) < self.least_slack

    def feasible(self, *, boot_seconds: float) -> bool:
        """Tell whether on-demand from the first minute on would be in time."""
        return self.work_seconds + boot_seconds <= self.deadline_seconds

    def next_decision(self, *, elapsed: float, done: float) -> float | None:
        """
        Return the t at which an idle job will have to think again, None if there is none ahead.

        It falls behind the line, or runs out of slack.
        """
        behind = done * self.deadline_seconds / self.work_seconds
        ahead = [at for at in (self.net(done=done), behind) if at > elapsed]
        return min(ahead, default=None)

    def net(self, *, done: float) -> float:
        """Return the t from which on a job that does nothing is out of slack."""
        return self.deadline_seconds - (self.work_seconds - done) - self.least_slack

    def when_idle(self, *, elapsed: float, done: float, spot_available: bool) -> Move:
        """
        Return what an idle job starts on.

        Spot that is there is taken even when behind (rule 2): it costs less per progress.
        Without Spot a job behind the line pays for on-demand (rule 1), one ahead waits.
        """
        if self.out_of_slack(elapsed=elapsed, done=done):
            return Move.ON_DEMAND_TO_THE_END
        if spot_available:
            return Move.SPOT
        return Move.ON_DEMAND if self.behind(elapsed=elapsed, done=done) else Move.WAIT

    def when_on_demand(self, *, elapsed: float, done: float, spot_available: bool) -> Move:
        """Return whether a job that runs on-demand goes back to Spot (rule 3)."""
        if self.out_of_slack(elapsed=elapsed, done=done):
            return Move.ON_DEMAND_TO_THE_END
        if spot_available and self.may_leave_on_demand(elapsed=elapsed, done=done):
            return Move.SPOT
        return Move.ON_DEMAND
