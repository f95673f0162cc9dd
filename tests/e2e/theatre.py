"""Where the stories are played, one after the other: what each leaves behind is swept away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import yaml

from reprieve.usecases.submit import Cancel
from reprieve_cli.drill import report
from reprieve_cli.drill.document import load, parse
from reprieve_cli.drill.engine import Drill, Outcome, Patience
from reprieve_cli.drill.reference import References
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.stage import ALIVE, Stage
from reprieve_cli.local.cloud import Cloud

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
QUIET_SECONDS = 0.5
CLEAR_SECONDS = 120.0
POLL_SECONDS = 0.1
LAST_LINES = 15
TROUBLE = "WARNING", "ERROR", "Traceback"

Raw = dict[str, Any]
"""A scenario's document."""


@dataclass
class Theatre:
    cloud: Cloud
    stage: Stage
    everything: dict[str, Any]
    """The market in which all is for sale."""
    references: References = field(default_factory=References)
    agent_patches: Path | None = None
    """A folder in which the agents' interpreter looks for modules first."""
    settings: Raw | None = None
    """What is deployed, if a story may say so too."""
    pool: str | None = None
    """Where jobs run that name no pool, if there are several."""

    def play(self, scenario: Scenario, *, patience: Patience | None = None) -> Outcome:
        assert scenario.notice_seconds == self.stage.notice_seconds, "one clock for all stories"
        own = scenario.stack is not None and scenario.stack != self.settings
        assert not own, "one stack for all stories"
        jobs = tuple(replace(job, pool=job.pool or self.pool) for job in scenario.jobs)
        drill = Drill(
            replace(scenario, jobs=jobs),
            self.stage,
            patience=patience or Patience(),
            references=self.references,
        )
        return drill.run()

    def explain(self, outcome: Outcome) -> str:
        """Return the report, with what hosts and functions said of trouble."""
        return "\n".join([*report.lines(outcome), *self._agents(), *self._functions()])

    def clear(self) -> None:
        """End all jobs and hosts, wait until nothing moves, and forget everything."""
        world = self.stage.world
        world.clear_faults()
        self._cancel_all()
        for host in world.hosts():
            if host.state in ALIVE:
                world.kill(host.instance_id)
        self._until_quiet()
        self._wipe()
        world.put_pools(self.everything)

    def leave_the_sweep_to_the_world(self) -> None:
        """Stop the emulator's own schedule, which goes by the minute."""
        client = self.client("scheduler")
        for listed in client.list_schedules()["Schedules"]:
            schedule = client.get_schedule(Name=listed["Name"])
            client.update_schedule(
                Name=listed["Name"],
                State="DISABLED",
                **{
                    name: schedule[name]
                    for name in ("ScheduleExpression", "FlexibleTimeWindow", "Target")
                },
            )

    def _cancel_all(self) -> None:
        cloud = self.stage.cloud
        for pool in cloud.stack.pools:
            for job_id, _ in cloud.jobs.live(pool).jobs:
                Cancel(rows=cloud.rows, now=cloud.now)(job_id)

    def _until_quiet(self) -> None:
        """Throw away what is in the queues, until nothing moves: no story begins before."""
        since = time.monotonic()
        self._purge()
        while not self._still():
            assert time.monotonic() < since + CLEAR_SECONDS, "the queues don't run dry"
            self._purge()

    def _still(self) -> bool:
        """Tell whether every queue is empty for a while; dead letters don't move."""
        end = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end:
            if any(map(self._depth, self._working_queues())):
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _depth(self, url: str) -> int:
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.stage.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return sum(int(value) for value in answer["Attributes"].values())

    def _working_queues(self) -> list[str]:
        stack = self.stage.cloud.stack
        work = [pool.work_queue_url for pool in stack.pools.values()]
        outputs = stack.outputs
        return [outputs["IntakeQueueUrl"], outputs["ReportsQueueUrl"], stack.orders_url, *work]

    def _purge(self) -> None:
        for url in self.stage.sqs.list_queues()["QueueUrls"]:
            self.stage.sqs.purge_queue(QueueUrl=url)

    def _wipe(self) -> None:
        table, client = self.stage.cloud.stack.table, self.client("dynamodb")
        for page in client.get_paginator("scan").paginate(TableName=table):
            for item in page["Items"]:
                key = {name: item[name] for name in ("pk", "sk")}
                client.delete_item(TableName=table, Key=key)

    def client(self, service: str) -> Any:
        env = self.cloud.env
        make: Any = boto3.Session().client  # its stub knows services by literal names only
        return make(
            service,
            endpoint_url=env["AWS_ENDPOINT_URL"],
            region_name=env["AWS_REGION"],
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        )

    def _agents(self) -> Iterator[str]:
        for log in sorted((self.cloud.run_dir / "hosts").glob("*/agent.log")):
            yield f"--- {log.parent.name}"
            with log.open(errors="replace") as lines:
                yield from (line.rstrip()[:400] for line in deque(lines, LAST_LINES))

    def _functions(self) -> Iterator[str]:
        logs = self.stage.logs
        for group in logs.describe_log_groups()["logGroups"]:
            events = logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
            said = [event["message"].strip()[:600] for event in events]
            wrong = [line for line in said if any(word in line for word in TROUBLE)]
            if wrong:
                yield f"--- {group['logGroupName']}"
                yield from wrong[-LAST_LINES:]


def story(name: str) -> Scenario:
    return load(_path(name))


def raw_story(name: str) -> Raw:
    """Return the story as it is written, to be altered and read."""
    raw: Raw = yaml.safe_load(_path(name).read_text(encoding="utf-8"))
    return raw


def read(raw: Raw, name: str) -> Scenario:
    """Read an altered story as if it were the file of that *name*."""
    return parse(yaml.safe_dump(raw), _path(name))


def _path(name: str) -> Path:
    return SCENARIOS / f"{name}.yaml"
