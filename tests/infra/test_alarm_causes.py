"""
Each alarm on a count of ours, tripped by its cause.

The real handlers run over the in-memory world; what they print for CloudWatch is held
against the alarm as the template has it: namespace, name, dimension, statistic, threshold.
What only a deployment can trip (queues, functions that raise, silence) is tripped in
tests/rehearsal/test_alarms.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any

import pytest

from functions.handle_notice import handler as handle_notice
from functions.reconcile import handler as reconcile
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from reprieve.domain.host import InstanceState, Market
from reprieve.domain.lease import Cause, Outcome
from reprieve.domain.order import FleetAnswer, FleetError
from reprieve.edge.settings import (
    HandleNoticeSettings,
    ReconcileSettings,
    RecordReportSettings,
    ReplaceHostSettings,
)
from reprieve.protocol import Report, ReportKind
from tests.functions.conftest import Context, Install, context, install, records
from tests.infra.synthesised import Template
from tests.usecases.story import CLOCK, Host, Story, a_pool

pytestmark = pytest.mark.deep

__all__ = ["context", "install"]  # fixtures of the functions' tests, used here too

STRANGER = "i-0ff00000000000099"


@dataclass
class Stage:
    """The deployed functions over a story."""

    story: Story
    context: Context

    def __post_init__(self) -> None:
        self.job = self.story.submit()

    def sweep(self, times: int = 1) -> None:
        for _ in range(times):
            self.story.later(CLOCK.sweep.total_seconds())
            reconcile.lambda_handler({}, self.context)

    def fill(self, *codes: str) -> None:
        """Work through the orders, EC2 refusing each tier with *codes*."""
        if codes:
            answer = FleetAnswer(errors=tuple(FleetError(code) for code in codes))
            self.story.memory.fleet.script += [answer] * 4
        bodies = [message.to_json() for message in self.story.memory.mail.orders]
        self.story.memory.mail.orders.clear()
        replace_host.lambda_handler(records(*bodies), self.context)

    def host(self) -> Host:
        self.fill()
        (instance_id,) = self.story.memory.host_rows
        host = Host(self.story, instance_id)
        host.idle()
        return host

    def running(self) -> Host:
        host = self.host()
        host.run()
        self.story.uses.settle(self.job)
        return host

    def ended(self, host: Host, cause: Cause, outcome: Outcome = Outcome.INTERRUPTED) -> None:
        host.release(outcome, cause)
        self.report(host, ReportKind.INTERRUPTED)

    def report(self, host: Host, kind: ReportKind, sender: str = "", **data: Any) -> None:
        report = Report(kind, host.instance_id, self.story.time, key=host.key, data=data)
        attested = f"AROAEXAMPLE:{sender or host.instance_id}"
        record_report.lambda_handler(records(report.to_json(), sender=attested), self.context)

    def warn(self, *hosts: Host) -> None:
        event = {
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "time": self.story.time.isoformat(),
        }
        bodies = [
            event | {"detail": {"instance-id": h.instance_id, "instance-action": "terminate"}}
            for h in hosts
        ]
        handle_notice.lambda_handler(records(*bodies), self.context)


def lost(stage: Stage) -> None:
    stage.story.gone(stage.running())
    stage.sweep()


def unsaved(stage: Stage) -> None:
    host = stage.running()
    host.step(7)
    stage.warn(host)
    stage.ended(host, Cause.NOTICE)


def barely_saved(stage: Stage) -> None:
    host = stage.running()
    host.commit(5)
    stage.report(host, ReportKind.COMMITTED, step=5, lead_seconds=6.0)


def bad_checkpoint(stage: Stage) -> None:
    host = stage.running()
    stage.report(host, ReportKind.PROGRESS, quarantined="jobs/j/manifests/…", reason="cut short")


def none_valid(stage: Stage) -> None:
    stage.ended(stage.running(), Cause.NO_VALID_CHECKPOINT)


def no_progress(stage: Stage) -> None:
    row = stage.story.job(stage.job)
    spec = replace(row.spec, max_without_progress=1)
    stage.story.memory.job_rows[stage.job] = replace(row, spec=spec)
    stage.story.gone(stage.running())
    stage.sweep()


def silent(stage: Stage) -> None:
    stage.running()
    stage.sweep(CLOCK.silent_sweeps + 1)


def silent_together(stage: Stage) -> None:
    stage.story.submit()
    stage.fill()
    for instance_id in list(stage.story.memory.host_rows):
        host = Host(stage.story, instance_id)
        host.idle()
        host.run()
    stage.sweep(CLOCK.silent_sweeps + 1)


def never_ready(stage: Stage) -> None:
    stage.fill()
    stage.story.later(CLOCK.boot.total_seconds())
    stage.sweep()


def unclaimed(stage: Stage) -> None:
    instance = stage.running()
    known = stage.story.memory.fleet.instances[instance.instance_id]
    stage.story.memory.fleet.instances[STRANGER] = replace(
        known, instance_id=STRANGER, tags={"reprieve:stack": "Reprieve"}
    )
    stage.sweep()


def order_unanswered(stage: Stage) -> None:
    stage.story.memory.mail.orders.clear()
    stage.sweep(5)


def at_cap(stage: Stage) -> None:
    stage.running()
    for _ in range(4):
        stage.story.submit()
    stage.fill()


def unreachable(stage: Stage) -> None:
    for _ in range(2):
        stage.story.submit()
    stage.fill()
    hosts = [Host(stage.story, i) for i in stage.story.memory.host_rows]
    for host in hosts:
        stage.story.memory.signals.unreachable[host.instance_id] = "InvalidInstanceId"
    stage.warn(*hosts)


def holds_two(stage: Stage) -> None:
    host = stage.running()
    other = stage.story.submit()
    lease = stage.story.lease(other)
    stage.story.memory.lease_rows[lease.key] = replace(stage.story.lease(stage.job), key=lease.key)
    assert host.key
    stage.sweep()


def slow_sweep(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patched:
        moments = chain([0.0, 41.0], repeat(42.0))
        patched.setattr("functions.reconcile.handler.time.monotonic", lambda: next(moments))
        stage.sweep()


def malformed(stage: Stage) -> None:
    record_report.lambda_handler(records("not a report"), stage.context)


CAUSES: dict[str, Callable[[Stage], None]] = {
    "LossWithoutNotice": lost,
    "NoticeWithoutCheckpoint": unsaved,
    "CheckpointLead": barely_saved,
    "CheckpointsQuarantined": bad_checkpoint,
    "JobsWithoutValidCheckpoint": none_valid,
    "JobsWithoutProgress": no_progress,
    "JobsNeedYou": none_valid,
    "JobsParked": lambda stage: stage.fill("InsufficientInstanceCapacity"),
    "OrdersUnfilled": lambda stage: stage.fill("InsufficientInstanceCapacity"),
    "OrdersRungAgain": order_unanswered,
    "LaunchesOverQuota": lambda stage: stage.fill("VcpuLimitExceeded"),
    "LaunchesMisconfigured": lambda stage: stage.fill("UnauthorizedOperation"),
    "SubnetsFull": lambda stage: stage.fill("InsufficientFreeAddressesInSubnet"),
    "PoolsAtCap": at_cap,
    "HostsNeverReady": never_ready,
    "HostsSilent": silent,
    "StraysFound": unclaimed,
    "SignalsUndelivered": unreachable,
    "LeaseAnomalies": holds_two,
    "ReportsForged": lambda stage: stage.report(
        stage.running(), ReportKind.PROGRESS, sender=STRANGER
    ),
    "MessagesMalformed": malformed,
    "CannotTell": silent_together,
    "SweepsSlow": slow_sweep,
}

# Only a deployment has these: each is tripped in tests/rehearsal/test_alarms.py.
DEPLOYED = ("DeadLetters", "Errors", "Age", "SweepsMissing")


@pytest.fixture
def stage(install: Install, context: Context, story: Story) -> Stage:
    install(handle_notice, HandleNoticeSettings)
    install(replace_host, ReplaceHostSettings)
    install(record_report, RecordReportSettings)
    install(reconcile, ReconcileSettings)
    return Stage(story, context)


@pytest.fixture
def story() -> Story:
    return Story(pool=a_pool(max_hosts=4, max_usd_per_hour=1000.0))


def points(output: str, alarm: dict[str, Any]) -> list[float]:
    """Return what was printed under exactly the alarm's namespace, name and dimensions."""
    wanted = {d["Name"]: d["Value"] for d in alarm["Dimensions"]}
    found: list[float] = []
    for line in output.splitlines():
        entry = json.loads(line) if '"_aws"' in line else {}
        for said in entry.get("_aws", {}).get("CloudWatchMetrics", ()):
            names = {metric["Name"] for metric in said["Metrics"]}
            here = {name: entry[name] for dimension in said["Dimensions"] for name in dimension}
            if (said["Namespace"], here) == (alarm["Namespace"], wanted):
                values = entry.get(alarm["MetricName"], []) if alarm["MetricName"] in names else []
                found += values if isinstance(values, list) else [values]
    return found


