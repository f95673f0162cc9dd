"""
Whatever arrives: no traceback, no write for what is foreign or malformed, nobody else held up.

The real handlers, one whole stack in memory behind them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.handle_notice import handler as handle_notice
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from infra.constructs.state import INTAKE, ORDERS, REPORTS
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import LeaseKey
from reprieve.protocol import OrderMessage, ReportKind
from tests.fuzz.stage import Stage, on_stage
from tests.fuzz.strategies import FUZZ, bodies
from tests.usecases.story import Host

pytestmark = pytest.mark.deep

EVENTS = [
    json.loads(path.read_text())
    for path in sorted((Path(__file__).parent.parent / "events").glob("*.json"))
]
STRANGER = "i-0ff00000000000099"
COMMAND = {
    "source": "aws.ssm",
    "detail-type": "EC2 Command Invocation Status-change Notification",
    "detail": {"command-id": "c", "instance-id": STRANGER, "status": "TimedOut"},
}
RECEIPT = {
    "cause": "notice",
    "exit_code": 75,
    "step": 40,
    "committed_step": 40,
    "manifest": "jobs/job-1/manifests/000001-000000000040.json",
    "accepted_s": 0.1,
    "saved_s": 3.5,
    "committed_s": 9.0,
    "released_s": 9.5,
    "upload_s": 5.5,
    "bytes": 10**9,
    "request": "interruption:i-0aa00000000000001:1",
    "lead_seconds": 90.0,
}
NOTICED = {"notice": "interruption", "channel": "metadata", "seconds_left": 118.0}
ORDER = {"v": 1, "job": "job-99999999", "attempt": 1, "reason": "requeued", "pool": "small"}


def reports(stage: Stage, host: Host) -> list[dict[str, Any]]:
    """Return real reports of *host*: those with many facts, and those that act."""
    return [
        stage.report(ReportKind.INTERRUPTED, host, **RECEIPT),
        stage.report(ReportKind.NOTICED, host, **NOTICED),
        stage.report(ReportKind.STARTED, host, restored_step=None),
        stage.report(ReportKind.PROGRESS, host, quarantined="jobs/m.json", reason="short"),
        stage.report(ReportKind.LEAVING, host, reason="no work"),
    ]


@FUZZ
@given(body=bodies(*EVENTS))
def test_no_event_of_a_stranger_leaves_a_trace(body: str) -> None:
    """The hosts in these payloads are nobody's here, so whatever is wrong with one, all stays."""
    with on_stage() as stage:
        before = stage.rows()
        stage.send(handle_notice, body)
        assert stage.rows() == before


@FUZZ
@given(data=st.data())
def test_no_event_escapes_and_none_holds_up_its_neighbours(data: st.DataObject) -> None:
    with on_stage() as stage:
        body = data.draw(bodies(stage.warning(stage.spare)))
        failed = stage.send(handle_notice, body, stage.warning(stage.taken), body)
        assert "m2" not in failed
        assert ("m1" in failed) == ("m3" in failed)
        rows = stage.story.memory.host_rows
        assert rows[stage.taken.instance_id].state is HostState.DRAINING


@FUZZ
@given(data=st.data())
def test_what_could_not_be_read_is_not_acted_on(data: st.DataObject) -> None:
    with on_stage() as stage:
        before = stage.rows()
        body = data.draw(bodies(stage.warning(stage.spare)))
        if stage.send(handle_notice, body):
            assert stage.rows() == before


@FUZZ
@given(data=st.data())
def test_no_report_escapes_and_none_holds_up_its_neighbours(data: st.DataObject) -> None:
    with on_stage() as stage:
        body = data.draw(bodies(*reports(stage, stage.spare), COMMAND))
        noticed = stage.report(ReportKind.NOTICED, stage.taken, **NOTICED)
        failed = stage.send(record_report, body, noticed)
        assert "m2" not in failed
        rows = stage.story.memory.host_rows
        assert rows[stage.taken.instance_id].state is HostState.DRAINING


@FUZZ
@given(data=st.data())
def test_no_report_writes_for_a_host_that_the_queue_does_not_attest(data: st.DataObject) -> None:
    with on_stage() as stage:
        before = stage.rows()
        body = data.draw(bodies(*reports(stage, stage.spare), COMMAND))
        stage.send(record_report, body, sender=STRANGER)
        assert stage.rows() == before


