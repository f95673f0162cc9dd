"""Cases whose rule is cut out of the deployed code: what can't fail proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from reprieve_cli.drill.engine import Patience
from tests.e2e.cutting import AGENT, deployed_with
from tests.e2e.theatre import Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

SHORT = Patience(step=10, end=3, rest=0)

ERRORS_FIRST = """
from dataclasses import replace
from reprieve.adapters import ec2_fleet

read = ec2_fleet.read_answer

def errors_first(answer, plan):
    found = read(answer, plan)
    return replace(found, instances=()) if found.errors else found

ec2_fleet.read_answer = errors_first
"""

TOKEN_OF_THE_JOB = """
from reprieve.domain.order import Plan

Plan.client_token = property(lambda plan: f"{plan.job}#{plan.attempt}")
"""

ADVICE_IS_A_VERDICT = """
from dataclasses import replace
from reprieve.domain.notice import NoticeKind
from reprieve.usecases.handle_notice import HandleNotice

handle = HandleNotice.__call__

def verdict(self, notices, **more):
    taken = [
        replace(n, kind=NoticeKind.INTERRUPTION, reclaimed_at=n.noticed_at + self.clock.notice)
        if n.kind is NoticeKind.REBALANCE else n
        for n in notices
    ]
    return handle(self, taken, **more)

HandleNotice.__call__ = verdict
"""

COMMANDS_ALONE = """
from reprieve_agent.metadata import MetadataWatcher

MetadataWatcher.start = lambda self: None
"""


@dataclass(frozen=True)
class Cut:
    story: str
    broken: frozenset[str]
    """Findings that must not hold, without the words *job …:*."""
    patches: dict[str, str]


CUTS = {
    "OP-04, advice is a verdict": Cut(
        "op_04_advice_that_nothing_follows",
        frozenset({"status"}),
        patches={
            "handle_notice": ADVICE_IS_A_VERDICT,
            "record_report": ADVICE_IS_A_VERDICT,
        },
    ),
    "OP-09, errors count first": Cut(
        "op_09_errors_and_an_instance",
        frozenset({"different ClientToken in calls ec2 CreateFleet"}),
        patches={"replace_host": ERRORS_FIRST},
    ),
    "OP-10, the token is the job's": Cut(
        "op_10_same_token_other_parameters",
        frozenset({"status"}),
        patches={"replace_host": TOKEN_OF_THE_JOB},
    ),
    "OP-13, the command is the only word": Cut(
        "op_13_command_never_arrives",
        frozenset({"attempt 2 restored_step"}),
        patches={AGENT: COMMANDS_ALONE},
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_case_fails_without_its_rule(theatre: Theatre, name: str) -> None:
    cut = CUTS[name]
    with deployed_with(theatre, cut.patches):
        outcome = theatre.play(story(cut.story), patience=SHORT)
    broken = {f.what.partition(": ")[2] or f.what for f in outcome.findings if not f.holds}
    assert broken >= cut.broken, theatre.explain(outcome)