def breaches(output: str, alarm: dict[str, Any]) -> bool:
    """Judge one period as CloudWatch does; nothing printed is no data."""
    values = points(output, alarm)
    if not values:
        return False
    statistics: dict[str, Callable[[list[float]], float]] = {
        "Sum": sum,
        "Maximum": max,
        "Minimum": min,
    }
    judged = statistics[alarm["Statistic"]](values)
    if alarm["ComparisonOperator"] == "LessThanThreshold":
        return bool(judged < alarm["Threshold"])
    return bool(judged >= alarm["Threshold"])


@pytest.mark.parametrize("name", CAUSES)
def test_its_cause_trips_the_alarm(
    name: str, stage: Stage, template: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    alarm = template.named("AWS::CloudWatch::Alarm", f"Watch{name}")

    CAUSES[name](stage)

    assert breaches(capsys.readouterr().out, alarm)


def test_a_job_that_runs_through_trips_none(
    stage: Stage, template: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    host = stage.running()
    stage.sweep()
    host.commit(5)
    stage.report(host, ReportKind.COMMITTED, step=5, lead_seconds=80.0)
    stage.warn(host)
    host.release()
    stage.report(host, ReportKind.INTERRUPTED)
    stage.story.memory.fleet.set_state(host.instance_id, InstanceState.GONE)
    stage.sweep()
    stage.fill()

    output = capsys.readouterr().out
    alarms = template.of("AWS::CloudWatch::Alarm")
    ours = {n: a for n, a in alarms.items() if a["Namespace"] == "Reprieve"}
    rung = {name for name, alarm in ours.items() if breaches(output, alarm)}
    assert {name for name in rung if "SweepsMissing" not in name} == set()


def test_every_alarm_has_a_cause_here_or_in_the_rehearsal(template: Template) -> None:
    names = {name[len("Watch") : -8] for name in template.of("AWS::CloudWatch::Alarm")}

    assert {name for name in names if not name.endswith(DEPLOYED)} == set(CAUSES)


def test_on_demand_hosts_are_watched_as_well(
    stage: Stage, template: Template, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third detector knows Spot only; a loss on demand must ring all the same."""
    host = stage.running()
    row = stage.story.memory.host_rows[host.instance_id]
    stage.story.memory.host_rows[host.instance_id] = replace(
        row, capacity=replace(row.capacity, market=Market.ON_DEMAND)
    )
    stage.story.gone(host)

    stage.sweep()

    alarm = template.named("AWS::CloudWatch::Alarm", "WatchLossWithoutNotice")
    assert breaches(capsys.readouterr().out, alarm)
