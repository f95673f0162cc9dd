"""
Whether an emergency save can still be made durable, judged by the saves before it.

Averages in which the newest counts most. They travel with the job's checkpoints: a host of
the same type goes on from them. Another type has another disk, another link and other
processors; it starts from half as fast, and the first of its own figures replaces that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from reprieve.domain.checkpoint import Measured

NEWEST = 0.3  # the weight of the newest measurement
# What an upload may take beyond its average: the link is shared, and the estimate small.
SAFETY = 1.3
ELSEWHERE = 2.0  # by how much slower an unknown type of host is taken to be


class Choice(StrEnum):
    """What to do with the time that is left."""

    EMERGENCY = "save now"
    PENDING = "finish what is being sent"


@dataclass(frozen=True, slots=True)
class Estimates:
    """
    What saving and stepping take; None is unknown.

    ``bytes`` are those that a save has to send, which may be few of what it holds. They are
    *guessed* while nothing but another type of host told them.
    """

    save_seconds: float | None = None
    bytes: float | None = None
    bytes_per_second: float | None = None
    step_seconds: float | None = None
    step: int | None = None
    step_at: float | None = None  # on the boot clock
    guessed: bool = False

    @classmethod
    def carried(cls, measured: Measured | None, host: str) -> Estimates:
        """Return what the checkpoint that a job goes on from tells of a host of type *host*."""
        if measured is None:
            return cls()
        factor = 1.0 if measured.host == host else ELSEWHERE
        return cls(
            save_seconds=_times(measured.save_seconds, factor),
            bytes=measured.size,
            bytes_per_second=_times(measured.bytes_per_second, 1 / factor),
            step_seconds=_times(measured.step_seconds, factor),
            guessed=measured.host != host,
        )

    def on(self, host: str) -> Measured | None:
        """Return what the next host is to know; what was guessed here says nothing to it."""
        if self.guessed or self.needed is None:
            return None
        return Measured(
            host, self.save_seconds, self.bytes, self.bytes_per_second, self.step_seconds
        )

    def progressed(self, step: int, at: float) -> Estimates:
        """Learn from the news, at *at*, that the job has reached *step*."""
        if self.step is None or self.step_at is None or step <= self.step or at <= self.step_at:
            return replace(self, step=step, step_at=at)
        each = (at - self.step_at) / (step - self.step)
        return replace(self, step=step, step_at=at, step_seconds=self._mean("step_seconds", each))

    def saved(
        self, *, sent: int | None, sent_seconds: float | None, save_seconds: float | None
    ) -> Estimates:
        """Learn from a save that is durable: bytes that had to be sent, and the times it took."""
        known = self
        if sent is not None:
            known = replace(known, bytes=self._mean("bytes", sent))
        if save_seconds is not None:
            known = replace(known, save_seconds=self._mean("save_seconds", save_seconds))
        if sent and sent_seconds:
            rate = self._mean("bytes_per_second", sent / sent_seconds)
            known = replace(known, bytes_per_second=rate, guessed=False)
        return known

    @property
    def needed(self) -> float | None:
        """
        The seconds from a request until the save is in the bucket; None if nobody knows.

        The job has to end its step first. A time that wasn't measured counts as none.
        """
        if self.bytes is None or self.bytes_per_second is None:
            return None
        upload = self.bytes / self.bytes_per_second * SAFETY
        return (self.step_seconds or 0.0) + (self.save_seconds or 0.0) + upload

    def _mean(self, name: str, new: float) -> float:
        known: float | None = getattr(self, name)
        return new if known is None or self.guessed else known + NEWEST * (new - known)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The choice, and why, in words for people."""

    choice: Choice
    text: str


def judge(
    estimates: Estimates,
    *,
    left: float,
    margin: float,
    step: int | None,
    durable_step: int | None,
    pending: int | None,
) -> Verdict:
    """
    Judge with *left* seconds to go, of which *margin* must stay.

    *pending* is the newest step that is being sent, *durable_step* the newest that is there.
    A save that wouldn't arrive stops the training for nothing and takes its link from the
    one that might: then the job trains on, and what is being sent is finished. Who knows
    nothing tries, and so does who only guesses, if nothing is being sent that would suffer.
    """
    needed = estimates.needed
    if needed is None:
        return Verdict(Choice.EMERGENCY, f"save now: {left:.0f} s left, nothing measured yet")
    figures = f"it needs {needed + margin:.1f} s of {left:.1f} s left"
    if needed + margin < left:
        return Verdict(Choice.EMERGENCY, f"save now: {figures}")
    if estimates.guessed and pending is None:
        text = f"save now: {figures}, but that was measured on another type of host"
        return Verdict(Choice.EMERGENCY, text)
    kept = max((one for one in (pending, durable_step) if one is not None), default=0)
    lost = "" if step is None else f", {max(0, step - kept)} steps lost at least"
    doing = "nothing is being sent" if pending is None else f"step {pending} is being sent"
    return Verdict(Choice.PENDING, f"no new save: {figures}; {doing}{lost}")


def _times(known: float | None, factor: float) -> float | None:
    return None if known is None else known * factor
