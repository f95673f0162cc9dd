"""Each story fails when its mechanism is cut: an expectation that can't fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reprieve_cli.drill.engine import Patience
from reprieve_cli.drill.scenario import FaultAction, HostAction, Scenario, Step
from tests.e2e.theatre import Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SHORT = Patience(step=10, end=3, rest=0)


def unchanged(scenario: Scenario) -> Scenario:
    return scenario


def nothing(_theatre: Theatre) -> AbstractContextManager[None]:
    return nullcontext()


def preceded_by(*faults: dict[str, Any]) -> Callable[[Scenario], Scenario]:
    steps = tuple(Step(FaultAction(fault)) for fault in faults)
    return lambda scenario: replace(scenario, steps=steps + scenario.steps)


# The third detector would step in for the first two.
blind = preceded_by(
    {
        "service": "ec2",
        "action": "DescribeSpotInstanceRequests",
        "seconds": 9999,
        "then": {"error": {"code": "InternalError", "status": 500}},
    }
)


def unannounced(scenario: Scenario) -> Scenario:
    """Let the host go at its deadline, but tell it nowhere."""
    silenced = [
        replace(step, action=replace(step.action, channels=()))
        if isinstance(step.action, HostAction)
        else step
        for step in scenario.steps
    ]
    return blind(replace(scenario, steps=tuple(silenced)))


def on_each_host(what: str) -> Callable[[Scenario], Scenario]:
    """Cut *what* between the job's host and the world, right before the first step."""

    def cut(scenario: Scenario) -> Scenario:
        first, *others = scenario.steps
        assert isinstance(first.action, HostAction)
        wire = Step(HostAction(first.action.host, "cut", what=what), at=first.at, when=first.when)
        return blind(replace(scenario, steps=(wire, replace(first, when=None), *others)))

    return cut


def forgetful(scenario: Scenario) -> Scenario:
    (job,) = scenario.jobs
    assert job.reference
    return replace(scenario, jobs=(replace(job, command=(*job.command, "--forget-random-state")),))


def lasting(scenario: Scenario, *, seconds: float) -> Scenario:
    """Refuse manifests from the start until *seconds* of the scaled clock after it."""
    return preceded_by(
        {
            "service": "s3",
            "action": "PutObject",
            "caller": "reprieve-agent",
            "resource": "*/manifests/*",
            "seconds": seconds,
            "then": {"error": {"code": "SlowDown", "status": 503}},
        }
    )(scenario)


@dataclass(frozen=True)
class Cut:
    story: str
    broken: frozenset[str]
    """Findings that must not hold, without the words *job …:*."""
    alter: Callable[[Scenario], Scenario] = unchanged
    around: Callable[[Theatre], AbstractContextManager[None]] = nothing


CUTS = {
    "notice dropped": Cut(
        "interruption",
        frozenset({"resumes proven", "attempt 1 cause", "steps_lost"}),
        alter=unannounced,
    ),
    "settle skipped": Cut(
        "interruption",
        frozenset({"status", "attempt"}),
        around=lambda theatre: theatre.without_settling(),
    ),
    "manifest withheld": Cut(
        "interruption",
        frozenset({"resumes proven"}),
        alter=lambda scenario: lasting(scenario, seconds=400),
    ),
    "state change not heard": Cut(
        "loss_with_state_change",
        frozenset({"status", "attempt"}),
        around=lambda theatre: theatre.without_settling(),
    ),
    "sweep stopped": Cut(
        "loss_found_by_sweep",
        frozenset({"status", "attempt"}),
        around=lambda theatre: theatre.without_sweep(),
    ),
    "metadata cut": Cut(
        "notice_by_metadata_only",
        frozenset({"resumes proven", "attempt 1 cause"}),
        alter=on_each_host("metadata"),
    ),
    "SSM cut": Cut(
        "notice_by_event_only", frozenset({"resumes proven"}), alter=on_each_host("ssm")
    ),
    "nobody unparks": Cut(
        "every_tier_empty",
        frozenset({"status"}),
        around=lambda theatre: theatre.without_sweep(),
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_story_fails_when_its_mechanism_is_cut(theatre: Theatre, name: str) -> None:
    cut = CUTS[name]
    with cut.around(theatre):
        outcome = theatre.play(cut.alter(story(cut.story)), patience=SHORT)
    broken = {f.what.partition(": ")[2] for f in outcome.findings if not f.holds}
    assert broken >= cut.broken, theatre.explain(outcome)
    assert not outcome.stuck, theatre.explain(outcome)


def test_without_the_random_state_the_result_differs_and_nothing_else(theatre: Theatre) -> None:
    outcome = theatre.play(forgetful(story("interruption")), patience=replace(SHORT, end=20))
    about_the_job = [finding for finding in outcome.findings if finding.what.startswith("job ")]
    broken = [finding.what for finding in about_the_job if not finding.holds]
    assert broken == ["job train: weights.npz identical"], theatre.explain(outcome)
