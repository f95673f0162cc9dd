"""
Small worlds, all of them: one job, two hosts, every fault x moment x crash point x lost report.

``python -m tests.simulation.exhaustive`` plays each single fault; ``--pairs`` each fault at a
moment together with each crash point and each lost report, ``--slice K/N`` one part of that.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from tests.simulation.cases import small, work
from tests.simulation.faults import (
    AT_A_CALL_OF_A_FUNCTION,
    AT_A_CALL_OF_A_HOST,
    AT_A_MOMENT,
    HOST_CALLS,
    Fault,
    Kind,
    Schedule,
)
from tests.simulation.quick import quickly
from tests.simulation.search import play, shorten
from tests.simulation.world import World

# A job that saves, is taken back with notice, moves and finishes: every use case has its turn.
STORY = small(Fault(90.0, Kind.RECLAIM), works=(work(120.0, save_every=40.0),))
MOMENTS = tuple(range(0, 201, 20))
FEW_MOMENTS = tuple(range(10, 211, 40))
LASTING = (70.0, 500.0)
# The others are over at once, however long they are said to last.
THAT_LAST = frozenset(
    {
        Kind.MAINTENANCE,
        Kind.FREEZE,
        Kind.CUT,
        Kind.OUTAGE,
        Kind.BLIND,
        Kind.DRY,
        Kind.DRY_ALL,
        Kind.BAD_MAIL,
        Kind.NO_SWEEP,
        Kind.THROTTLE,
        Kind.UNREAD,
        Kind.LAG,
        Kind.DRAIN,
        Kind.HOST_FREEZES_AFTER,
        Kind.REQUEUED_AFTER,
    }
)


def length(story: Schedule = STORY) -> tuple[int, int]:
    """Return how many calls functions make in *story*, and how many reports hosts send."""
    world = World(story)
    world.play()
    return world.function_calls, world.reports


def at_moments(moments: Sequence[int] = MOMENTS) -> Iterator[Schedule]:
    """Yield the story with each fault at each moment; some last, and then a while or long."""
    for kind, at in product(AT_A_MOMENT, moments):
        for amount in _lasting(kind):
            yield _with(STORY, Fault(float(at), kind, 0.0, amount))


def at_crash_points() -> Iterator[Schedule]:
    """Yield the story with each fault at each call that functions make."""
    calls, _ = length()
    for kind, nth in product(AT_A_CALL_OF_A_FUNCTION, range(1, calls + 1)):
        yield replace(STORY, strikes=((kind, nth),))


def at_host_calls() -> Iterator[Schedule]:
    """Yield the story with each fault at each kind of call that a host makes, early and late."""
    names = sorted(set(HOST_CALLS))
    for kind, name, at in product(AT_A_CALL_OF_A_HOST, names, (0, 60, 100)):
        for amount in _lasting(kind):
            yield _with(STORY, Fault(float(at), kind, 0.0, amount, name))


def _lasting(kind: Kind) -> tuple[float, ...]:
    return LASTING if kind in THAT_LAST else LASTING[:1]


def at_reports(story: Schedule = STORY) -> Iterator[Schedule]:
    """Yield *story* with each report lost."""
    _, reports = length()
    for nth in range(1, reports + 1):
        yield replace(story, lost=nth)


SINGLES = {
    "fault x moment": at_moments,
    "fault x crash point of a function": at_crash_points,
    "fault x call of a host": at_host_calls,
    "lost report": at_reports,
}


def pairs() -> Iterator[Schedule]:
    """Yield each fault at a moment, with each crash point and with each lost report."""
    calls, _ = length()
    for one in at_moments(FEW_MOMENTS):
        yield from at_reports(one)
        for nth in range(1, calls + 1):
            yield replace(one, strikes=((Kind.DIES_AFTER, nth),))


def _with(story: Schedule, fault: Fault) -> Schedule:
    faults = sorted((*story.faults, fault), key=lambda each: each.at)
    return replace(story, faults=tuple(faults))


def main() -> int:
    """Play them, count them, and tell what broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exhaustive")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--slice", default="0/1", help="K/N: of every N worlds the K-th")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    calls, reports = length()
    sys.stdout.write(f"the story: {calls} calls of functions, {reports} reports of hosts\n")
    part, _, parts = options.slice.partition("/")
    with quickly():
        broken = _play({"pairs": pairs} if options.pairs else SINGLES, nth=int(part), of=int(parts))
    sys.stdout.write(f"{sum(broken.values())} broke a promise {dict(broken) or ''}\n")
    return 1 if broken else 0


def _play(
    groups: Mapping[str, Callable[[], Iterator[Schedule]]], *, nth: int, of: int
) -> Counter[str]:
    """Play the *nth* *of* so many parts of each group; return what broke how often."""
    broken = Counter[str]()
    for name, worlds in groups.items():
        began, count = time.process_time(), 0
        for schedule in islice(worlds(), nth, None, of):
            count += 1
            found = play(schedule)
            if found:
                broken[found.kind] += 1
                if broken[found.kind] == 1:
                    sys.stdout.write(f"{shorten(found)}\n")
        spent = time.process_time() - began
        sys.stdout.write(f"{name}: {count} worlds, {spent:.0f} s\n")
        sys.stdout.flush()
    return broken


if __name__ == "__main__":
    raise SystemExit(main())
