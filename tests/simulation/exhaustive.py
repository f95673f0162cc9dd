"""
Small worlds, all of them: one job, two hosts, every fault x moment x crash point x lost report.

``python -m tests.simulation.exhaustive`` plays each single fault; ``--pairs`` also each fault
at a moment together with each crash point and each lost report, which takes hours.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

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
from tests.simulation.search import play, shorten
from tests.simulation.world import World

# A job that saves, is taken back with notice, moves and finishes: every use case has its turn.
STORY = small(Fault(90.0, Kind.RECLAIM), works=(work(120.0, save_every=40.0),))
MOMENTS = tuple(range(0, 201, 20))
FEW_MOMENTS = tuple(range(10, 211, 40))
LASTING = (70.0, 500.0)


def length(story: Schedule = STORY) -> tuple[int, int]:
    """Return how many calls functions make in *story*, and how many reports hosts send."""
    world = World(story)
    world.play()
    return world.function_calls, world.reports


def at_moments(moments: Sequence[int] = MOMENTS) -> Iterator[Schedule]:
    """Yield the story with each fault at each moment; some last, and then a while or long."""
    for kind, at, amount in product(AT_A_MOMENT, moments, LASTING):
        yield _with(STORY, Fault(float(at), kind, 0.0, amount))


def at_crash_points() -> Iterator[Schedule]:
    """Yield the story with each fault at each call that functions make."""
    calls, _ = length()
    for kind, nth in product(AT_A_CALL_OF_A_FUNCTION, range(1, calls + 1)):
        yield replace(STORY, strikes=((kind, nth),))


def at_host_calls() -> Iterator[Schedule]:
    """Yield the story with each fault at each kind of call that a host makes, early and late."""
    names = sorted(set(HOST_CALLS))
    for kind, name, at, amount in product(AT_A_CALL_OF_A_HOST, names, (0, 60, 100), LASTING):
        yield _with(STORY, Fault(float(at), kind, 0.0, amount, name))


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
    parser.add_argument("--every", type=int, default=1, help="of all so many only one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    calls, reports = length()
    sys.stdout.write(f"the story: {calls} calls of functions, {reports} reports of hosts\n")
    broken = Counter[str]()
    for name, worlds in (SINGLES | ({"pairs": pairs} if options.pairs else {})).items():
        began, count = time.process_time(), 0
        for nth, schedule in enumerate(worlds()):
            if nth % options.every:
                continue
            count += 1
            found = play(schedule)
            if found:
                broken[found.kind] += 1
                if broken[found.kind] == 1:
                    sys.stdout.write(f"{shorten(found)}\n")
        spent = time.process_time() - began
        sys.stdout.write(f"{name}: {count} worlds, {spent:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"{sum(broken.values())} broke a promise {dict(broken) or ''}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
