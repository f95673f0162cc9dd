"""
Each alarm, tripped by what it is for, and heard by whoever listens to the topic.

One cloud for all; the tests follow each other. Little is simulated: the queues give a poison
message three tries instead of ten, a second apart; the age of a queue is the world's own look
at it, told on EC2's clock where EC2 would take minutes; and since the emulator has no dead
letters of EventBridge's own, the test leaves one where EventBridge would.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from infra.constructs.watch import JOB_ALARMS
from reprieve.domain.clock import REAL_NOTICE
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Lease
from reprieve.usecases.submit import Cancel
from reprieve_cli import submission
from reprieve_cli.drill.stage import ALIVE, Stage, open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.aws import client
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.deploy import deploy
from reprieve_cli.local.localize import complete, localize
from reprieve_cli.provision import STACK
from tests.rehearsal.watchman import Watchman

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(300)]

NOTICE_SECONDS = 3.0
PUMP_SECONDS = 1.0
POISON = "poison"
DEAD_AFTER = 3
PATIENCE = 60.0
SLEEPER = ("sleep", "600")

# At this clock a host has 7.5 s to boot, which a busy machine may not keep.
LATE = {"HostsNeverReady"}
# Tripped by their causes over the real handlers, in tests/infra/test_alarm_causes.py.
TRIPPED_AT_THE_HANDLERS = {*JOB_ALARMS, "CheckpointLead"}


@dataclass
class Ward:
    cloud: Cloud
    stage: Stage
    watchman: Watchman
    market: dict[str, Any]

    @property
    def outputs(self) -> dict[str, str]:
        return dict(self.stage.cloud.stack.outputs)

    def sweep(self, *, seconds: float) -> None:
        self.cloud.control.sweep(self.outputs["ReconcileFunction"], seconds=seconds)

    def submit(self, *command: str) -> str:
        request = submission.Request(command=command, pool="gpu", name="ward")
        return submission.submit(request, lambda: self.stage.cloud, warn=lambda _line: None).id

    def cancel(self, job: str) -> None:
        cloud = self.stage.cloud
        Cancel(rows=cloud.rows, now=cloud.now)(job)

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        self.cloud.control.wait_for(what, condition, seconds=PATIENCE)

    def status(self, job: str) -> JobStatus | None:
        row = self.stage.cloud.jobs.read(job)
        return row.status if row else None

    def running(self) -> tuple[str, str]:
        """Return a job that runs, and its host."""
        job = self.submit(*SLEEPER)
        self.wait("the job's start", lambda: self.status(job) is JobStatus.RUNNING)
        return job, self.holder(job)

    def lease(self, job: str) -> Lease:
        row = self.stage.cloud.jobs.read(job)
        assert row is not None
        lease = self.stage.cloud.jobs.lease(row.lease_key)
        assert lease is not None
        return lease

    def holder(self, job: str) -> str:
        holder = self.lease(job).holder
        assert holder is not None
        return holder.instance_id

    def beat(self, job: str) -> int:
        return self.lease(job).beat

    def trips(self, name: str, *, clock_scale: float = 1.0) -> None:
        """Wait for the alarm's own data, then have it ring, and read what arrives."""
        self.wait(
            f"data that trips {name}",
            lambda: self.watchman.breaches(name, clock_scale=clock_scale),
        )
        message = self.watchman.ring(name)
        assert message["NewStateValue"] == "ALARM"
        assert "docs/operations.md#" in message["AlarmDescription"]

    def queue(self, name: str) -> str:
        """Return the URL of the queue that the template calls *name*."""
        resources = client(self.cloud, "cloudformation").describe_stack_resources(StackName=STACK)
        (url,) = (
            one["PhysicalResourceId"]
            for one in resources["StackResources"]
            if one["ResourceType"] == "AWS::SQS::Queue"
            and one["LogicalResourceId"][:-8] == f"State{name}"
        )
        return str(url)

    def invoke(self, function: str, payload: dict[str, Any], *, kind: str) -> None:
        client(self.cloud, "lambda").invoke(
            FunctionName=self.outputs[function],
            InvocationType=kind,
            Payload=json.dumps(payload),
        )


@pytest.fixture(scope="module")
def ward(original: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """Deploy without any sweep, which is the first thing to be alarmed about."""
    target = tmp_path_factory.mktemp("ward") / "app"
    localized = localize(original, STACK, target, notice_seconds=NOTICE_SECONDS)
    with embedded.start(notice_seconds=NOTICE_SECONDS) as cloud:
        outputs = deploy(cloud, localized.assembly_dir, STACK)
        complete(cloud, localized)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=NOTICE_SECONDS)
        watchman = Watchman(cloud, STACK, outputs["AlarmTopic"])
        ward = Ward(cloud, stage, watchman, cloud.control.pools())
        for name in ("Intake", "Orders", "Reports", "WorkGpu"):
            hurry(ward, name)
        yield ward


