"""Events: AWS's own shapes, matched by the deployed rules, handed to their targets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_cli.local.control import WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e

PATTERN = {
    "source": ["aws.ec2"],
    "detail-type": [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
    ],
}


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


class Inbox:
    def __init__(self, sqs: Any, url: str) -> None:
        self._sqs = sqs
        self._url = url
        self.events: list[dict[str, Any]] = []

    def of(self, kind: str, instance_id: str) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        self.events += [json.loads(one["Body"]) for one in answer.get("Messages", [])]
        return [
            event
            for event in self.events
            if kind in event["detail-type"] and event["detail"].get("instance-id") == instance_id
        ]


@pytest.fixture
def inbox(aws: Aws) -> Iterator[Inbox]:
    """Make a rule with a queue behind it, as the stack does."""
    sqs, events = aws.client("sqs"), aws.client("events")
    url = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:000000000000:inbox"
    events.put_rule(Name="notices", EventPattern=json.dumps(PATTERN))
    events.put_targets(Rule="notices", Targets=[{"Id": "1", "Arn": arn}])
    yield Inbox(sqs, url)
    events.remove_targets(Rule="notices", Ids=["1"])
    events.delete_rule(Name="notices")
    sqs.delete_queue(QueueUrl=url)


def test_a_warning_reaches_the_queue_in_ec2s_own_shape(
    fleet: Fleet, control: WorldClient, inbox: Inbox
) -> None:
    instance_id = fleet.launch(zones="b")

    control.notice(instance_id)

    (event,) = eventually(lambda: inbox.of("Interruption Warning", instance_id))
    assert event["source"] == "aws.ec2"
    assert event["detail"] == {"instance-id": instance_id, "instance-action": "terminate"}
    # The zone stands where the region belongs, and there is no account.
    assert event["resources"] == [f"arn:aws:ec2:us-east-1b:instance/{instance_id}"]
    assert event["region"] == "us-east-1"


def test_a_host_announces_every_state_it_passes(
    fleet: Fleet, control: WorldClient, inbox: Inbox
) -> None:
    instance_id = fleet.launch()
    control.kill(instance_id)

    def states() -> set[str]:
        found = inbox.of("State-change", instance_id)
        return {event["detail"]["state"] for event in found}

    eventually(lambda: states() == {"pending", "running", "shutting-down", "terminated"})


def test_an_event_is_delivered_as_often_as_asked_and_only_where_a_rule_matches(
    control: WorldClient, inbox: Inbox
) -> None:
    event = {
        "version": "0",
        "id": "e-1",
        "detail-type": "EC2 Instance Rebalance Recommendation",
        "source": "aws.ec2",
        "account": "000000000000",
        "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": {"instance-id": "i-any", "oddity": None},
    }

    assert control.put_event(event, times=2) == [1, 1]
    assert control.put_event({**event, "source": "my.app"}) == [0]
    eventually(lambda: len(inbox.of("Rebalance", "i-any")) == 2)
    assert inbox.events[0]["detail"]["oddity"] is None
