"""
Judges the deployed alarms as CloudWatch does, and has them ring.

The emulator looks at a metric without its dimensions and never at missing data, so its own
alarms prove little. Here each alarm is held to the data under exactly its dimensions, within
its period; one that should ring is told so by SetAlarmState, and from there on everything is
the deployment's own: the alarm's action, the topic, and who listens to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reprieve_cli.local.aws import client
from reprieve_cli.local.cloud import Cloud

LOGICAL_ID = re.compile(r"Watch(\w+)[0-9A-F]{8}")
WAIT_SECONDS = 60


@dataclass
class Watchman:
    cloud: Cloud
    stack: str
    topic: str
    heard: set[str] = field(default_factory=set)
    """Alarms that rang and reached whoever listens to the topic."""
    _mailbox: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._cloudwatch = client(self.cloud, "cloudwatch")
        self._sqs = client(self.cloud, "sqs")
        self._mailbox = self._sqs.create_queue(QueueName="whoever-is-on-call")["QueueUrl"]
        arn = f"arn:aws:sqs:{self.cloud.region}:{self.cloud.account}:whoever-is-on-call"
        sns = client(self.cloud, "sns")
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def names(self) -> dict[str, str]:
        """Return the alarms' physical names by what the template calls them."""
        resources = client(self.cloud, "cloudformation").describe_stack_resources(
            StackName=self.stack
        )["StackResources"]
        found = {}
        for one in resources:
            if one["ResourceType"] == "AWS::CloudWatch::Alarm":
                logical = LOGICAL_ID.fullmatch(one["LogicalResourceId"])
                assert logical is not None, one["LogicalResourceId"]
                found[logical[1]] = one["PhysicalResourceId"]
        return found

    def breaches(self, name: str, *, clock_scale: float = 1.0) -> bool:
        """
        Tell whether CloudWatch would put the alarm into ALARM now.

        For an alarm on a time, *clock_scale* says how much faster than EC2's this world goes.
        """
        alarm = self._alarm(name)
        assert alarm["EvaluationPeriods"] == 1
        now = datetime.now(UTC)
        points = self._cloudwatch.get_metric_statistics(
            Namespace=alarm["Namespace"],
            MetricName=alarm["MetricName"],
            Dimensions=alarm["Dimensions"],
            StartTime=now - timedelta(seconds=alarm["Period"]),
            EndTime=now + timedelta(seconds=1),
            Period=alarm["Period"],
            Statistics=[alarm["Statistic"]],
        )["Datapoints"]
        if not points:
            return bool(alarm["TreatMissingData"] == "breaching")
        # A period here ends now; CloudWatch's buckets may cut it in two.
        return any(_crosses(alarm, point[alarm["Statistic"]] / clock_scale) for point in points)

    def ring(self, name: str) -> dict[str, Any]:
        """Put the alarm into ALARM and return what whoever is on call gets to read."""
        physical = self.names()[name]
        reason = f"judged by its own dimensions: {name}"
        deadline = datetime.now(UTC) + timedelta(seconds=WAIT_SECONDS)
        while datetime.now(UTC) < deadline:
            # Only a change of state is told, and the emulator's own judgement may come between.
            for state in ("OK", "ALARM"):
                self._cloudwatch.set_alarm_state(
                    AlarmName=physical, StateValue=state, StateReason=reason
                )
            for message in self._read():
                if message["AlarmName"] == physical and message["NewStateReason"] == reason:
                    self.heard.add(name)
                    return message
        raise AssertionError(f"{name} rang and nobody heard it")

    def _read(self) -> list[dict[str, Any]]:
        taken = self._sqs.receive_message(
            QueueUrl=self._mailbox, MaxNumberOfMessages=10, WaitTimeSeconds=1
        ).get("Messages", [])
        for one in taken:
            self._sqs.delete_message(QueueUrl=self._mailbox, ReceiptHandle=one["ReceiptHandle"])
        return [json.loads(json.loads(one["Body"])["Message"]) for one in taken]

    def _alarm(self, name: str) -> dict[str, Any]:
        (alarm,) = self._cloudwatch.describe_alarms(AlarmNames=[self.names()[name]])["MetricAlarms"]
        found: dict[str, Any] = alarm
        return found


def _crosses(alarm: dict[str, Any], value: float) -> bool:
    threshold = alarm["Threshold"]
    match alarm["ComparisonOperator"]:
        case "GreaterThanOrEqualToThreshold":
            return bool(value >= threshold)
        case "LessThanThreshold":
            return bool(value < threshold)
        case other:
            raise AssertionError(f"{alarm['AlarmName']}: {other}")
