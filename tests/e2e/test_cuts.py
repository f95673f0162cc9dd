"""
Each story fails when its mechanism is cut: an expectation that can't fail proves nothing.

A cut story goes on until something shows that the mechanism's chance has passed: its calls were
made and refused, or what comes instead has begun. Then it is judged at once, so what is left
to come by then doesn't hold either; each cut names what doesn't hold because of it, and what is
seen instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from reprieve_cli.drill.engine import Outcome, Patience
from tests.e2e.cutting import AGENT, deployed_with
from tests.e2e.theatre import Raw, Theatre, raw_story, read

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

AT_ONCE = Patience(step=15, end=0, rest=0)
LONG = 9999  # seconds of the scaled clock
ANY = "*"  # whatever is seen instead

NO_BUDGET = """
from reprieve.domain import settlement

settlement._over_budget = lambda *_given, **_named: None
"""

BLOCKS_UNREAD = """
from reprieve.detail_types import DetailType, Source
from reprieve.edge import events

del events.PARSERS[Source.EC2, DetailType.BLOCK_EXPIRY]
"""

EXIT_CODE_ALONE = """
from dataclasses import replace
from reprieve_agent import endings

judge = endings.ending
endings.ending = lambda tenure: judge(replace(tenure, request=None))
"""


def the_job(raw: Raw) -> Raw:
    (job,) = raw["jobs"]
    found: Raw = job
    return found


def fault(service: str, action: str, code: str, **limits: object) -> Raw:
    """Return the step that makes such calls fail from now on."""
    lasting = {} if "times" in limits else {"seconds": LONG}
    error = {"error": {"code": code, "status": 400}}
    return {"fault": {"service": service, "action": action, "then": error, **lasting, **limits}}


def refusal(function: str) -> Raw:
    """Return the step from which on *function* can neither read nor write the table."""
    return fault("dynamodb", "*", "AccessDeniedException", caller=f"reprieve-{function}")


def refused(function: str, times: int = 1) -> Raw:
    """Return the step that waits until *function* came, so many times, and was refused."""
    call = {
        "service": "dynamodb",
        "action": "*",
        "caller": f"reprieve-{function}",
        "error": "AccessDenied*",
    }
    return {"wait": {"call": call, "times": times}}


def until(**state: object) -> Raw:
    """Return the step that waits until the job is so far."""
    return {"wait": {"job": "train", **state}}


# The third detector would step in for the first two.
BLIND = fault("ec2", "DescribeSpotInstanceRequests", "UnauthorizedOperation")
STARTED_AGAIN = until(attempt=2, step=1)


def before_the_first_step(raw: Raw, *cuts: Raw) -> None:
    """Cut at the moment of the first step that is no cut itself."""
    steps = raw["steps"]
    place = next(place for place, step in enumerate(steps) if "fault" not in step)
    begins = {name: steps[place].pop(name) for name in ("at", "when") if name in steps[place]}
    steps[place:place] = [{**cuts[0], **begins}, *cuts[1:]]


def notice_dropped(raw: Raw) -> None:
    """Let the host go at its deadline, but tell it nowhere."""
    before_the_first_step(raw, BLIND)
    raw["steps"][-1]["host"]["channels"] = []
    raw["steps"].append(STARTED_AGAIN)


def settle_skipped(raw: Raw) -> None:
    """Refuse the table to everybody who could look at the lease."""
    lookers = "handle_notice", "record_report", "reconcile"
    before_the_first_step(raw, *map(refusal, lookers))
    raw["steps"] += [{"wait": {"world": "reclaimed"}}, *map(refused, lookers)]
    raw["steps"].append(refused("reconcile", 3))


def manifest_withheld(raw: Raw) -> None:
    no_manifests = fault(
        "s3", "PutObject", "SlowDown", caller="reprieve-agent", resource="*/manifests/000001-*"
    )
    before_the_first_step(raw, no_manifests)
    raw["steps"].append(STARTED_AGAIN)


def second_manifest_withheld(raw: Raw) -> None:
    no_manifests = fault(
        "s3", "PutObject", "SlowDown", caller="reprieve-agent", resource="*/manifests/000002-*"
    )
    before_the_first_step(raw, no_manifests)
    raw["steps"].append(until(attempt=3, step=1))


def state_change_not_heard(raw: Raw) -> None:
    before_the_first_step(raw, refusal("handle_notice"), refusal("reconcile"))
    raw["steps"] += [refused("handle_notice"), refused("reconcile", 2)]


def sweep_refused(raw: Raw) -> None:
    before_the_first_step(raw, refusal("reconcile"))
    raw["steps"].append(refused("reconcile", 2))


def nobody_unparks(raw: Raw) -> None:
    before_the_first_step(raw, refusal("reconcile"))
    raw["steps"].append(refused("reconcile", 3))


def wire_cut(what: str) -> Callable[[Raw], None]:
    def cut(raw: Raw) -> None:
        wire = {"host": {"of": "train", "do": "cut", "what": what}}
        before_the_first_step(raw, BLIND, wire)
        raw["steps"].append(STARTED_AGAIN)

    return cut


def advice_dropped(raw: Raw) -> None:
    raw["steps"] = raw["steps"][:1]
    raw["steps"][0]["host"]["channels"] = []
    raw["steps"].append(until(step=40))


def scale_in_foreign(raw: Raw) -> None:
    """Have the group be another account's, too."""
    *_, group = raw["steps"]
    group["event"]["body"]["account"] = "444455556666"
    raw["steps"].append(until(step=60))


def renewals_unanswered(raw: Raw) -> None:
    code = "ThrottlingException"
    before_the_first_step(raw, fault("dynamodb", "*", code, caller="reprieve-agent"))
    call = {"service": "dynamodb", "action": "*", "caller": "reprieve-agent", "error": code}
    raw["steps"].append({"wait": {"call": call, "times": 3}})