def hurry(ward: Ward, name: str) -> None:
    sqs, url = client(ward.cloud, "sqs"), ward.queue(name)
    (policy,) = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])[
        "Attributes"
    ].values()
    redrive = {**json.loads(policy), "maxReceiveCount": DEAD_AFTER}
    sqs.set_queue_attributes(
        QueueUrl=url,
        Attributes={"VisibilityTimeout": "1", "RedrivePolicy": json.dumps(redrive)},
    )


def test_no_sweep_rings(ward: Ward) -> None:
    """Nobody has swept, and nothing says so but the silence."""
    ward.trips("SweepsMissing")


def test_nothing_rings_while_all_is_well(ward: Ward) -> None:
    ward.sweep(seconds=NOTICE_SECONDS / 2)
    ward.cloud.control.pump(seconds=PUMP_SECONDS)
    job = ward.submit("sleep", "1")
    ward.wait("the job's end", lambda: ward.status(job) is JobStatus.SUCCEEDED)
    ward.wait("a sweep in the metrics", lambda: not ward.watchman.breaches("SweepsMissing"))

    ringing = {name for name in ward.watchman.names() if ward.watchman.breaches(name)}

    assert ringing - LATE == set()


def test_a_poisoned_ticket_rings(ward: Ward) -> None:
    """A host that has just become idle takes it, can't read it, and leaves it."""
    job = ward.submit("sleep", "1")
    ward.wait("the job's end", lambda: ward.status(job) is JobStatus.SUCCEEDED)

    ward.stage.sqs.send_message(QueueUrl=ward.queue("WorkGpu"), MessageBody=POISON)

    ward.trips("WorkGpuDeadLetters")


@pytest.mark.parametrize("name", ["Orders", "Reports"])
def test_a_poisoned_message_rings(ward: Ward, name: str) -> None:
    ward.stage.sqs.send_message(QueueUrl=ward.queue(name), MessageBody=POISON)

    ward.trips(f"{name}DeadLetters")
    ward.trips("MessagesMalformed")


@pytest.mark.parametrize("name", ["HandleNotice", "ReplaceHost", "RecordReport"])
def test_a_function_that_raises_rings(ward: Ward, name: str) -> None:
    ward.invoke(f"{name}Function", {"not": "records"}, kind="RequestResponse")

    ward.trips(f"{name}Errors")


def test_a_sweep_that_fails_rings_twice(ward: Ward) -> None:
    """Once because the function raised, once because its invocation is a dead letter."""
    functions, name = client(ward.cloud, "lambda"), ward.outputs["ReconcileFunction"]
    before = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    broken = {**before, "JOBS_TABLE": "no-such-table"}
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": broken})
    try:
        ward.invoke("ReconcileFunction", {}, kind="Event")

        ward.trips("ReconcileErrors")
        ward.trips("SweepDeadLetters")
    finally:
        functions.update_function_configuration(
            FunctionName=name, Environment={"Variables": before}
        )


@contextmanager
def refused(ward: Ward, code: str) -> Iterator[None]:
    """Have EC2 refuse every launch that a new job asks for; no host is left that could serve it."""
    for host in ward.cloud.control.hosts():
        if host.state in ALIVE:
            ward.cloud.control.kill(host.instance_id)
    error = {"code": code, "message": "as rehearsed", "status": 400}
    ward.cloud.control.add_fault("ec2", "CreateFleet", {"error": error}, seconds=2 * PATIENCE)
    job = ward.submit(*SLEEPER)
    try:
        yield
    finally:
        ward.cancel(job)
        ward.cloud.control.clear_faults()


def test_a_launch_that_no_retry_mends_rings(ward: Ward) -> None:
    """The functions' role lost a right: the job waits for a person, who is told of what."""
    with refused(ward, "UnauthorizedOperation"):
        ward.trips("LaunchesMisconfigured")
        ward.trips("JobsNeedYou")


def test_a_quota_rings(ward: Ward) -> None:
    with refused(ward, "VcpuLimitExceeded"):
        ward.trips("LaunchesOverQuota")


def sold_out(market: dict[str, Any]) -> dict[str, Any]:
    """Offer all that *market* offers, and have none: what isn't offered is left out for hours."""
    return {
        tier: [pool | {"capacity": 0} for pool in market[tier]] for tier in ("pools", "on_demand")
    }


def test_an_empty_market_rings_twice(ward: Ward) -> None:
    """Every tier says no, and the job is parked."""
    for host in ward.cloud.control.hosts():
        if host.state in ALIVE:
            ward.cloud.control.kill(host.instance_id)
    ward.cloud.control.put_pools(sold_out(ward.market))
    job = ward.submit(*SLEEPER)

    ward.trips("OrdersUnfilled")
    ward.trips("JobsParked")

    ward.cancel(job)
    ward.cloud.control.put_pools(ward.market)