@FUZZ
@given(data=st.data())
def test_a_host_s_own_report_spoilt_never_ends_an_attempt_or_touches_another_job(
    data: st.DataObject,
) -> None:
    """Only the lease could: a report, however wrong, is a bell."""
    with on_stage() as stage:
        assert stage.taken.key
        assert stage.spare.key
        other = stage.story.job(stage.taken.key.job)
        body = data.draw(bodies(*reports(stage, stage.spare)))
        stage.send(record_report, body, sender=stage.spare.instance_id)
        assert stage.story.job(other.id) == other
        assert stage.story.job(stage.spare.key.job).attempt == 1
        assert stage.story.job(stage.spare.key.job).status is not JobStatus.SUCCEEDED


@FUZZ
@given(body=bodies(ORDER))
def test_no_order_escapes_and_none_for_a_foreign_job_buys_a_host(body: str) -> None:
    with on_stage() as stage:
        before = stage.rows()
        stage.send(replace_host, body)
        assert stage.rows() == before


@FUZZ
@given(body=bodies(ORDER))
def test_no_order_holds_up_its_neighbours(body: str) -> None:
    with on_stage() as stage:
        job = stage.story.submit()
        order = json.loads(OrderMessage(job, 1, "submitted").to_json())
        assert "m2" not in stage.send(replace_host, body, order)
        assert len(stage.story.memory.fleet.instances) == 3


# Poison


def poison(stage: Stage, module: Any) -> tuple[object, object]:
    """Return a body that no retry mends, and a good one, of *module*'s queue."""
    if module is handle_notice:
        return stage.warning(Host(stage.story, "not-an-instance")), stage.warning(stage.taken)
    if module is record_report:
        bad = stage.report(ReportKind.NOTICED, stage.taken, notice="no such kind")
        return bad, stage.report(ReportKind.NOTICED, stage.taken, **NOTICED)
    job = stage.story.submit()
    return ORDER | {"attempt": "first"}, json.loads(OrderMessage(job, 1, "x").to_json())


@pytest.mark.parametrize(
    ("module", "queue"),
    [(handle_notice, INTAKE), (record_report, REPORTS), (replace_host, ORDERS)],
    ids=["intake", "reports", "orders"],
)
def test_poison_lands_in_the_dead_letter_queue_after_bounded_tries(module: Any, queue: Any) -> None:
    """SQS as it is configured: what fails comes back alone, and moves on at `receives` tries."""
    with on_stage() as stage:
        bad, good = poison(stage, module)
        waiting: dict[str, tuple[object, int]] = {"bad": (bad, 0), "good": (good, 0)}
        dead, rounds = [], 0
        while waiting:
            rounds += 1
            for name, (body, receives) in list(waiting.items()):
                if receives == queue.receives:
                    dead.append(name)
                    del waiting[name]
                else:
                    waiting[name] = (body, receives + 1)
            order = list(waiting)
            failed = stage.send(module, *(waiting[name][0] for name in order)) if order else []
            waiting = {n: waiting[n] for i, n in enumerate(order, start=1) if f"m{i}" in failed}
            assert "good" not in waiting, "the neighbour of poison passes at once"
        assert dead == ["bad"]
        assert rounds == queue.receives + 1


def test_a_batch_of_nothing_but_poison_is_no_unhandled_error() -> None:
    with on_stage() as stage:
        for module in (handle_notice, record_report, replace_host):
            bad, _ = poison(stage, module)
            assert stage.send(module, bad, "{", "") == ["m1", "m2", "m3"]


def test_a_report_about_a_lease_that_is_not_its_sender_s_is_refused() -> None:
    with on_stage() as stage:
        before = stage.rows()
        stolen = stage.report(ReportKind.INTERRUPTED, stage.spare, **RECEIPT)
        key = stage.taken.key
        assert key
        stage.send(
            record_report,
            stolen | {"job": key.job, "attempt": key.attempt, "token": key.token},
            stolen | {"job": "no-such-job"},
            stolen | {"token": LeaseKey("j", 1, "other").token},
            sender=stage.spare.instance_id,
        )
        assert stage.rows() == before
