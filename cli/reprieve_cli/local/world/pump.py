"""
The metrics pump: what CloudWatch makes of logs and queues by itself on AWS.

Log lines in the embedded metric format become metric data, queue depths become ``AWS/SQS``,
so that the deployed alarms have something to watch.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprieve_cli.local.world.timeline import Timeline
    from reprieve_cli.local.world.upstream import Upstream

_MOST_DATA = 1000  # per PutMetricData
_QUEUE_METRICS = {
    "ApproximateNumberOfMessages": "ApproximateNumberOfMessagesVisible",
    "ApproximateNumberOfMessagesNotVisible": "ApproximateNumberOfMessagesNotVisible",
}
_AGE = "ApproximateAgeOfOldestMessage"

_LATENESS_MS = 60_000  # a function's lines arrive when it ends, with the times of their writing

Datum = dict[str, Any]
_Line = tuple[str, str, int, str]


class Pump:
    def __init__(self, upstream: Upstream, timeline: Timeline) -> None:
        self._upstream = upstream
        self._timeline = timeline
        self._task: asyncio.Task[None] | None = None
        self._newest: dict[str, int] = {}
        self._seen: set[tuple[_Line, int]] = set()
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
            except Exception as error:  # noqa: BLE001  # a pump that died in silence is no pump
                self._timeline.note("pump failed", reason=f"{type(error).__name__}: {error}")
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
        data: defaultdict[str, list[Datum]] = defaultdict(list)
        for message in await self._fresh_lines(group):
            for namespace, datum in embedded_metrics(message):
                data[namespace].append(datum)
        for namespace, found in data.items():
            await self._put(namespace, found)

    async def _fresh_lines(self, group: str) -> list[str]:
        """Read the lines of *group* that were not read before; late ones are found, too."""
        newest = self._newest.get(group, 0)
        page: dict[str, Any] = {"logGroupName": group, "startTime": max(newest - _LATENESS_MS, 0)}
        lines = []
        met: Counter[_Line] = Counter()
        while True:
            answer = await self._upstream.call("logs", "filter_log_events", **page)
            for event in answer["events"]:
                # ministack gives no ids to what functions write: the n-th of equal lines.
                line = (group, event["logStreamName"], event["timestamp"], event["message"])
                met[line] += 1
                if (line, met[line]) not in self._seen:
                    self._seen.add((line, met[line]))
                    self._newest[group] = max(self._newest.get(group, 0), event["timestamp"])
                    lines.append(event["message"])
            if not answer.get("nextToken"):
                return lines
            page["nextToken"] = answer["nextToken"]

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
