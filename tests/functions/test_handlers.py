"""What the platform sees of each handler: which records come back, and what was counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from functions.handle_notice import handler as handle_notice
from functions.reconcile import handler as reconcile
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.needs import Needs
from reprieve.edge.records import attested_instance
from reprieve.edge.settings import (
    HandleNoticeSettings,
    ReconcileSettings,
    RecordReportSettings,
    ReplaceHostSettings,
    Settings,
)
from reprieve.ports.rows import Wanted
from reprieve.protocol import OrderMessage, Report, ReportKind
from tests.functions.conftest import ENVIRONMENT, Context, Install, records
from tests.usecases.story import Host, Story, a_pool


def warning(host: Host | str, story: Story) -> dict[str, Any]:
    instance_id = host if isinstance(host, str) else host.instance_id
    return {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "time": story.time.isoformat(),
        "resources": [f"arn:aws:ec2:us-east-1a:instance/{instance_id}"],
        "detail": {"instance-id": instance_id, "instance-action": "terminate"},
    }


def failed(reply: dict[str, Any]) -> list[str]:
    return [item["itemIdentifier"] for item in reply["batchItemFailures"]]


def metric(output: str, name: str) -> float:
    """Return the sum of *name* over the metric lines that the handler printed."""
    total = 0.0
    for line in output.splitlines():
        if "_aws" in line and name in (entry := json.loads(line)):
            values = entry[name]
            total += sum(values) if isinstance(values, list) else values
    return total


@pytest.fixture
def hosts() -> int:
    return 3


@pytest.fixture
def story(hosts: int) -> Story:
    return Story(pool=a_pool(max_hosts=hosts, max_usd_per_hour=1000.0))


def fleet_of(story: Story, count: int) -> list[Host]:
    """Launch *count* hosts, each running a job."""
    for _ in range(count):
        story.submit()
    launched = [
        Host(story, i.instance_id) for filled in story.fill_orders() for i in filled.launched
    ]
    for host in launched:
        host.idle()
        host.run()
    return launched


def test_only_the_record_that_failed_comes_back(
    story: Story, install: Install, context: Context
) -> None:
    sqs = install(handle_notice, HandleNoticeSettings)
    a, b, c = fleet_of(story, 3)
    story.memory.before = refuse(story, lambda nth: nth not in {1, 3})
    event = records(warning(a, story), warning(b, story), warning(c, story))
    reply = handle_notice.lambda_handler(event, context)
    assert failed(reply) == ["m2"]
    assert sqs.change_message_visibility.call_args.kwargs["VisibilityTimeout"] == 2

    story.memory.before = lambda _: None
    again = handle_notice.lambda_handler(records(warning(b, story)), context)
    assert failed(again) == []
    assert all(story.memory.host_rows[h.instance_id].state is HostState.DRAINING for h in (a, b, c))
    assert len(story.memory.mail.orders) == 3


def refuse(story: Story, refused: Callable[[int], bool]) -> Callable[[str], None]:
    """Return what leaves those commits unanswered, counted from 1."""
    nth = 0

    def before(operation: str) -> None:
        nonlocal nth
        if operation == "rows.commit":
            nth += 1
            if refused(nth):
                raise UnknownOutcomeError("throttled")

    return before


def test_a_commit_in_conflict_is_made_again_after_the_others(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    hosts = fleet_of(story, 3)
    drained: list[list[bool]] = []
    refuse_first = refuse(story, lambda nth: nth == 1)

    def before(operation: str) -> None:
        if operation == "rows.commit":
            rows = [story.memory.host_rows[host.instance_id] for host in hosts]
            drained.append([row.state is HostState.DRAINING for row in rows])
        refuse_first(operation)

    story.memory.before = before
    event = records(*(warning(host, story) for host in hosts))
    assert failed(handle_notice.lambda_handler(event, context)) == []
    assert drained == [
        [False, False, False],
        [False, False, False],
        [False, True, False],
        [False, True, True],
    ]


def test_a_row_that_the_table_does_not_get_to_delays_nobody_else(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    a, b = fleet_of(story, 2)
    story.memory.rows.left = Wanted(hosts=frozenset({a.instance_id}))
    reply = handle_notice.lambda_handler(records(warning(a, story), warning(b, story)), context)
    assert failed(reply) == ["m1"]
    assert [n.instance_id for n in story.memory.signals.sent] == [b.instance_id]
    assert story.memory.host_rows[b.instance_id].state is HostState.DRAINING


def test_a_table_that_does_not_answer_is_asked_again_in_seconds(
    story: Story, install: Install, context: Context
) -> None:
    sqs = install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)

    def silent(operation: str) -> None:
        if operation == "rows.read":
            raise UnknownOutcomeError("no answer")

    story.memory.before = silent
    assert failed(handle_notice.lambda_handler(records(warning(host, story)), context)) == ["m1"]
    assert sqs.change_message_visibility.call_args.kwargs["VisibilityTimeout"] == 2


def test_the_timeline_says_how_late_a_notice_was_handled_and_says_it_once(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)
    assert host.key
    event = warning(host, story)
    for seconds in (1.5, 2.0):
        story.later(seconds)
        handle_notice.lambda_handler(records(event), context)
    (notice,) = [e for e in story.memory.jobs.events(host.key.job) if e.kind == "notice"]
    assert notice.data["lag_seconds"] == 3.5


def test_poison_comes_back_alone_and_its_neighbours_pass(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)
    poison = warning("not-an-instance", story)
    event = records("{not json", poison, "[]", warning(host, story))
    assert failed(handle_notice.lambda_handler(event, context)) == ["m1", "m2", "m3"]
    assert story.memory.host_rows[host.instance_id].state is HostState.DRAINING


PAUSES: dict[Any, tuple[type[Settings], str, list[int]]] = {
    handle_notice: (HandleNoticeSettings, "INTAKE_QUEUE_URL", [2, 2, 2]),
    replace_host: (ReplaceHostSettings, "ORDERS_QUEUE_URL", [2, 8, 60]),
    record_report: (RecordReportSettings, "REPORTS_QUEUE_URL", [2, 8, 30]),
}


@pytest.mark.parametrize("module", PAUSES)
def test_what_failed_comes_back_soon_and_then_less_and_less_often(
    module: Any, install: Install, context: Context
) -> None:
    settings, queue, pauses = PAUSES[module]
    sqs = install(module, settings)
    for receives in (1, 3, 10):
        event = records("{")
        event["Records"][0]["attributes"]["ApproximateReceiveCount"] = str(receives)
        module.lambda_handler(event, context)
    asked = [call.kwargs for call in sqs.change_message_visibility.call_args_list]
    assert [one["VisibilityTimeout"] for one in asked] == pauses
    assert {one["QueueUrl"] for one in asked} == {ENVIRONMENT[queue]}


def test_a_batch_of_nothing_but_poison_is_no_unhandled_error(
    install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    assert failed(handle_notice.lambda_handler(records("{"), context)) == ["m1"]


def test_strangers_are_dropped_without_a_write_and_counted(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(handle_notice, HandleNoticeSettings)
    before = len(story.memory.calls)
    strangers = [warning(f"i-0ff{n:014d}", story) for n in range(50)]
    assert failed(handle_notice.lambda_handler(records(*strangers), context)) == []
    assert story.memory.calls[before:] == ["rows.read"]
    output = capsys.readouterr().out
    assert metric(output, "StrangersIgnored") == 50
    assert metric(output, "NoticesReceived") == 0


@pytest.mark.parametrize("hosts", [50])
def test_a_mass_reclaim_is_one_signal_call(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    fleet = fleet_of(story, 50)
    event = records(*(warning(host, story) for host in fleet))
    assert failed(handle_notice.lambda_handler(event, context)) == []
    assert story.memory.calls.count("signals.preempt") == 1
    assert len(story.memory.signals.sent) == 50


def test_the_signal_leaves_before_anything_is_stored(
    story: Story, install: Install, context: Context
) -> None:
    install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)
    before = len(story.memory.calls)
    handle_notice.lambda_handler(records(warning(host, story)), context)
    assert story.memory.calls[before : before + 2] == ["rows.read", "signals.preempt"]


def test_a_host_that_ssm_cannot_reach_is_replaced_all_the_same(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)
    story.memory.signals.unreachable[host.instance_id] = "InvalidInstanceId"
    assert failed(handle_notice.lambda_handler(records(warning(host, story)), context)) == []
    assert metric(capsys.readouterr().out, "SignalsUndelivered") == 1
    assert len(story.memory.mail.orders) == 1


def test_an_order_that_ec2_did_not_answer_comes_back_alone(
    story: Story, install: Install, context: Context
) -> None:
    install(replace_host, ReplaceHostSettings)
    first = story.submit(needs=Needs(gpus=1))  # unlike the second: they share no plan
    second = story.submit()
    story.memory.fleet.script.append(UnknownOutcomeError("timeout"))
    event = records(
        json.loads(OrderMessage(first, 1, "x").to_json()),
        json.loads(OrderMessage(second, 1, "x").to_json()),
        "nonsense",
    )
    came_back = set(failed(replace_host.lambda_handler(event, context)))
    assert came_back in ({"m1", "m3"}, {"m2", "m3"})
    assert len(story.memory.fleet.instances) == 1


def test_like_orders_share_a_plan_and_its_fate_and_a_redelivery_lands_them_all(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(replace_host, ReplaceHostSettings)
    jobs = [story.submit(), story.submit()]
    story.memory.fleet.script.append(UnknownOutcomeError("timeout"))
    event = records(*(json.loads(OrderMessage(job, 1, "x").to_json()) for job in jobs))

    assert failed(replace_host.lambda_handler(event, context)) == ["m1", "m2"]
    assert failed(replace_host.lambda_handler(event, context)) == []

    first, second = story.memory.fleet.launched
    assert first == second
    assert len(first.members) == 2
    assert len(story.memory.fleet.instances) == 2
    assert metric(capsys.readouterr().out, "HostsLaunched") == 2


def report(host: Host, said: ReportKind, story: Story, /, **data: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        Report(said, host.instance_id, story.time, key=host.key, data=data).to_json()
    )
    return body


def test_a_report_moves_the_job_only_if_the_queue_attests_its_sender(
    story: Story, install: Install, context: Context
) -> None:
    install(record_report, RecordReportSettings)
    (host,) = fleet_of(story, 1)
    assert host.key
    started = report(host, ReportKind.STARTED, story, restored_step=None)
    forged = records(started, sender="AROAEXAMPLE:i-0ff00000000000099")
    record_report.lambda_handler(forged, context)
    assert story.job(host.key.job).status is JobStatus.QUEUED
    honest = records(started, sender=f"AROAEXAMPLE:{host.instance_id}")
    record_report.lambda_handler(honest, context)
    assert story.job(host.key.job).status is JobStatus.RUNNING


def test_a_notice_seen_by_the_host_alone_drains_and_orders(
    story: Story, install: Install, context: Context
) -> None:
    install(record_report, RecordReportSettings)
    (host,) = fleet_of(story, 1)
    seen = report(
        host,
        ReportKind.NOTICED,
        story,
        notice="interruption",
        channel="metadata",
        seconds_left=118.0,
    )
    event = records(seen, sender=f"AROAEXAMPLE:{host.instance_id}")
    assert failed(record_report.lambda_handler(event, context)) == []
    assert host.key
    assert story.job(host.key.job).status is JobStatus.DRAINING
    assert len(story.memory.mail.orders) == 1
    assert not story.memory.signals.sent  # the host knows: it told us


@pytest.mark.parametrize(("status", "undelivered"), [("Success", 0), ("TimedOut", 1)])
def test_what_ssm_says_of_a_command_is_counted_and_never_poison(
    status: str,
    undelivered: int,
    install: Install,
    context: Context,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(record_report, RecordReportSettings)
    event = {
        "source": "aws.ssm",
        "detail-type": "EC2 Command Invocation Status-change Notification",
        "detail": {"command-id": "c", "instance-id": "i-0aa00000000000001", "status": status},
    }
    assert failed(record_report.lambda_handler(records(event), context)) == []
    assert metric(capsys.readouterr().out, "SignalsUndelivered") == undelivered


def test_commits_are_counted_with_their_lead(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(record_report, RecordReportSettings)
    (host,) = fleet_of(story, 1)
    body = report(host, ReportKind.COMMITTED, story, step=4, lead_seconds=100.5)
    record_report.lambda_handler(records(body, sender=f"A:{host.instance_id}"), context)
    output = capsys.readouterr().out
    assert metric(output, "CheckpointsCommitted") == 1
    assert metric(output, "CheckpointLeadSeconds") == 100.5


def test_a_loss_nobody_announced_is_counted_by_the_sweep(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(reconcile, ReconcileSettings)
    (host,) = fleet_of(story, 1)
    host.step(9)
    story.gone(host)
    reconcile.lambda_handler({}, context)
    output = capsys.readouterr().out
    assert metric(output, "LossWithoutNotice") == 1
    assert metric(output, "StepsLost") == 9
    assert metric(output, "SweepsCompleted") == 1


def test_a_loss_that_the_state_change_tells_first_is_counted_there(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(handle_notice, HandleNoticeSettings)
    (host,) = fleet_of(story, 1)
    story.gone(host)
    bell = warning(host, story) | {
        "detail-type": "EC2 Instance State-change Notification",
        "detail": {"instance-id": host.instance_id, "state": "terminated"},
    }
    handle_notice.lambda_handler(records(bell), context)
    assert metric(capsys.readouterr().out, "LossWithoutNotice") == 1


def test_a_sweep_that_failed_in_part_is_an_error_and_no_completed_sweep(
    story: Story, install: Install, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    install(reconcile, ReconcileSettings)
    story.memory.fleet.blind = True
    with pytest.raises(ExceptionGroup, match="parts of the sweep failed"):
        reconcile.lambda_handler({}, context)
    assert metric(capsys.readouterr().out, "SweepsCompleted") == 0


@pytest.mark.parametrize(
    ("sender", "instance"),
    [
        ("AROA3XFRBF535PLBIFPI4:i-0123456789abcdef0", "i-0123456789abcdef0"),
        ("AIDA3XFRBF535PLBIFPI4", "unattested:AIDA3XFRBF535PLBIFPI4"),
        ("AROA3XFRBF535PLBIFPI4:somebody", "unattested:AROA3XFRBF535PLBIFPI4:somebody"),
        ("", "unattested:"),
    ],
)
def test_the_sender_id_names_the_instance_or_nobody(sender: str, instance: str) -> None:
    assert attested_instance({"attributes": {"SenderId": sender}}) == instance


@pytest.mark.parametrize(
    "kind",
    [HandleNoticeSettings, ReplaceHostSettings, RecordReportSettings, ReconcileSettings],
)
def test_a_missing_setting_is_named(kind: type[Settings]) -> None:
    for name, field in kind.model_fields.items():
        if field.is_required():
            without = {k: v for k, v in ENVIRONMENT.items() if k != name.upper()}
            with pytest.raises(ValidationError, match=name.upper()):
                kind.model_validate(without)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"quarantined": "jobs/j/manifests/1-400.json", "reason": "8 bytes short"},
            "checkpoint jobs/j/manifests/1-400.json set aside: 8 bytes short",
        ),
        (
            {"bad_step": 400, "reason": "checkpoint-400: the optimizer is missing"},
            "checkpoint of step 400 not sent: checkpoint-400: the optimizer is missing",
        ),
    ],
    ids=["set-aside", "not-sent"],
)
def test_a_checkpoint_that_was_refused_is_told_in_the_timeline(
    story: Story, install: Install, context: Context, said: dict[str, Any], told: str
) -> None:
    install(record_report, RecordReportSettings)
    (host,) = fleet_of(story, 1)
    assert host.key
    body = report(host, ReportKind.PROGRESS, story, **said)
    record_report.lambda_handler(records(body, sender=f"A:{host.instance_id}"), context)
    assert told in [event.text for event in story.memory.jobs.events(host.key.job)]
