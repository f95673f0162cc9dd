"""
Who decides how: ours, and peers as behavioural models.

A peer here is what its documents and source say it does, reduced to the choices that matter
for money and time. It is not the peer's code, and where we don't know better a peer is given
the benefit of the doubt: the same checkpoints, the same prices, the same first-hour credit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Placement(StrEnum):
    """How a host is found."""

    REPRIEVE = "one fleet request over all pools that aren't cold"
    FLEET = "one fleet request, a pool that failed rests for 3 min"
    IN_TURN = "one pool after the other, 30 s for each that fails"
    SCHEDULED = "any pool, after 120 s of scheduling"
    ONE_POOL = "always the same pool"
    ON_DEMAND = "on-demand"


class Saving(StrEnum):
    """How often a periodic checkpoint is made."""

    NEVER = "never"
    FIXED = "every 30 min"
    YOUNG = "Young's interval, no notice assumed"
    BEST = "T* with the recall seen so far, clamped"


class Leaving(StrEnum):
    """What a host does between its last checkpoint and its reclaim."""

    AT_ONCE = "it terminates itself"
    UNLESS_FREE = "it stays in its first hour, which is free, and terminates itself later"
    NEVER = "it stays"


class DeadlineRule(StrEnum):
    """What is done for a deadline."""

    NONE = "nothing"
    NET = "on-demand once the slack is used up"
    UNIFORM = "uniform progress as published"
    UNIFORM_DURABLE = "uniform progress, undurable work counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A row of the table: what it is a model of, and its choices."""

    name: str
    label: str
    placement: Placement
    saving: Saving
    answers_notice: bool = False
    replaces_at_notice: bool = False
    leaves: Leaving = Leaving.AT_ONCE
    counts_credit: bool = False
    detection_seconds: float = 20.0
    deadline: DeadlineRule = DeadlineRule.NONE
    ours: bool = False


P, S = Placement, Saving

REPRIEVE = Policy(
    name="reprieve",
    label="Reprieve",
    placement=P.REPRIEVE,
    saving=S.BEST,
    answers_notice=True,
    replaces_at_notice=True,
    leaves=Leaving.UNLESS_FREE,
    detection_seconds=360.0,
    deadline=DeadlineRule.UNIFORM_DURABLE,
    ours=True,
)

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        REPRIEVE,
        Policy(
            name="on-demand",
            label="on-demand only",
            placement=P.ON_DEMAND,
            saving=S.NEVER,
        ),
        Policy(
            name="naive",
            label="one pool, no checkpoints",
            placement=P.ONE_POOL,
            saving=S.NEVER,
        ),
        Policy(
            name="batch-like-bare",
            label="AWS-Batch-like, no checkpoints",
            placement=P.SCHEDULED,
            saving=S.NEVER,
            detection_seconds=0.0,
        ),
        Policy(
            name="one-pool-30m",
            label="one pool, every 30 min",
            placement=P.ONE_POOL,
            saving=S.FIXED,
        ),
        Policy(
            name="batch-like-30m",
            label="AWS-Batch-like, every 30 min",
            placement=P.SCHEDULED,
            saving=S.FIXED,
            detection_seconds=0.0,
        ),
        Policy(
            name="skypilot-like-30m",
            label="SkyPilot-like, every 30 min",
            placement=P.IN_TURN,
            saving=S.FIXED,
        ),
        Policy(
            name="skypilot-like-young",
            label="SkyPilot-like, Young's interval",
            placement=P.IN_TURN,
            saving=S.YOUNG,
        ),
        Policy(
            name="notice-only",
            label="checkpoint at the notice only",
            placement=P.FLEET,
            saving=S.NEVER,
            answers_notice=True,
        ),
        Policy(
            name="drain-30m",
            label="Karpenter-like drain, every 30 min",
            placement=P.FLEET,
            saving=S.FIXED,
            answers_notice=True,
            replaces_at_notice=True,
        ),
    )
}

# Variants of ours that answer one question each.
VARIANTS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        replace(
            REPRIEVE,
            name="greedy-net",
            label="Reprieve, safety net only",
            deadline=DeadlineRule.NET,
        ),
        replace(
            REPRIEVE,
            name="uniform-as-published",
            label="Reprieve, uniform progress as published",
            deadline=DeadlineRule.UNIFORM,
        ),
        replace(
            REPRIEVE,
            name="credit-aware",
            label="Reprieve, first-hour credit in the score",
            counts_credit=True,
        ),
        replace(
            REPRIEVE,
            name="no-waiting",
            label="Reprieve, leaves at once",
            leaves=Leaving.AT_ONCE,
        ),
        replace(
            REPRIEVE,
            name="replace-at-death",
            label="Reprieve, replaces at death",
            replaces_at_notice=False,
            detection_seconds=20.0,
        ),
        replace(
            REPRIEVE,
            name="switches-off",
            label="Reprieve, every 30 min, stays until reclaimed",
            saving=S.FIXED,
            leaves=Leaving.NEVER,
            deadline=DeadlineRule.NONE,
        ),
        Policy(
            name="uniform-one-pool",
            label="uniform progress in one pool, no notice",
            placement=P.ONE_POOL,
            saving=S.FIXED,
            deadline=DeadlineRule.UNIFORM,
        ),
    )
}
