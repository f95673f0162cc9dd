"""What the real handler makes of each real payload, for hosts of ours and for others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from functions.handle_notice import handler as handle_notice
from functions.record_report import handler as record_report
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.notice import NoticeKind
from reprieve.protocol import ReportKind
from tests.functions.test_handlers import metric
from tests.fuzz.stage import Stage, on_stage

EVENTS = Path(__file__).parent.parent / "events"
RESERVATION = "cr-0123456789abcdef0"
# The host named by every payload in tests/events.
NAMED = "i-0aa00000000000001"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with on_stage() as stage:
        yield stage


def payload(name: str, stage: Stage, **envelope: object) -> dict[str, Any]:
    """Return a real payload about the taken host, announced now."""
    text = (EVENTS / f"{name}.json").read_text()
    event: dict[str, Any] = json.loads(text.replace(NAMED, stage.taken.instance_id))
    return event | {"time": stage.story.time.isoformat()} | envelope


def with_times(event: dict[str, Any], stage: Stage, seconds: float) -> dict[str, Any]:
    """Return *event* with the time that it announces *seconds* ahead."""
    then = (stage.story.time + timedelta(seconds=seconds)).isoformat()
    for name in ("instance-termination-time", "startTime", "deadline"):
        if name in event["detail"]:
            event["detail"][name] = then
    event["detail"].pop("endTime", None)
    return event


def state(stage: Stage) -> HostState:
    return stage.story.memory.host_rows[stage.taken.instance_id].state


def status(stage: Stage) -> JobStatus:
    assert stage.taken.key
    return stage.story.job(stage.taken.key.job).status


def told(stage: Stage) -> list[str]:
    assert stage.taken.key
    return [event.text for event in stage.story.memory.jobs.events(stage.taken.key.job)]


@pytest.mark.parametrize(
    "name",
    [
        "spot-interruption",
        "spot-interruption-by-fis",
        "capacity-reservation-interruption",
        "interruptible-reservation-interruption",
        "scale-in",
        "host-drain",
        "health-scheduled-change",
    ],
)
def test_a_verdict_drains_its_host_and_orders_a_replacement(name: str, stage: Stage) -> None:
    assert stage.send(handle_notice, with_times(payload(name, stage), stage, 110)) == []
    assert state(stage) is HostState.DRAINING
    assert status(stage) is JobStatus.DRAINING
    assert len(stage.story.memory.mail.orders) == 1
    assert [n.instance_id for n in stage.story.memory.signals.sent] == [stage.taken.instance_id]


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate", "recycle", None])
def test_every_word_of_an_interruption_drains(action: str | None, stage: Stage) -> None:
    event = payload("spot-interruption", stage)
    event["detail"]["instance-action"] = action
    stage.story.later(2)  # the event takes its time; hibernation has begun by then
    assert stage.send(handle_notice, event) == []
    assert state(stage) is HostState.DRAINING
    assert len(stage.story.memory.mail.orders) == 1


@pytest.mark.parametrize("name", ["rebalance", "health-scheduled-change"])
def test_advice_and_maintenance_days_ahead_leave_the_job_where_it_is(
    name: str, stage: Stage
) -> None:
    days = timedelta(days=3).total_seconds()
    assert stage.send(handle_notice, with_times(payload(name, stage), stage, days)) == []
    assert state(stage) is HostState.READY
    assert status(stage) is not JobStatus.DRAINING
    assert not stage.story.memory.mail.orders
    assert len(stage.story.memory.signals.sent) == 1  # for the extra checkpoint


def test_maintenance_that_comes_near_drains_after_all(stage: Stage) -> None:
    days = timedelta(days=3)
    event = with_times(payload("health-scheduled-change", stage), stage, days.total_seconds())
    stage.send(handle_notice, event)
    stage.story.time += days - timedelta(minutes=10)
    assert stage.send(handle_notice, event) == []
    assert state(stage) is HostState.DRAINING
    assert len(stage.story.memory.mail.orders) == 1


def test_a_state_change_is_believed_only_if_ec2_says_so(stage: Stage) -> None:
    event = payload("state-change-terminated", stage)
    assert stage.send(handle_notice, event) == []
    assert state(stage) is HostState.READY
    stage.story.gone(stage.taken)
    assert stage.send(handle_notice, event) == []
    assert state(stage) is HostState.GONE
    assert stage.taken.key
    assert stage.story.job(stage.taken.key.job).attempt == 2


@pytest.mark.parametrize(
    "envelope",
    [{"account": "444455556666"}, {"region": "eu-west-1"}, {"replay-name": "last-week"}],
    ids=["account", "region", "replayed"],
)
@pytest.mark.parametrize("name", ["spot-interruption", "rebalance", "scale-in"])
def test_what_is_foreign_or_replayed_is_one_line_of_the_timeline_and_nothing_else(
    name: str, envelope: dict[str, str], stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    before, lines = stage.rows(), told(stage)
    assert stage.send(handle_notice, payload(name, stage, **envelope)) == []
    after = stage.rows()
    assert len(told(stage)) == len(lines) + 1
    assert {k: v for k, v in after.items() if k != "event_rows"} == {
        k: v for k, v in before.items() if k != "event_rows"
    }
    output = capsys.readouterr().out
    assert metric(output, "NoticesForeign") == 1
    assert metric(output, "NoticesReceived") == 0


def test_a_stale_warning_is_told_and_asks_ec2(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    event = payload("spot-interruption", stage)
    stage.story.later(121)
    assert stage.send(handle_notice, event) == []
    assert state(stage) is HostState.READY
    assert status(stage) is not JobStatus.DRAINING
    assert not stage.story.memory.mail.orders
    assert not stage.story.memory.signals.sent
    assert any("interruption notice" in text for text in told(stage))
    assert metric(capsys.readouterr().out, "NoticesStale") == 1


def test_the_end_of_a_capacity_block_drains_our_hosts_in_it(stage: Stage) -> None:
    memory = stage.story.memory
    memory.fleet.reservations[RESERVATION] = {stage.taken.instance_id}
    event = payload("capacity-block-expiration", stage)
    del event["detail"]["end-date"]
    assert stage.send(handle_notice, event, stage.warning(stage.spare)) == []
    taken = memory.host_rows[stage.taken.instance_id]
    assert taken.state is HostState.DRAINING
    assert taken.notice
    assert taken.notice.kind is NoticeKind.RESERVATION
    assert taken.notice.reclaimed_at == stage.story.time + timedelta(minutes=10)
    assert len(memory.mail.orders) == 2


def test_a_capacity_block_without_hosts_of_ours_changes_nothing(stage: Stage) -> None:
    before = stage.rows()
    event = payload("capacity-block-expiration", stage)
    del event["detail"]["end-date"]
    assert stage.send(handle_notice, event) == []
    assert stage.rows() == before


def test_a_capacity_block_that_ec2_cannot_speak_of_comes_back_and_delays_nobody(
    stage: Stage,
) -> None:
    stage.story.memory.fleet.blind = True
    event = payload("capacity-block-expiration", stage)
    del event["detail"]["end-date"]
    assert stage.send(handle_notice, event, stage.warning(stage.taken)) == ["m1"]
    assert state(stage) is HostState.DRAINING


def test_a_foreign_capacity_block_is_counted_and_nobody_is_asked(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(stage.story.memory.calls)
    foreign = payload("capacity-block-expiration", stage, account="444455556666")
    assert stage.send(handle_notice, foreign) == []
    assert "fleet.in_reservation" not in stage.story.memory.calls[before:]
    assert metric(capsys.readouterr().out, "NoticesForeign") == 1


@pytest.mark.parametrize("name", ["ami-state-change", "health-issue", "scale-in-test"])
def test_what_announces_nothing_is_no_notice(
    name: str, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stage.rows()
    assert stage.send(handle_notice, payload(name, stage)) == []
    assert stage.rows() == before
    output = capsys.readouterr().out
    assert metric(output, "NoticesReceived") == 0
    assert metric(output, "EventsUnknown") == (1 if name == "ami-state-change" else 0)


def test_a_change_that_is_over_is_told_and_frees_a_host_that_only_waits(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    days = timedelta(days=3)
    event = with_times(payload("health-scheduled-change", stage), stage, days.total_seconds())
    stage.send(handle_notice, event)
    assert stage.send(handle_notice, payload("health-closed", stage)) == []

    host = stage.story.memory.host_rows[stage.taken.instance_id]
    assert (host.state, host.notice) == (HostState.READY, None)
    assert sum("maintenance notice" in text for text in told(stage)) == 2
    assert metric(capsys.readouterr().out, "NoticesForeign") == 0


def test_what_is_over_calls_nobody_back_who_drains_already(stage: Stage) -> None:
    event = with_times(payload("health-scheduled-change", stage), stage, 300)
    stage.send(handle_notice, event)
    assert stage.send(handle_notice, payload("health-closed", stage)) == []
    assert state(stage) is HostState.DRAINING


def test_a_host_that_saw_it_called_off_is_believed(stage: Stage) -> None:
    days = timedelta(days=3)
    event = with_times(payload("health-scheduled-change", stage), stage, days.total_seconds())
    stage.send(handle_notice, event)
    said = {"notice": "maintenance", "channel": "metadata", "over": True}
    over = stage.report(ReportKind.NOTICED, stage.taken, **said)
    assert stage.send(record_report, over, sender=stage.taken.instance_id) == []
    assert stage.story.memory.host_rows[stage.taken.instance_id].notice is None
