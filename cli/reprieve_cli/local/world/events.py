"""
EventBridge's last mile: which rules match an event, and who gets it.

``PutEvents`` refuses ``aws.*`` sources, here as on AWS, so the world asks ministack itself for
the rules, lets it match each pattern, and hands the event to the targets of those that match.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from reprieve_cli.local.world.faults import EVENTBRIDGE, Effect, Faults
from reprieve_cli.local.world.wire import Call

if TYPE_CHECKING:
    from reprieve_cli.local.world.timeline import Timeline
    from reprieve_cli.local.world.upstream import Upstream


class Events:
    def __init__(self, upstream: Upstream, timeline: Timeline, faults: Faults) -> None:
        self._upstream = upstream
        self._timeline = timeline
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[tuple[str, str], bool] = {}
        """Whether a pattern matches, by the part of an event that it mentions."""

    def publish(self, event: dict[str, Any]) -> None:
        """
        Deliver an *event* of the world's own in the background, as scripted faults allow.

        The timeline tells to how many targets it went, or that it got lost.
        """
        call = Call(EVENTBRIDGE, event["detail-type"])
        effect = self._faults.take(call, event["detail"].get("instance-id"))
        task = asyncio.create_task(self._publish(event, effect or Effect()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, event: dict[str, Any], effect: Effect) -> None:
        await asyncio.sleep(effect.delay_seconds)
        if effect.drop:
            self._note(event, delivered=0, error="lost: scripted fault")
            return
        for _ in range(1 + effect.duplicate):
            await self.deliver(event)

    async def deliver(self, event: dict[str, Any]) -> int:
        """Hand *event* to the targets of every rule it matches; return how many got it."""
        try:
            delivered = await self._deliver(event)
        except (BotoCoreError, ClientError) as error:
            self._note(event, delivered=0, error=str(error))
            return 0
        self._note(event, delivered=delivered)
        return delivered

    async def _deliver(self, event: dict[str, Any]) -> int:
        rules = await self._upstream.call("events", "list_rules")
        checks = [self._matches(rule, event) for rule in rules["Rules"]]
        matched = await asyncio.gather(*checks)
        targets = [
            target
            for rule, hit in zip(rules["Rules"], matched, strict=True)
            if hit
            for target in await self._targets(rule["Name"])
        ]
        await asyncio.gather(*(self._send(target, event) for target in targets))
        return len(targets)

    async def _matches(self, rule: dict[str, Any], event: dict[str, Any]) -> bool:
        if rule.get("State") != "ENABLED" or not rule.get("EventPattern"):
            return False
        pattern = rule["EventPattern"]
        key = pattern, json.dumps(mentioned(json.loads(pattern), event), sort_keys=True)
        if key not in self._answers:
            try:
                answer = await self._upstream.call(
                    "events", "test_event_pattern", EventPattern=pattern, Event=json.dumps(event)
                )
            except ClientError:  # the event lacks what every event has: no rule can match it
                return False
            self._answers[key] = bool(answer["Result"])
        return self._answers[key]

    async def _targets(self, rule: str) -> list[dict[str, Any]]:
        answer = await self._upstream.call("events", "list_targets_by_rule", Rule=rule)
        targets: list[dict[str, Any]] = answer["Targets"]
        return targets

    async def _send(self, target: dict[str, Any], event: dict[str, Any]) -> None:
        body = target.get("Input") or json.dumps(event)
        arn = target["Arn"]
        *_, service, _region, account, name = arn.split(":", 5)
        match service:
            case "sqs":
                found = await self._upstream.call(
                    "sqs", "get_queue_url", QueueName=name, QueueOwnerAWSAccountId=account
                )
                await self._upstream.call(
                    "sqs", "send_message", QueueUrl=found["QueueUrl"], MessageBody=body
                )
            case "lambda":
                await self._upstream.call(
                    "lambda", "invoke", FunctionName=arn, InvocationType="Event", Payload=body
                )
            case "sns":
                await self._upstream.call("sns", "publish", TopicArn=arn, Message=body)
            case _:
                self._timeline.note("target skipped", arn=arn, reason="no such kind of target here")

    def _note(self, event: dict[str, Any], **facts: object) -> None:
        self._timeline.note("event", detail_type=event.get("detail-type"), event=event, **facts)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def mentioned(pattern: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """
    Return the part of *event* that *pattern* speaks of: nothing else can change the answer.

    All of it where the pattern has an operator among its fields, as ``$or`` is one.
    """
    if any(name.startswith("$") for name in pattern):
        return event
    part = {}
    for name, inner in pattern.items():
        value = event.get(name)
        if isinstance(inner, dict) and isinstance(value, dict):
            value = mentioned(inner, value)
        part[name] = value
    return part
