"""What a rebalance recommendation is worth: a checkpoint often, a migration hardly ever."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.economics.interval import Recovery


@dataclass(frozen=True, slots=True)
class AdviceRecord:
    """
    Recommendations seen, those an interruption followed, and interruptions without one.

    Nothing official is published. One account, one night: 30 advised, 9 interrupted, 6 more
    without advice (aws-node-termination-handler issue 141), so precision 30 %, recall 60 %.
    """

    advised: int = 0
    followed: int = 0
    unannounced: int = 0

    @property
    def precision(self) -> float:
        """p̂ with a weak prior at the published anecdote: 3 of 10."""
        return (3 + self.followed) / (10 + self.advised)

    @property
    def recall(self) -> float:
        """r̂ with a weak prior at the published anecdote: 3 of 5."""
        return (3 + self.followed) / (5 + self.followed + self.unannounced)


def save_threshold(*, save_seconds: float, precision: float) -> float:
    """Return C/p in seconds: with more unsaved work than that, advice deserves a checkpoint."""
    if precision <= 0:
        return float("inf")
    return save_seconds / precision


def should_save(*, unsaved_seconds: float, save_seconds: float, precision: float) -> bool:
    """Tell whether p·elapsed > C: what a checkpoint is expected to rescue exceeds its cost."""
    return unsaved_seconds > save_threshold(save_seconds=save_seconds, precision=precision)


def migration_seconds(*, save_seconds: float, boot_seconds: float, restore_seconds: float) -> float:
    """Return K_m = R + C + B: standing still and double billing of a planned move."""
    return restore_seconds + save_seconds + boot_seconds


def interruption_seconds(*, dead_seconds: float, recall: float, interval_seconds: float) -> float:
    """Return K_i = K + (1-q)T/2: standing still and work redone after an interruption."""
    return dead_seconds + (1 - recall) * interval_seconds / 2


def migration_threshold(
    recovery: Recovery, *, save_seconds: float, recall: float, interval_seconds: float
) -> float:
    """Return K_m/K_i: the precision above which moving away on advice would pay."""
    return migration_seconds(
        save_seconds=save_seconds,
        boot_seconds=recovery.boot_seconds,
        restore_seconds=recovery.restore_seconds,
    ) / interruption_seconds(
        dead_seconds=recovery.replaced_at_notice,
        recall=recall,
        interval_seconds=interval_seconds,
    )
