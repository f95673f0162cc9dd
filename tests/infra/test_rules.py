"""What reaches the intake, and that nothing on the way can get lost unseen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reprieve.detail_types import DetailType, Source
from reprieve.domain.clock import NoticeClock
from reprieve.edge.events import NOTHING, PARSERS, UNKNOWN, announced
from tests.infra.synthesised import Template


def _patterns(template: Template) -> list[dict[str, Any]]:
    return [rule["EventPattern"] for rule in template.of("AWS::Events::Rule").values()]


EVENTS = Path(__file__).parent.parent / "events"


def matches(pattern: Any, event: Any) -> bool:
    """Judge as EventBridge does: each field of the pattern lists the values it takes."""
    if isinstance(pattern, dict):
        return isinstance(event, dict) and all(
            name in event and matches(wanted, event[name]) for name, wanted in pattern.items()
        )
    assert all(isinstance(value, str) for value in pattern), "only plain values are used"
    return event in pattern


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_a_real_payload_reaches_the_intake_if_and_only_if_it_announces_something(
    name: str, template: Template
) -> None:
    event = json.loads((EVENTS / f"{name}.json").read_text())
    found = announced(event, NoticeClock())
    selected = [pattern for pattern in _patterns(template) if matches(pattern, event)]

    if event["source"] == Source.OPERATOR:
        assert not selected, "what people ask for is put on the queue by the CLI"
    else:
        assert len(selected) == (found not in (NOTHING, UNKNOWN))


def test_every_kind_of_event_that_is_parsed_is_also_selected(template: Template) -> None:
    selected = {
        (source, detail_type)
        for pattern in _patterns(template)
        for source in pattern["source"]
        for detail_type in pattern["detail-type"]
    }
    parsed = {
        (str(source), str(detail_type))
        for source, detail_type in PARSERS
        if source != Source.OPERATOR
    }

    assert parsed <= selected
    assert selected - parsed == {("aws.ssm", DetailType.COMMAND_STATUS)}


def test_only_states_of_leaving_ring(template: Template) -> None:
    (states,) = (
        pattern["detail"]["state"]
        for pattern in _patterns(template)
        if pattern["detail-type"] == [DetailType.STATE_CHANGE]
    )

    assert set(states) == {"stopping", "stopped", "shutting-down", "terminated"}


def test_health_rings_for_scheduled_changes_of_ec2_alone(template: Template) -> None:
    (detail,) = (
        pattern["detail"] for pattern in _patterns(template) if pattern["source"] == ["aws.health"]
    )

    assert detail == {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]}


def test_only_our_own_command_is_reported(template: Template) -> None:
    (detail,) = (
        pattern["detail"] for pattern in _patterns(template) if pattern["source"] == ["aws.ssm"]
    )

    assert detail["document-name"] == ["Reprieve-preempt"]


def test_a_rule_rings_a_standard_queue_and_never_a_function(template: Template) -> None:
    for rule in template.of("AWS::Events::Rule").values():
        for target in rule["Targets"]:
            queue = template.queue(target["Arn"])
            assert "FifoQueue" not in queue
            assert template.resources[target["Arn"]["Fn::GetAtt"][0]]["Type"] == "AWS::SQS::Queue"


def test_every_target_has_a_dead_letter_queue(template: Template) -> None:
    targets = [
        target for rule in template.of("AWS::Events::Rule").values() for target in rule["Targets"]
    ]
    targets += [schedule["Target"] for schedule in template.of("AWS::Scheduler::Schedule").values()]

    assert len(targets) == 8
    for target in targets:
        assert "RedrivePolicy" not in template.queue(target["DeadLetterConfig"]["Arn"])


def test_every_working_queue_has_a_dead_letter_queue_of_its_own(template: Template) -> None:
    redrives = [
        template.text(queue["RedrivePolicy"]["deadLetterTargetArn"])
        for queue in template.of("AWS::SQS::Queue").values()
        if "RedrivePolicy" in queue
    ]

    assert len(redrives) == len(set(redrives)) == 4  # intake, orders, reports, one pool


def test_a_queue_takes_events_only_from_its_rules(template: Template) -> None:
    """A queue policy is all that makes an intake message authentic."""
    granted = 0
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] != "Allow":
                continue
            source = statement["Condition"]["ArnEquals"]["aws:SourceArn"]
            assert statement["Principal"] == {"Service": "events.amazonaws.com"}
            assert re.fullmatch(r"<Interruption\w+Rule\w+\.Arn>", template.text(source))
            granted += 1

    assert granted >= 5


def test_every_queue_and_the_bucket_and_the_topic_want_tls(template: Template) -> None:
    guarded = {
        template.text(reference).strip("<>").split(".")[0]
        for kind, key in (
            ("AWS::SQS::QueuePolicy", "Queues"),
            ("AWS::S3::BucketPolicy", "Bucket"),
            ("AWS::SNS::TopicPolicy", "Topics"),
        )
        for policy in template.of(kind).values()
        for reference in _listed(policy[key])
        if any(
            statement["Effect"] == "Deny"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy["PolicyDocument"]["Statement"]
        )
    }
    kinds = ("AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::SNS::Topic")

    assert guarded == {name for kind in kinds for name in template.of(kind)}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
