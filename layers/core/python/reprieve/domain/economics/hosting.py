"""
What a host decides by itself, on figures that functions gave it when it landed.

How often to ask the job for a checkpoint, whether advice is worth one, and whether to stay
until EC2 takes the host. Pure, and each answer carries its numbers; the simulator calls the
same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reprieve.domain.economics import rebalance, spending
from reprieve.domain.economics.interval import (
    LONGEST,
    LONGEST_WITH_DEADLINE,
    SHORTEST,
    checkpoint_interval,
)
from reprieve.domain.economics.pools import (
    NOTHING_KNOWN,
    History,
    advice_record,
    silent_hazard_per_hour,
)
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.economics.switches import Policy

# C of a job that hasn't saved yet.
USUAL_SAVE_SECONDS = 30.0

Fact = str | int | float | bool | None
Place = tuple[str, str]  # type, zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """
    What the account's history says of a host's next hours, as its functions knew it at launch.

    λ and λ_f per hour; ``precision`` is the share of rebalance recommendations that an
    interruption followed. ``off`` are the policies that its pool switched off.
    """

    hazard_per_hour: float = NOTHING_KNOWN.hazard_per_hour
    silent_hazard_per_hour: float = silent_hazard_per_hour(losses=0, hours=0.0)
    precision: float = rebalance.AdviceRecord().precision
    launched_at: datetime | None = None
    off: tuple[Policy, ...] = ()


NO_TERMS = Terms()


def terms(
    histories: Mapping[Place, History],
    place: Place | None,
    *,
    launched_at: datetime,
    off: tuple[Policy, ...] = (),
) -> Terms:
    """
    Return the terms of a host at *place*, None: of one that EC2 doesn't take back.

    λ is the capacity pool's own. λ_f and the worth of advice are rare and no matter of one
    capacity pool, so all of *histories* speak for them.
    """
    seen = histories.values()
    return Terms(
        hazard_per_hour=histories.get(place, NOTHING_KNOWN).hazard_per_hour if place else 0.0,
        silent_hazard_per_hour=silent_hazard_per_hour(
            losses=sum(history.silent_losses for history in seen),
            hours=sum(history.hours for history in seen),
        ),
        precision=advice_record(seen).precision,
        launched_at=launched_at,
        off=off,
    )


@dataclass(frozen=True, slots=True)
class SaveCost:
    """
    What saving costs this job here, measured; None until it was.

    C is how long a save stops the job, E how long an emergency save takes until it is durable.
    """

    save_seconds: float | None = None
    emergency_seconds: float | None = None


UNMEASURED = SaveCost()


def save_interval(
    terms: Terms, rate: SuccessRate, cost: SaveCost, *, window_seconds: float, due: bool
) -> timedelta:
    """
    Return T = min(max(T*, 1 min), 2 h or, with a deadline, 30 min).

    *window_seconds* is what a notice leaves for an emergency save: one known to take longer
    never holds, so q is 0 and T* is Young's.
    """
    return checkpoint_interval(
        save_seconds=_save_seconds(cost),
        hazard_per_hour=terms.hazard_per_hour,
        recall=_recall(rate, cost, window_seconds),
        silent_hazard_per_hour=terms.silent_hazard_per_hour,
        longest=_longest(due=due),
    )


@dataclass(frozen=True, slots=True)
class SavePlan:
    """How often a job is asked to save, *every* None: never; *facts* are the numbers in it."""

    every: timedelta | None
    text: str
    facts: dict[str, Fact]


def save_plan(
    terms: Terms,
    rate: SuccessRate,
    cost: SaveCost = UNMEASURED,
    *,
    window_seconds: float,
    given: timedelta | None = None,
    asked: bool = True,
    due: bool = False,
) -> SavePlan:
    """
    Return how often to save: as ``save_interval`` says, or as the job was *given*.

    *asked* False: its owner wants no periodic saves.
    """
    if given is not None:
        text = f"saves every {given.total_seconds():g} s, as submitted"
        return SavePlan(given, text, _every(given, "submitted"))
    if not asked or Policy.INTERVAL in terms.off:
        return SavePlan(None, "periodic saves are switched off", _every(None, "off"))
    every = save_interval(terms, rate, cost, window_seconds=window_seconds, due=due)
    recall, save = _recall(rate, cost, window_seconds), _save_seconds(cost)
    too_long, measured = recall == 0.0, cost.save_seconds is not None
    bounds = {SHORTEST: "T* below its least", _longest(due=due): "T* beyond its most"}
    rule = bounds.get(every, "T*")
    facts = _every(every, rule) | {
        "save_cost_s": round(save, 3),
        "save_cost_measured": measured,
        "hazard_per_hour": round(terms.hazard_per_hour, 6),
        "silent_hazard_per_hour": round(terms.silent_hazard_per_hour, 8),
        "recall": round(recall, 4),
    }
    text = (
        f"saves every {every.total_seconds():.0f} s by {rule}: C {save:.3g} s"
        f"{'' if measured else ' (usual)'}, λ {terms.hazard_per_hour:.3g}/h, q {recall:.2f}"
        f"{' (a save takes longer than a notice)' if too_long else ''}, "
        f"λ_f {terms.silent_hazard_per_hour:.2g}/h"
    )
    return SavePlan(every, text, facts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to do it, in words and in numbers."""

    yes: bool
    text: str
    facts: dict[str, Fact]