def test_a_host_that_dies_without_notice_rings(ward: Ward) -> None:
    job, host = ward.running()

    ward.cloud.control.kill(host)

    ward.trips("LossWithoutNotice")
    ward.cancel(job)


def test_a_notice_without_a_checkpoint_rings(ward: Ward) -> None:
    """The job doesn't know how to save, so two minutes are of no use to it."""
    job, host = ward.running()

    ward.cloud.control.notice(host)

    ward.trips("NoticeWithoutCheckpoint")
    ward.cancel(job)


@contextmanager
def not_taken_from(ward: Ward, function: str, queue: str) -> Iterator[None]:
    """Have a message wait that nobody takes; at the end the function gets it, and can't read it."""
    functions = client(ward.cloud, "lambda")
    (mapping,) = functions.list_event_source_mappings(FunctionName=ward.outputs[function])[
        "EventSourceMappings"
    ]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    ward.stage.sqs.send_message(QueueUrl=ward.queue(queue), MessageBody=POISON)
    try:
        yield
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def test_queues_that_nobody_takes_from_ring(ward: Ward) -> None:
    """The world goes faster than EC2, so does their age: five minutes are over in some seconds."""
    scale = NOTICE_SECONDS / REAL_NOTICE.total_seconds()
    with (
        not_taken_from(ward, "ReplaceHostFunction", "Orders"),
        not_taken_from(ward, "RecordReportFunction", "Reports"),
    ):
        ward.trips("OrdersAge", clock_scale=scale)
        ward.trips("ReportsAge", clock_scale=scale)


def test_an_event_that_no_queue_took_rings(ward: Ward) -> None:
    """It lies where the rule says that EventBridge puts what it can't deliver."""
    events = client(ward.cloud, "events")
    rules = [rule["Name"] for rule in events.list_rules()["Rules"]]
    targets = [t for rule in rules for t in events.list_targets_by_rule(Rule=rule)["Targets"]]
    (arn,) = {target["DeadLetterConfig"]["Arn"] for target in targets}
    sqs = ward.stage.sqs
    url = sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]

    sqs.send_message(
        QueueUrl=url, MessageBody='{"detail-type": "EC2 Spot Instance Interruption W"}'
    )

    ward.trips("UndeliveredDeadLetters")


@pytest.fixture(scope="module")
def neglected(ward: Ward) -> Iterator[ExitStack]:
    """Have a message wait in the intake from now on, until this is closed."""
    with ExitStack() as until:
        until.enter_context(not_taken_from(ward, "HandleNoticeFunction", "Intake"))
        yield until


@pytest.mark.usefixtures("neglected")  # it has half a minute to grow old, and these need no intake
def test_a_lease_in_strange_hands_rings(ward: Ward) -> None:
    """Its holder is of another pool: somebody changed the table by hand."""
    job, host = ward.running()

    client(ward.cloud, "dynamodb").update_item(
        TableName=ward.outputs["JobsTable"],
        Key={"pk": {"S": f"HOST#{host}"}, "sk": {"S": "HOST"}},
        UpdateExpression="SET #pool = :other",
        ExpressionAttributeNames={"#pool": "pool"},
        ExpressionAttributeValues={":other": {"S": "other"}},
    )

    ward.trips("LeaseAnomalies")
    ward.cancel(job)
    # It still listens to the work queue, and a job that it took would never count as running.
    ward.cloud.control.kill(host)


def test_hosts_that_fall_silent_together_ring(ward: Ward) -> None:
    """More likely we are ill than all of them at once."""
    hosts = dict([ward.running(), ward.running()])
    # No sweep may see one of them alive and the other silent: it would judge them one by one.
    ward.sweep(seconds=0)
    before = {job: ward.beat(job) for job in hosts}
    ward.wait("new beats", lambda: all(ward.beat(job) > before[job] for job in hosts))
    for host in hosts.values():
        ward.cloud.control.freeze(host)
    ward.sweep(seconds=NOTICE_SECONDS / 2)

    ward.trips("CannotTell")

    for job, host in hosts.items():
        ward.cancel(job)
        ward.cloud.control.kill(host)


def test_a_notice_that_nobody_takes_rings_and_a_poisoned_one_too(
    ward: Ward, neglected: ExitStack
) -> None:
    """First it grows old, because the function doesn't come; then the function can't read it."""
    ward.trips("IntakeAge")

    neglected.close()

    ward.trips("IntakeDeadLetters")


def test_every_alarm_was_tripped(ward: Ward) -> None:
    unheard = set(ward.watchman.names()) - ward.watchman.heard
    assert unheard - TRIPPED_AT_THE_HANDLERS == set()
