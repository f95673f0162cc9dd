"""``python -m tests.simulation --seeds A:B``: search, shorten what was found, tell it."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from tests.simulation.faults import draw
from tests.simulation.search import play, shorten


def main() -> int:
    """Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:last+1")
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
    began, ran, told = time.process_time(), 0, Counter[str]()
    for seed in range(int(first), int(last or int(first) + 1)):
        if options.seconds is not None and time.process_time() - began > options.seconds:
            break
        ran += 1
        found = play(draw(seed))
        if found is None:
            continue
        told[found.kind] += 1
        if told[found.kind] <= options.tell:
            _say(str(shorten(found)))
    spent = time.process_time() - began
    broken = sum(told.values())
    _say(f"{ran} schedules, {broken} broke a promise, {ran / spent:.1f} a second of CPU time")
    for kind, count in told.most_common():
        _say(f"  {count:6d}  {kind}")
    if options.ledger:
        with options.ledger.open("a") as ledger:
            ledger.write(f"{options.commit}\t{first}\t{int(first) + ran}\t{broken}\n")
    return 1 if told else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
