"""What a user asks to have run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from reprieve.domain.needs import NOTHING, Needs


@dataclass(frozen=True, slots=True)
class JobSpec:
    """
    The part of a job that never changes; a copy travels in every lease.

    ``command`` is an argv, never a shell line. ``code`` is the SHA-256 of the zip under
    ``code/`` in the bucket. ``secrets`` maps a variable to the ARN of its value, never to
    the value. A job that ``max_without_progress`` attempts in a row brought no new
    checkpoint goes on in ``fallback_pool`` (one without interruptions, as a rule), or waits
    for a person if it has none. With ``save_every`` the host asks for a checkpoint that
    often. ``needs`` is what a host must have to run it at all.
    ``profile`` is how the checkpoints of a job without the helper look: a framework's name,
    or patterns of files. Without ``helper`` the job's Python is left as it is.
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
    profile: tuple[str, ...] = ()
    helper: bool = True
