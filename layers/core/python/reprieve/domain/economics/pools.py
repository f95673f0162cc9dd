"""What a pool's own history says about its next hours, and what an hour in it is worth."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from reprieve.domain.economics.interval import checkpoint_interval, waste
from reprieve.domain.economics.rebalance import AdviceRecord
from reprieve.domain.economics.spending import free_share

Pool = TypeVar("Pool")

# λ ~ Gamma(0.5, 2 h): mean 0.25/h, wide. Public logs of V100 and A100 pools lie between 0.06
# and 1.4/h, and no published constant survives comparison with them.
PRIOR_INTERRUPTIONS = 0.5
PRIOR_HOURS = 2.0


# λ_f ~ Gamma(0.5, 3000 h): mean 1.7e-4 per host-hour, what one large training run reported
# for hosts of 8 GPUs (419 unexpected stops in 54 days on 16,384 GPUs).
PRIOR_SILENT_LOSSES = 0.5
PRIOR_SILENT_HOURS = 3000.0


def silent_hazard_per_hour(*, losses: int, hours: float) -> float:
    """Return λ̂_f, the mean of the Gamma posterior after *losses* without notice in *hours*."""
    return (PRIOR_SILENT_LOSSES + losses) / (PRIOR_SILENT_HOURS + hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """
    One pool in one account: hours run, interruptions, launches asked for and got.

    ``silent_losses`` are hosts that went without any notice; ``advised`` those that got a
    rebalance recommendation, ``advised_rightly`` those of them that were then interrupted.
    """

    hours: float = 0.0
    interruptions: int = 0
    launches_tried: int = 0
    launches_won: int = 0
    silent_losses: int = 0
    advised: int = 0
    advised_rightly: int = 0

    @property
    def hazard_per_hour(self) -> float:
        """λ̂ = (a0+n)/(b0+h), the mean of the Gamma posterior."""
        return (PRIOR_INTERRUPTIONS + self.interruptions) / (PRIOR_HOURS + self.hours)

    @property
    def launch_success(self) -> float:
        """ŝ = (1+won)/(2+tried), the mean of a Beta(1, 1) posterior."""
        return (1 + self.launches_won) / (2 + self.launches_tried)

    def survival(self, hours: float) -> float:
        """
        Return the chance of no interruption in *hours*: ((b0+h)/(b0+h+t))^(a0+n).

        e^(-λt) averaged over the posterior: with little history the hazard may well be far
        below its mean, and one number for λ would hide that.
        """
        known = PRIOR_HOURS + self.hours
        exponent: float = PRIOR_INTERRUPTIONS + self.interruptions
        chance: float = (known / (known + hours)) ** exponent
        return chance

    def after_run(self, *, hours: float, interrupted: bool) -> History:
        """Return the history with one more life of a host."""
        return replace(
            self, hours=self.hours + hours, interruptions=self.interruptions + interrupted
        )

    def after_launch(self, *, won: bool) -> History:
        """Return the history with one more launch."""
        return replace(
            self,
            launches_tried=self.launches_tried + 1,
            launches_won=self.launches_won + won,
        )

    def __add__(self, other: History) -> History:
        """Return both together."""
        return History(
            hours=self.hours + other.hours,
            interruptions=self.interruptions + other.interruptions,
            launches_tried=self.launches_tried + other.launches_tried,
            launches_won=self.launches_won + other.launches_won,
            silent_losses=self.silent_losses + other.silent_losses,
            advised=self.advised + other.advised,
            advised_rightly=self.advised_rightly + other.advised_rightly,
        )


NOTHING_KNOWN = History()


def advice_record(histories: Iterable[History]) -> AdviceRecord:
    """Return what *histories* together say of rebalance recommendations."""
    seen = sum(histories, NOTHING_KNOWN)
    return AdviceRecord(
        advised=seen.advised,
        followed=seen.advised_rightly,
        unannounced=seen.interruptions - seen.advised_rightly,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What of a job decides its overhead in a pool: C, K, q and λ_f."""

    save_seconds: float
    dead_seconds: float
    recall: float = 0.0
    silent_hazard_per_hour: float = 0.0

    def at(self, hazard_per_hour: float) -> float:
        """Return ω(λ) at the interval that the job would use there."""
        interval = checkpoint_interval(
            save_seconds=self.save_seconds,
            hazard_per_hour=hazard_per_hour,
            recall=self.recall,
            silent_hazard_per_hour=self.silent_hazard_per_hour,
        )
        return waste(
            interval_seconds=interval.total_seconds(),
            save_seconds=self.save_seconds,
            hazard_per_hour=hazard_per_hour,
            dead_seconds=self.dead_seconds,
            recall=self.recall,
            silent_hazard_per_hour=self.silent_hazard_per_hour,
        ).total


def score(
    history: History,
    overheads: Overheads,
    *,
    usd_per_hour: float,
    throughput: float = 1.0,
    credit: bool = False,
) -> float:
    """
    Return P(1+ω(λ̂))/ŝ per relative throughput: dollars per useful hour, smallest wins.

    Price and failed launches weigh far more in it than λ̂ does, as they should. With
    *credit* the hours that AWS doesn't charge count too, P(1-f(λ̂))(1+ω(λ̂))/ŝ: a pool that
    is lost within the hour is then cheap, and the job takes longer.
    """
    hazard = history.hazard_per_hour
    useful = usd_per_hour * (1 + overheads.at(hazard))
    if credit:
        useful *= 1 - free_share(hazard)
    return useful / history.launch_success / throughput


def ranked(
    usd_per_hour: Mapping[Pool, float],
    histories: Mapping[Pool, History],
    overheads: Overheads,
    *,
    noticed: Collection[Pool] = (),
) -> list[Pool]:
    """
    Return the pools from the best on, without *noticed*: every one with an unexpired notice.

    Leaving out only the last one makes a job bounce between two pools that die together.
    Equal scores keep the order of *usd_per_hour*.
    """
    scores = {
        pool: score(histories.get(pool, NOTHING_KNOWN), overheads, usd_per_hour=price)
        for pool, price in usd_per_hour.items()
        if pool not in noticed
    }
    return sorted(scores, key=lambda pool: scores[pool])
