"""
The metrics pump: what CloudWatch makes of logs and queues by itself on AWS.

Log lines in the embedded metric format become metric data, queue depths become ``AWS/SQS``,
so that the deployed alarms have something to watch.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from reprieve_cli.local.world.timeline import Timeline
    from reprieve_cli.local.world.upstream import Upstream

_MOST_DATA = 1000  # per PutMetricData
_QUEUE_METRICS = {
    "ApproximateNumberOfMessages": "ApproximateNumberOfMessagesVisible",
    "ApproximateNumberOfMessagesNotVisible": "ApproximateNumberOfMessagesNotVisible",
}
_AGE = "ApproximateAgeOfOldestMessage"

Datum = dict[str, Any]


class Pump:
    def __init__(self, upstream: Upstream, timeline: Timeline) -> None:
        self._upstream = upstream
        self._timeline = timeline
        self._task: asyncio.Task[None] | None = None
        self._read_until: dict[str, int] = {}
        self._seen: set[str] = set()
        self._waiting_since: dict[str, float] = {}

    def set(self, *, seconds: float) -> None:
        """Pump every *seconds* from now on; 0 stops."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if seconds > 0:
            self._task = asyncio.create_task(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        while True:
            try:
                await self.once()
            except (BotoCoreError, ClientError) as error:
                self._timeline.note("pump failed", reason=str(error))
            await asyncio.sleep(seconds)

    async def once(self) -> None:
        """Move everything new since the last time."""
        groups = await self._upstream.call("logs", "describe_log_groups")
        for group in groups["logGroups"]:
            await self._pump_logs(group["logGroupName"])
        queues = await self._upstream.call("sqs", "list_queues")
        data = [
            datum for url in queues.get("QueueUrls", []) for datum in await self._queue_data(url)
        ]
        await self._put("AWS/SQS", data)

    async def _pump_logs(self, group: str) -> None:
        answer = await self._upstream.call(
            "logs",
            "filter_log_events",
            logGroupName=group,
            startTime=self._read_until.get(group, 0),
        )
        data: dict[str, list[Datum]] = {}
        for event in answer["events"]:
            if event["eventId"] in self._seen:
                continue
            self._seen.add(event["eventId"])
            self._read_until[group] = max(self._read_until.get(group, 0), event["timestamp"])
            for namespace, datum in embedded_metrics(event["message"]):
                data.setdefault(namespace, []).append(datum)
        for namespace, found in data.items():
            await self._put(namespace, found)

    async def _queue_data(self, url: str) -> list[Datum]:
        answer = await self._upstream.call(
            "sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["All"]
        )
        name = url.rpartition("/")[2]
        dimensions = [{"Name": "QueueName", "Value": name}]
        attributes = answer["Attributes"]
        waiting = int(attributes["ApproximateNumberOfMessages"])
        if waiting:
            since = self._waiting_since.setdefault(name, time.monotonic())
        else:
            self._waiting_since.pop(name, None)
            since = time.monotonic()
        values = {metric: float(attributes[own]) for own, metric in _QUEUE_METRICS.items()}
        values[_AGE] = time.monotonic() - since
        return [
            {"MetricName": metric, "Dimensions": dimensions, "Value": value}
            for metric, value in values.items()
        ]

    async def _put(self, namespace: str, data: list[Datum]) -> None:
        for start in range(0, len(data), _MOST_DATA):
            await self._upstream.call(
                "cloudwatch",
                "put_metric_data",
                Namespace=namespace,
                MetricData=data[start : start + _MOST_DATA],
            )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def embedded_metrics(line: str) -> list[tuple[str, Datum]]:
    """Read the metrics that a log *line* embeds: pairs of namespace and datum."""
    start = line.find("{")
    if "CloudWatchMetrics" not in line or start < 0:
        return []
    try:
        record = json.loads(line[start:])
        directives = record["_aws"]["CloudWatchMetrics"]
    except (ValueError, KeyError, TypeError):
        return []
    return [
        (directive["Namespace"], datum)
        for directive in directives
        for names in directive["Dimensions"]
        for metric in directive["Metrics"]
        for datum in _data(record, metric, names)
    ]


def _data(record: dict[str, Any], metric: dict[str, str], names: list[str]) -> list[Datum]:
    value = record.get(metric["Name"])
    values = value if isinstance(value, list) else [value]
    numbers = [float(one) for one in values if isinstance(one, int | float)]
    if not numbers:
        return []
    return [
        {
            "MetricName": metric["Name"],
            "Dimensions": [{"Name": name, "Value": str(record[name])} for name in names],
            "Unit": metric.get("Unit", "None"),
            "Values": numbers,
            "Counts": [1.0] * len(numbers),
        }
    ]
