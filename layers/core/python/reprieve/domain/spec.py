"""What a user asks to have run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve.domain.needs import NOTHING, Needs


class Remedy(StrEnum):
    """What is done about a job that Spot doesn't serve."""

    ON_DEMAND = "on-demand"  # its next hosts are asked for there first
    PARK = "park"  # it waits for a person
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Due:
    """
    When a job has to be done, and what is needed to tell whether it will be.

    *work* is the useful time that *steps* steps take on one host, without saves and
    interruptions: a person's estimate, since nothing has run yet.
    """

    at: datetime
    work: timedelta
    steps: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """
    The part of a job that never changes; a copy travels in every lease.

    ``command`` is an argv, never a shell line. ``code`` is the SHA-256 of the zip under
    ``code/`` in the bucket. ``secrets`` maps a variable to the ARN of its value, never to
    the value. A job that ``max_without_progress`` attempts in a row brought no new
    checkpoint goes on in ``fallback_pool`` (one without interruptions, as a rule), or waits
    for a person if it has none, unless ``if_stuck`` sends it to on-demand hosts.
    ``if_spot_loses`` is done once redone work made Spot dearer than on-demand. The host asks
    for a checkpoint every ``save_every``; without it as often as the formulas say, or never
    without ``periodic_saves``. ``needs`` is what a host must have to run it at all.
    ``profile`` is how the checkpoints of a job without the helper look: a framework's name,
    or patterns of files. Without ``helper`` the job's Python is left as it is. With an
    ``image`` the job and its setup run in a container of it.
    """

    command: tuple[str, ...]
    code: str | None = None
    setup: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    max_restarts: int = 3
    max_without_progress: int = 4
    fallback_pool: str | None = None
    save_every: timedelta | None = None
    needs: Needs = NOTHING
    periodic_saves: bool = True
    due: Due | None = None
    if_stuck: Remedy = Remedy.PARK
    if_spot_loses: Remedy = Remedy.ON_DEMAND
    profile: tuple[str, ...] = ()
    helper: bool = True
    image: str | None = None