def once_more(raw: Raw) -> None:
    raw["steps"] = [{"wait": {"job": "broken", "attempt": 4}}]


def one_type_asked(raw: Raw) -> None:
    """Have the pool that could step in sell what nobody asks for."""
    raw["pools"][1]["type"] = "p4d.24xlarge"
    raw["steps"] = [until(status="PARKED")]


def next_tier_refused(raw: Raw) -> None:
    raw["steps"] = [
        fault("ec2", "CreateFleet", "UnauthorizedOperation", skip=1, times=99),
        until(status="PARKED"),
    ]


def until_it_ended(raw: Raw) -> None:
    raw["steps"].append({"wait": {"job": "public", "event": "ended"}})


@dataclass(frozen=True)
class Cut:
    story: str
    alter: Callable[[Raw], None]
    broken: Mapping[str, str]
    """What doesn't hold, without the words *job …:*, and what is seen."""
    patches: Mapping[str, str] = field(default_factory=dict)
    """What is taken out of the functions, and of the agents."""


CUTS = {
    "notice dropped": Cut(
        "interruption",
        notice_dropped,
        {
            "attempt 1 cause": "lost",
            "resumes proven": "attempt 2 begins at none",
            "steps_lost": ANY,
        },
    ),
    "settle skipped": Cut("interruption", settle_skipped, {"status": "RUNNING", "attempt": "1"}),
    "manifest withheld": Cut(
        "interruption", manifest_withheld, {"resumes proven": "attempt 2 begins at none"}
    ),
    "second manifest withheld": Cut(
        "two_interruptions", second_manifest_withheld, {"attempt 3 restored_step": ANY}
    ),
    "state change not heard": Cut(
        "loss_with_state_change", state_change_not_heard, {"status": "RUNNING", "attempt": "1"}
    ),
    "sweep refused": Cut(
        "loss_found_by_sweep", sweep_refused, {"status": "RUNNING", "attempt": "1"}
    ),
    "metadata cut": Cut(
        "notice_by_metadata_only",
        wire_cut("metadata"),
        {"attempt 1 cause": "lost", "resumes proven": "attempt 2 begins at none"},
    ),
    "SSM cut": Cut(
        "notice_by_event_only", wire_cut("ssm"), {"resumes proven": "attempt 2 begins at none"}
    ),
    "nobody unparks": Cut("every_tier_empty", nobody_unparks, {"status": "PARKED"}),
    "advice dropped": Cut(
        "op_04_advice_that_nothing_follows", advice_dropped, {"events in this order": ANY}
    ),
    "scale-in of another account": Cut("scaled_in", scale_in_foreign, {"attempt": "1"}),
    "renewals unanswered": Cut(
        "cancel_while_running", renewals_unanswered, {"events in this order": ANY}
    ),
    "crashes uncounted": Cut(
        "job_that_fails",
        once_more,
        {"status": ANY, "attempt": "4"},
        patches=dict.fromkeys(("record_report", "reconcile"), NO_BUDGET),
    ),
    "one type asked": Cut(
        "op_09_errors_and_an_instance",
        one_type_asked,
        {"status": "PARKED", "instances launched": "0"},
    ),
    "next tier refused": Cut(
        "all_spot_empty", next_tier_refused, {"status": "PARKED", "instances launched": "0"}
    ),
    "blocks unread": Cut(
        "capacity_block_ends",
        lambda raw: raw["steps"].append(until(step=60)),
        {"attempt": "1", "status": "RUNNING"},
        patches={"handle_notice": BLOCKS_UNREAD},
    ),
    "exit code alone": Cut(
        "script_without_helper",
        until_it_ended,
        {"attempt 1 cause": "crash", "counters.interruptions": "0", "counters.crashes": "1"},
        patches={AGENT: EXIT_CODE_ALONE},
    ),
}


@pytest.mark.parametrize("name", CUTS)
def test_the_story_fails_when_its_mechanism_is_cut(theatre: Theatre, name: str) -> None:
    cut = CUTS[name]
    raw = raw_story(cut.story)
    cut.alter(raw)

    with deployed_with(theatre, cut.patches):
        outcome = theatre.play(read(without_the_end(raw), cut.story), patience=AT_ONCE)

    assert not outcome.stuck, theatre.explain(outcome)
    seen = broken(outcome)
    assert seen.keys() >= cut.broken.keys(), theatre.explain(outcome)
    for what, instead in cut.broken.items():
        assert instead in {ANY, seen[what]}, theatre.explain(outcome)


def test_without_the_random_state_the_job_ends_well_and_its_result_differs(
    theatre: Theatre,
) -> None:
    raw = raw_story("interruption")
    the_job(raw)["command"].append("--forget-random-state")

    outcome = theatre.play(read(raw, "interruption"), patience=Patience(step=15, end=20, rest=0))

    wrong = broken(outcome)
    assert "weights.npz identical" in wrong, theatre.explain(outcome)
    assert wrong.keys().isdisjoint({"status", "attempt", "step log"}), theatre.explain(outcome)


def broken(outcome: Outcome) -> dict[str, str]:
    """Return what doesn't hold, and what is seen instead."""
    found = [finding for finding in outcome.findings if not finding.holds]
    return {one.what.rpartition(": ")[2] if one.job else one.what: one.seen for one in found}


def without_the_end(raw: Raw) -> Raw:
    """Leave out what only the end of a job can show, and the run that it is compared with."""
    expected: dict[str, Any] = raw["expect"]
    for name in ("calls", "metrics", "queues"):
        expected.pop(name, None)
    for job in expected["jobs"].values():
        for name in ("identical", "step_log", "checkpoint_step"):
            job.pop(name, None)
    return raw
