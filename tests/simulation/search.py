"""Run schedules, shorten those that break a promise, and tell their story."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.simulation.faults import Schedule, draw
from tests.simulation.promises import BrokenPromiseError
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule that breaks a promise."""

    schedule: Schedule
    promise: str
    trace: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The promise without its names, so that two breaks can be compared."""
        words = self.promise.split("; ")[0].split(":")[0].split()
        return " ".join(word for word in words if not any(c.isdigit() for c in word))

    def __str__(self) -> str:
        story = "\n".join(_abridged(self.trace))
        faults = "\n".join(f"  {fault.at:8.2f}  {fault}" for fault in self.schedule.faults)
        return (
            f"seed {self.schedule.seed} breaks: {self.promise}\nworks: {self.schedule.works}\n"
            f"faults:\n{faults}\ntimeline:\n{story}\n"
        )


def _abridged(lines: Sequence[str]) -> Sequence[str]:
    """Leave out the middle of a long story: it began and it ended, in between it waited."""
    half = 50
    if len(lines) <= 2 * half:
        return lines
    return [*lines[:half], f"          … {len(lines) - 2 * half} lines …", *lines[-half:]]


def play(schedule: Schedule) -> Found | None:
    """Run *schedule*; return what it broke."""
    world = World(schedule)
    try:
        world.play()
    except (BrokenPromiseError, Exception) as error:  # noqa: BLE001 - each is a find
        promise = str(error) or repr(error)
        world.say(f"BROKEN {promise}")
        return Found(schedule, promise, tuple(world.trace))
    return None


def search(seeds: Iterable[int]) -> Iterator[Found]:
    """Yield what breaks, as drawn."""
    for seed in seeds:
        found = play(draw(seed))
        if found:
            yield found


def shorten(found: Found) -> Found:
    """Return the same break with as few jobs and faults as can be."""
    again = True
    while again:
        again = False
        for smaller in _smaller(found.schedule):
            kept = play(smaller)
            if kept and kept.kind == found.kind:
                found, again = kept, True
                break
    return found


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for nth in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:nth] + schedule.faults[nth + 1 :])
    for nth in range(len(schedule.works)):
        if len(schedule.works) > 1:
            yield replace(schedule, works=schedule.works[:nth] + schedule.works[nth + 1 :])
    if any(schedule.skews):
        yield replace(schedule, skews=(0.0,))
