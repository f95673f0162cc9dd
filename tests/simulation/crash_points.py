"""
Every crash point: each call that each use case makes, struck in each way that it can fail.

A handful of stories together reach every call. ``python -m tests.simulation.crash_points``
strikes all of them and prints use case x call -> how many points were covered;
``--stories N`` strikes each call only in N stories, where it is made first.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from reprieve.usecases.sweep_view import Part, Piece, Swept, View
from tests.simulation.cases import small, work
from tests.simulation.faults import (
    AT_A_CALL_OF_A_FUNCTION,
    AT_A_CALL_OF_A_HOST,
    Fault,
    Kind,
    Schedule,
)
from tests.simulation.quick import quickly
from tests.simulation.search import play, shorten
from tests.simulation.world import NEVER_RAISE, World

T = TypeVar("T")

LONG = work(240.0, save_every=40.0)
BROKEN = 0.05  # picks a machine that stops while EC2 goes on calling it running

RAISING = frozenset({Kind.REFUSED, Kind.ANSWER_LOST})

STORIES = {
    "taken back with notice": small(
        Fault(90.0, Kind.RECLAIM), works=(work(120.0, save_every=40.0),)
    ),
    "taken back, and only the Spot request says so": small(
        Fault(60.0, Kind.RECLAIM_UNTOLD), works=(LONG,)
    ),
    "told of by the host alone": small(Fault(80.0, Kind.RECLAIM_METADATA), works=(LONG,)),
    "cancelled": small(Fault(90.0, Kind.CANCEL), works=(LONG,)),
    "requeued": small(Fault(90.0, Kind.REQUEUE), works=(LONG,)),
    "broken": small(Fault(90.0, Kind.DIE_UNTOLD, BROKEN), works=(LONG,)),
    "gone, and nobody said so": small(Fault(90.0, Kind.DIE_UNTOLD, 0.9), works=(LONG,)),
    "no capacity for a while": small(Fault(0.0, Kind.DRY_ALL, 0.0, 150.0), works=(LONG,)),
    "messages are lost": small(Fault(0.0, Kind.BAD_MAIL, 0.0, 280.0), works=(work(at=1.0),)),
    "more jobs than hosts": small(works=(work(), work(), work(at=170.0)), max_hosts=1),
    "drained": small(Fault(80.0, Kind.DRAIN, 0.0, 30.0), works=(LONG,)),
    "restarted": small(Fault(80.0, Kind.REBOOT), Fault(150.0, Kind.STOP), works=(LONG,)),
    "gone before it served": small(Fault(3.0, Kind.DIE)),
    "frozen at the claim, and taken back unannounced": small(
        Fault(0.0, Kind.HOST_FREEZES_AFTER, 0.0, 100.0, "leases.claim"),
        Fault(60.0, Kind.RECLAIM_UNTOLD),
        works=(work(save_every=20.0),),
        max_hosts=1,
    ),
    "frozen at a commit, and taken back unannounced": small(
        Fault(70.0, Kind.HOST_FREEZES_AFTER, 0.0, 300.0, "commit"),
        Fault(140.0, Kind.RECLAIM_UNTOLD),
        max_hosts=1,
    ),
    "taken back by a clock that is late": small(
        Fault(90.0, Kind.RECLAIM), works=(LONG,), skews=(-120.0,)
    ),
    "committed, and nobody could be told": small(
        Fault(100.0, Kind.OUTAGE, 0.0, 500.0),
        Fault(107.0, Kind.RECLAIM),
        Fault(140.0, Kind.BAD_CHECKPOINT),
        works=(work(120.0, at=60.0, save_every=90.0),),
        max_hosts=1,
    ),
    "launched, and six times nobody noted it": small(
        *(Fault(0.0, Kind.DIES_AFTER, 0.0, 0.0, "fleet.launch") for _ in range(6)),
        idle=600.0,
    ),
    "advised, and nothing follows": replace(
        small(Fault(30.0, Kind.ADVISE), works=(work(1400.0),)), ends=1400.0
    ),
    "collected": replace(
        small(Fault(200.0, Kind.REBOOT), works=(work(900.0, save_every=40.0),)), ends=900.0, keep=1
    ),
}
# A story that is long, and needed for the calls of one part of the sweep.
ONLY_FOR = {"advised, and nothing follows": "TellStandDowns"}

# What each use case calls, as seen in thousands of drawn worlds.
CALLS = {
    ("cancel", ""): (
        "rows.commit",
        "rows.read",
    ),
    ("handle_notice", ""): (
        "fleet.states",
        "mail.order",
        "mail.ticket",
        "rows.commit",
        "rows.read",
        "signals.preempt",
    ),
    ("host", ""): (
        "commit",
        "launch",
        "leases.claim",
        "leases.drop_hold",
        "leases.idle",
        "leases.release",
        "leases.renew",
        "leases.seal",
        "restore",
        "start",
    ),
    ("reconcile", ""): (
        "fleet.marked",
        "fleet.ours",
        "fleet.states",
        "hosts.adopt",
        "hosts.read",
        "jobs.live",
        "mail.order",
        "orders.listing",
        "rows.commit",
        "rows.read",
        "signals.preempt",
        "watch.observe",
    ),
    ("reconcile", "SweepCheckpoints"): (
        "rows.commit",
        "rows.read",
        "stored.delete",
        "stored.listing",
        "stored.manifest",
    ),
    ("reconcile", "SweepCommits"): (
        "jobs.attempts",
        "manifests.newest",
        "rows.commit",
    ),
    ("reconcile", "SweepHosts"): (
        "fleet.terminate",
        "hosts.advance",
        "hosts.holds",
        "rows.commit",
    ),
    ("reconcile", "SweepJobs"): (
        "fleet.terminate",
        "hosts.advance",
        "hosts.holds",
        "mail.order",
        "mail.ticket",
        "rows.commit",
        "rows.read",
    ),
    ("reconcile", "SweepOrders"): (
        "mail.order",
        "rows.commit",
    ),
    ("reconcile", "TellDoubts"): ("rows.commit",),
    ("reconcile", "TellStandDowns"): ("rows.commit",),
    ("record_report", ""): (
        "fleet.states",
        "hosts.advance",
        "mail.order",
        "mail.ticket",
        "rows.commit",
        "rows.read",
    ),
    ("replace_host", ""): (
        "fleet.launch",
        "fleet.usd_per_hour",
        "orders.listing",
        "rows.commit",
        "rows.read",
    ),
    ("requeue", ""): (
        "mail.order",
        "mail.ticket",
        "rows.commit",
        "rows.read",
    ),
    ("submit", ""): (
        "mail.order",
        "mail.ticket",
        "rows.commit",
    ),
}


class Call(NamedTuple):
    """One port call of a use case; of a sweep also the part that makes it."""

    by: str
    part: str
    name: str


@dataclass(slots=True)
class Watched(World):
    """A world that notes who makes which call."""

    calls_of_functions: list[Call] = field(default_factory=list)
    calls_of_hosts: list[Call] = field(default_factory=list)
    part: str = ""

    def __post_init__(self) -> None:
        """Watch the parts of the sweep as well."""
        World.__post_init__(self)
        parts = [WatchedPart(self, part) for part in self._reconcile.parts]
        self._reconcile = replace(self._reconcile, parts=parts)

    def _strike_now(self, kinds: Sequence[Kind], nth: int, call: str) -> None:
        by = "host" if kinds is AT_A_CALL_OF_A_HOST else self._callers[-1].name
        noted = Call(by, self.part if by == "reconcile" else "", call)
        (self.calls_of_hosts if by == "host" else self.calls_of_functions).append(noted)
        World._strike_now(self, kinds, nth, call)


@dataclass(frozen=True, slots=True)
class WatchedPart:
    """A part of the sweep that says when it is at work."""

    world: Watched
    part: Part

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Find the pieces; each is watched, too."""
        pieces: list[Piece] = self._watch(lambda: self.part(view, swept))
        return [Piece(one.name, self._watched(one.do)) for one in pieces]

    def _watched(self, do: Callable[[], object]) -> Callable[[], object]:
        return lambda: self._watch(do)

    def _watch(self, do: Callable[[], T]) -> T:
        self.world.part = type(self.part).__name__
        try:
            return do()
        finally:
            self.world.part = ""


