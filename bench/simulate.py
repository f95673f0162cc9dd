"""
What the simulator takes: processor time of 300 starts × 10 policies of the 48 h job.

Processor time, not wall time, so that it means the same on a busy machine. The baseline is a
loop of plain additions in the same interpreter, timed before and after: the ratio moves with
the code, hardly with the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from reprieve_cli.economics import study, traces
from reprieve_cli.economics.policies import POLICIES
from reprieve_cli.economics.scenario import SMALL, World

LIMIT_SECONDS = 60.0
ADDITIONS = 5_000_000


def baseline() -> float:
    """Return the processor seconds of five million additions."""
    begin = time.process_time()
    total = 0
    for number in range(ADDITIONS):
        total += number
    return time.process_time() - begin


def main() -> int:
    """Measure, print, and fail above the limit."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--starts", type=int, default=300)
    options.add_argument("--trace", default=traces.DEFAULT)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    before = baseline()
    begin = time.process_time()
    scenario = study.Scenario(
        trace=traces.load(given.trace), job=SMALL, world=World(), starts=given.starts
    )
    rows = study.study(scenario, list(POLICIES.values()))
    spent = time.process_time() - begin
    unit = (before + baseline()) / 2
    runs = sum(len(row.outcomes) for row in rows)
    figures = {
        "runs": runs,
        "seconds": round(spent, 2),
        "milliseconds_a_run": round(1000 * spent / runs, 2),
        "times_five_million_additions": round(spent / unit, 1),
        "limit_seconds": LIMIT_SECONDS,
    }
    print(json.dumps(figures) if given.json else "\n".join(f"{k}: {v}" for k, v in figures.items()))
    return int(spent > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
