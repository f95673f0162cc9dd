"""A queue of like jobs on a number of hosts: whoever is free first takes the next."""

from __future__ import annotations

import heapq

from reprieve_cli.economics.market import Market
from reprieve_cli.economics.policies import Policy
from reprieve_cli.economics.production import Planner
from reprieve_cli.economics.run import Outcome, Run
from reprieve_cli.economics.scenario import Job, World


def play(
    policy: Policy,
    job: Job,
    world: World,
    market: Market,
    planner: Planner,
    *,
    seed: int,
    index: int,
    start: float,
    jobs: int = 1,
    slots: int = 1,
) -> Outcome:
    """
    Run *jobs* over *slots* hosts from *start* on and return what they came to together.

    A slot keeps its host between jobs, and its own memory of pools: two slots of one account
    would know a little more than that.
    """
    runs = [
        Run(policy, job, world, market, planner, seed=seed, index=index + 1_000_000 * slot)
        for slot in range(min(slots, jobs))
    ]
    for run in runs:
        run.begin(start)
    free = [(start, slot) for slot in range(len(runs))]
    for _ in range(jobs):
        _, slot = heapq.heappop(free)
        end = runs[slot].job()
        if end is None:
            break
        heapq.heappush(free, (end, slot))
    return _together([run.outcome() for run in runs])


def _together(outcomes: list[Outcome]) -> Outcome:
    if len(outcomes) == 1:
        return outcomes[0]
    return Outcome(
        start=outcomes[0].start,
        finished=all(outcome.finished for outcome in outcomes),
        makespan_seconds=max(outcome.makespan_seconds for outcome in outcomes),
        usd=sum(outcome.usd for outcome in outcomes),
        charged_seconds=sum(outcome.charged_seconds for outcome in outcomes),
        lost_seconds=sum(outcome.lost_seconds for outcome in outcomes),
        useful_seconds=sum(outcome.useful_seconds for outcome in outcomes),
        interruptions=sum(outcome.interruptions for outcome in outcomes),
        launches=sum(outcome.launches for outcome in outcomes),
        refused=sum(outcome.refused for outcome in outcomes),
    )
