"""
Errors by what the caller should do about them.

ReprieveError
├── StaleError           read again, decide again
├── UnknownOutcomeError  the write may or may not have happened: read, then decide
├── LeaseLostError       the lease isn't this host's: stop the job
├── NotAdoptedError      functions don't know this host yet: wait
├── IllegalTransitionError, MalformedError   a defect or bad input: don't retry
"""

from __future__ import annotations


class ReprieveError(Exception):
    """Base of every error of ours."""


class StaleError(ReprieveError):
    """Somebody else wrote first; read again and decide again."""


class UnknownOutcomeError(ReprieveError):
    """The service didn't say whether the write took effect (conflict, timeout, throttle)."""


class LeaseLostError(ReprieveError):
    """A conditional write on the lease was refused: another attempt or nobody owns the job."""


class NotAdoptedError(ReprieveError):
    """The host has no row yet, so it may not take work."""


class IllegalTransitionError(ReprieveError):
    """A move the transition table doesn't have."""

    def __init__(self, subject: str, old: str, new: str) -> None:
        super().__init__(f"{subject} can't move {old} -> {new}")


class MalformedError(ReprieveError):
    """A message, event or row that can't be understood; retrying can't help."""
