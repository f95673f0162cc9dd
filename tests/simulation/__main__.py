"""``python -m tests.simulation --seeds A:B``: search, shorten what was found, tell it."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from tests.simulation.faults import Draw, draw
from tests.simulation.quick import quickly
from tests.simulation.search import play, shorten


def main() -> int:
    """Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:last+1")
    parser.add_argument("--draw", type=Draw, choices=list(Draw), default=Draw.MIXED)
    parser.add_argument("--tell", type=int, default=1, help="stories to tell of each kind")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so much CPU time")
    parser.add_argument("--ledger", type=Path, help="add a row to this file")
    parser.add_argument("--commit", default="", help="what the row says was searched")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # What is imported stays; the worlds are circles, so they are looked for, only more rarely.
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    first, _, last = options.seeds.partition(":")
    began = time.process_time()
    with quickly():
        ran, told = _search(range(int(first), int(last or int(first) + 1)), options)
    spent = time.process_time() - began
    broken = sum(told.values())
    _say(
        f"{ran} {options.draw} schedules, {broken} broke a promise, "
        f"{ran / spent:.1f} a second of CPU time"
    )
    for kind, count in told.most_common():
        _say(f"  {count:6d}  {kind}")
    if options.ledger:
        searched = Searched(options.commit, options.draw, int(first), int(first) + ran, broken)
        add_row(options.ledger, searched)
    return 1 if told else 0


def _search(seeds: Iterable[int], options: argparse.Namespace) -> tuple[int, Counter[str]]:
    """Return how many were played, and how often each promise broke; tell the first of each."""
    began, ran, told = time.process_time(), 0, Counter[str]()
    for seed in seeds:
        if options.seconds is not None and time.process_time() - began > options.seconds:
            break
        ran += 1
        found = play(draw(seed, options.draw))
        if found is None:
            continue
        told[found.kind] += 1
        if told[found.kind] <= options.tell:
            _say(str(shorten(found)))
    return ran, told


@dataclass(frozen=True, slots=True)
class Searched:
    """A row of the ledger: the seeds of *draw* from *first* to before *end*."""

    commit: str
    draw: Draw
    first: int
    end: int
    broken: int

    def __str__(self) -> str:
        return "\t".join(str(getattr(self, each.name)) for each in fields(self))

    @classmethod
    def from_row(cls, row: str) -> Searched:
        """Read what ``str`` wrote."""
        commit, drawn, first, end, broken = row.split("\t")
        return cls(commit, Draw(drawn), int(first), int(end), int(broken))

    def __add__(self, later: Searched) -> Searched:
        """Return both as one: *later* begins where this ends."""
        return replace(self, end=later.end, broken=self.broken + later.broken)


def add_row(ledger: Path, searched: Searched) -> None:
    """Note what was searched; ranges that follow each other at one commit share a row."""
    head, *rows = ledger.read_text().splitlines()
    known = [Searched.from_row(row) for row in rows]
    for nth, before in enumerate(known):
        if (before.commit, before.draw, before.end) == (
            searched.commit,
            searched.draw,
            searched.first,
        ):
            known[nth] = before + searched
            break
    else:
        known.append(searched)
    ledger.write_text("\n".join((head, *map(str, known))) + "\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
