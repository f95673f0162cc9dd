"""
Every figure of docs/economics.md that is measured, with its intervals, from fixed seeds.

Nothing here is fitted: jobs, prices and peers are those of ``reprieve simulate``. One JSON
document goes to stdout; the whole takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from reprieve_cli.economics import report, study, traces
from reprieve_cli.economics.policies import POLICIES, VARIANTS, Policy
from reprieve_cli.economics.scenario import LARGE, SMALL, Job, World

ALL = POLICIES | VARIANTS
PEERS = ("reprieve", "skypilot-like-30m", "skypilot-like-young", "batch-like-30m", "drain-30m")
GUARDED = ("reprieve", "greedy-net", "uniform-as-published", "uniform-one-pool", PEERS[1])
SWITCHES = ("reprieve", "credit-aware", "no-waiting", "replace-at-death", "switches-off")
DEADLINES = (50.0, 52.0, 60.0, 70.0)


def cases(starts: int) -> Iterator[tuple[str, study.Scenario, list[Policy]]]:
    """Yield each case: its name, its scenario, its policies."""

    def case(trace: str, job: Job, world: World | None = None, n: int = starts) -> study.Scenario:
        return study.Scenario(trace=traces.load(trace), job=job, world=world or World(), starts=n)

    every, peers = list(POLICIES.values()), [ALL[name] for name in PEERS]
    yield "us-west-2 small", case("us-west-2", SMALL), every
    yield "us-west-2 large", case("us-west-2", LARGE), every
    no_credit = World(first_hour_credit=False)
    yield "us-west-2 small, no credit", case("us-west-2", SMALL, no_credit), peers
    deaf = replace(SMALL, recall=0.0)
    yield "us-west-2 small, recall 0", case("us-west-2", deaf), [*peers, ALL["notice-only"]]
    yield "us-west-2 small, switches", case("us-west-2", SMALL), [ALL[n] for n in SWITCHES]
    new = World(history_hours=0.0)
    yield "us-west-2 small, new account", case("us-west-2", SMALL, new), peers
    slow = replace(SMALL, boot_seconds=600.0)
    yield "us-west-2 small, boot 600 s", case("us-west-2", slow), [ALL["reprieve"]]
    breaks = World(silent_losses_per_hour=0.02)
    yield "us-west-2 small, silent losses 0.02/h", case("us-west-2", SMALL, breaks), peers
    for name in ("bamboo-p3", "bamboo-g4dn", "bamboo-a100"):
        yield f"{name} small", case(name, SMALL), peers
    for hours in DEADLINES:
        due = replace(SMALL, deadline_hours=hours)
        scenario = case("us-west-2", due, n=starts * 4 // 3)
        yield f"us-west-2 small, due in {hours:g} h", scenario, [ALL[n] for n in GUARDED]


def main() -> int:
    """Run the cases that were asked for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--starts", type=int, default=300)
    options.add_argument("--only", default="", help="cases whose name contains this")
    given = options.parse_args()
    documents: dict[str, Any] = {}
    for name, scenario, policies in cases(given.starts):
        if given.only not in name:
            continue
        print(name, file=sys.stderr, flush=True)
        rows = study.study(scenario, policies)
        documents[name] = report.document(scenario, rows, study.pairs(scenario, rows))
    json.dump(documents, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