class Point(NamedTuple):
    """A call that is struck, and the schedule in which it is."""

    call: Call
    schedule: Schedule


def calls(story: Schedule) -> tuple[list[Call], list[Call]]:
    """Return what functions and what hosts call in *story*, in order."""
    world = Watched(story)
    world.play()
    return world.calls_of_functions, world.calls_of_hosts


def points(name: str) -> Iterator[Point]:
    """Yield each crash point of a story."""
    story, only = STORIES[name], ONLY_FOR.get(name)
    by_functions, by_hosts = calls(story)
    for kinds, made in (
        (AT_A_CALL_OF_A_FUNCTION, by_functions),
        (AT_A_CALL_OF_A_HOST, by_hosts),
    ):
        for nth, call in enumerate(made, 1):
            if only and call.part != only:
                continue
            for kind in kinds:
                if kind not in RAISING or call.name not in NEVER_RAISE:
                    yield Point(call, replace(story, strikes=((kind, nth),)))


def firsts(stories: int) -> Iterator[tuple[str, Point]]:
    """Yield the points where a call is made first, in the first *stories* that make it."""
    told = Counter[tuple[Call, Kind]]()
    for name in STORIES:
        met = set[tuple[Call, Kind]]()
        for point in points(name):
            struck = point.call, point.schedule.strikes[0][0]
            if struck not in met and told[struck] < stories:
                yield name, point
                told[struck] += 1
            met.add(struck)


def every() -> Iterator[tuple[str, Point]]:
    """Yield all of them."""
    return ((name, point) for name in STORIES for point in points(name))


def main() -> int:
    """Strike them all, and print how many there were of each call."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.crash_points")
    parser.add_argument("--stories", type=int, default=None, help="in so many, each call's first")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    covered, broken = Counter[Call](), 0
    with quickly():
        for name, point in every() if options.stories is None else firsts(options.stories):
            covered[point.call] += 1
            found = play(point.schedule)
            if found:
                broken += 1
                sys.stdout.write(f"{name}, {point.call}: {shorten(found)}\n")
    for (by, part, name), count in sorted(covered.items()):
        sys.stdout.write(f"{by:14s} {part:17s} {name:20s} {count:6d}\n")
    sys.stdout.write(f"{covered.total()} crash points, {broken} broke a promise\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