def saves_on_advice(terms: Terms, cost: SaveCost, *, unsaved_seconds: float) -> Verdict:
    """Return whether a rebalance recommendation deserves a checkpoint: unsaved > C/p."""
    if Policy.ADVICE in terms.off:
        return Verdict(yes=True, text="advice is always answered with a save", facts={})
    save = _save_seconds(cost)
    threshold = rebalance.save_threshold(save_seconds=save, precision=terms.precision)
    yes = rebalance.should_save(
        unsaved_seconds=unsaved_seconds, save_seconds=save, precision=terms.precision
    )
    text = (
        f"{'a save' if yes else 'no save'}: {unsaved_seconds:.0f} s unsaved, "
        f"C/p = {save:.3g} s / {terms.precision:.2f} = {threshold:.0f} s"
    )
    facts: dict[str, Fact] = {
        "saves": yes,
        "unsaved_s": round(unsaved_seconds, 1),
        "save_cost_s": round(save, 3),
        "precision": round(terms.precision, 4),
        "threshold_s": round(threshold, 1),
    }
    return Verdict(yes, text, facts)


def stays_until_reclaimed(terms: Terms, *, reclaimed_at: datetime) -> Verdict:
    """
    Return whether a host that has nothing left to do waits for EC2 to take it.

    In its first hour that makes all of it free, and terminating it would make it billed;
    afterwards each idle second costs.
    """
    if terms.launched_at is None or Policy.FIRST_HOUR in terms.off:
        return Verdict(yes=True, text="stays until EC2 takes it", facts={})
    age = reclaimed_at - terms.launched_at
    yes = spending.waits_for_reclaim(launched_ago_at_reclaim=age)
    minutes = age / timedelta(minutes=1)
    text = (
        f"stays until EC2 takes it: reclaimed {minutes:.0f} min after launch it is free"
        if yes
        else f"leaves now: reclaimed {minutes:.0f} min after launch it is paid to the second"
    )
    return Verdict(yes, text, {"stays": yes, "age_at_reclaim_s": round(age.total_seconds(), 1)})


def _save_seconds(cost: SaveCost) -> float:
    return USUAL_SAVE_SECONDS if cost.save_seconds is None else cost.save_seconds


def _recall(rate: SuccessRate, cost: SaveCost, window_seconds: float) -> float:
    too_long = cost.emergency_seconds is not None and cost.emergency_seconds > window_seconds
    return 0.0 if too_long else rate.estimate


def _longest(*, due: bool) -> timedelta:
    return LONGEST_WITH_DEADLINE if due else LONGEST


def _every(every: timedelta | None, rule: str) -> dict[str, Fact]:
    return {"save_every_s": round(every.total_seconds(), 1) if every else None, "save_rule": rule}
