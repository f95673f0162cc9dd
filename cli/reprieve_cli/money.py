"""What a person says about money and time at submit, checked against the pool that is to do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from reprieve.domain.capacity import Pool, Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.switches import Policy
from reprieve.domain.spec import Due, JobSpec, Remedy
from reprieve_cli import phrases
from reprieve_cli.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Wish:
    """A deadline as it was given, a span from now or a moment, and the work up to it."""

    deadline: timedelta | datetime
    work: timedelta
    steps: int


def wish(deadline: str | None, work: str | None, steps: int | None) -> Wish | None:
    """Read what was given; raise ``BadInputError`` if a part is missing or makes no sense."""
    if deadline is None:
        if work is None and steps is None:
            return None
        raise BadInputError("--work and --steps only serve a --deadline: give one, or drop them")
    if work is None or steps is None:
        raise BadInputError(
            "--deadline needs --work and --steps: how long the job works undisturbed, and in how "
            "many steps; its progress is judged by them"
        )
    span = phrases.parse_duration(work)
    if span is None or not span > timedelta():
        raise BadInputError(f"--work {work!r} is no length of time: write 90m or 48h")
    return Wish(_deadline(deadline), span, steps)


def bound(spec: JobSpec, wish: Wish | None, pool: Pool, *, now: datetime) -> JobSpec:
    """Return *spec* with its deadline; refuse what *pool* can't do for money."""
    paid = Tier.ON_DEMAND in pool.tiers
    if spec.if_stuck is Remedy.ON_DEMAND and not paid:
        raise BadInputError(f"--if-stuck on-demand: pool {pool.name} has no tier on-demand")
    if wish is None:
        return spec
    if not pool.follows(Policy.DEADLINE):
        raise BadInputError(f"pool {pool.name} has switched deadlines off: leave --deadline out")
    if not paid:
        raise BadInputError(
            f"--deadline needs a pool with the tier on-demand, which {pool.name} hasn't: "
            "without it nothing can be done when Spot is short"
        )
    at = now + wish.deadline if isinstance(wish.deadline, timedelta) else wish.deadline
    needed = wish.work + NoticeClock().boot
    if at - now < needed:
        raise BadInputError(
            f"due in {phrases.duration(at - now)}, and even on demand from now on the job takes "
            f"{phrases.duration(needed)}: give it more time"
        )
    return replace(spec, due=Due(at, wish.work, wish.steps))


def _deadline(text: str) -> timedelta | datetime:
    span = phrases.parse_duration(text)
    if span is not None:
        return span
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(
            f"--deadline {text!r} is neither a length of time (60h) nor a date (2026-01-31T18:00)"
        ) from error
    return (at if at.tzinfo else at.astimezone()).astimezone(UTC)
