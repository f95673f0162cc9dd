"""What steps can do beyond a host's notice: each through the door that people and AWS use."""

from __future__ import annotations

import json
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from reprieve_cli.drill import report
from tests.drill.conftest import Theatre

HEAD = """
clock_scale: 0.01
jobs:
  - {name: train, command: [python, train.py]}
"""


def host(instance_id: str, zone: str, state: str = "running") -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "type": "g5.xlarge",
        "zone": zone,
        "market": "spot",
        "state": state,
        "pid": None,
        "launched_at": "2026-03-01T10:00:00+00:00",
        "price": 0.4,
        "tags": {},
    }


def with_hosts(theatre: Theatre, *hosts: dict[str, Any]) -> None:
    """Let *hosts* be there once a fault was scripted: what was there before isn't the drill's."""
    theatre.world.on["faults"] = lambda: theatre.world.answers.update(hosts=list(hosts))


LAUNCH = "- fault: {service: s3, action: '*', then: {duplicate: 1}}\n"


# ---------------------------------------------------------------------- hosts
@pytest.mark.parametrize(
    ("which", "acted_on"),
    [("every: true", ["i-1", "i-2"]), ("zone: us-east-1b", ["i-2"]), ("nth: 3", ["i-3"])],
)
def test_an_action_reaches_all_hosts_that_are_meant(
    theatre: Theatre, which: str, acted_on: list[str]
) -> None:
    with_hosts(
        theatre,
        host("i-1", "us-east-1a"),
        host("i-2", "us-east-1b"),
        host("i-3", "us-east-1b", "terminated"),
    )
    theatre.play(f"{HEAD}steps:\n  {LAUNCH}  - host: {{{which}, do: crash}}\nexpect: {{}}")
    asked = [path.split("/") for _, path, _ in theatre.world.sent if path.startswith("hosts/")]
    assert [(one, do) for _, one, do in asked] == [(one, "crash") for one in acted_on]


def test_a_zone_without_hosts_ends_the_drill(theatre: Theatre) -> None:
    played = theatre.play(f"{HEAD}steps: [{{host: {{zone: us-east-1a, do: kill}}}}]\nexpect: {{}}")
    assert played.stuck.endswith("every host in us-east-1a: there is none now")


@pytest.mark.parametrize(("said", "sent"), [("recycle", "recycle"), ("null", "")])
def test_a_notice_may_say_any_word_or_none(theatre: Theatre, said: str, sent: str) -> None:
    with_hosts(theatre, host("i-1", "us-east-1a"))
    theatre.play(
        f"{HEAD}steps:\n  {LAUNCH}  - host: {{nth: 1, do: notice, action: {said}}}\nexpect: {{}}"
    )
    assert theatre.world.sent[-1][2]["action"] == sent


# ---------------------------------------------------------------------- jobs
def test_a_job_is_submitted_when_its_step_comes(theatre: Theatre) -> None:
    played = theatre.play(
        """
clock_scale: 0.01
jobs:
  - {name: first, command: [python, train.py]}
  - {name: second, command: [python, train.py]}
steps:
  - job: {name: first, do: cancel}
  - job: {name: second, do: submit}
expect:
  jobs: {first: {status: CANCELLED}, second: {status: QUEUED}}
"""
    )
    assert played.holds, "\n".join(report.lines(played))
    said = [line.text for line in played.timeline if line.who == "drill"]
    assert [text.partition(" as ")[0] for text in said if "submitted" in text] == [
        "first submitted",
        "second submitted",
    ]


def test_a_job_that_no_step_reached_was_never_submitted(theatre: Theatre) -> None:
    played = theatre.play(
        HEAD
        + """
steps:
  - when: {job: train, status: RUNNING}
    job: {name: train, do: submit}
expect: {jobs: {train: {status: SUCCEEDED}}}
"""
    )
    assert "waited 0 s in vain" in played.stuck
    assert [(f.seen, f.holds) for f in played.findings] == [("never submitted", False)]


def test_acting_on_a_job_before_its_time_ends_the_drill(theatre: Theatre) -> None:
    played = theatre.play(
        f"{HEAD}steps:\n  - job: {{name: train, do: cancel}}\n"
        "  - job: {name: train, do: submit}\nexpect: {}"
    )
    assert played.stuck.endswith("train isn't submitted yet")


# ---------------------------------------------------------------------- objects
@pytest.mark.parametrize(
    ("do", "left"),
    [
        ("do: truncate, bytes: 8", b"0123"),
        ("do: zero", b""),
        ("do: damage", bytes([ord("0") ^ 0xFF]) + b"123456789ab"),
    ],
)
def test_a_file_of_the_newest_checkpoint_is_spoilt(theatre: Theatre, do: str, left: bytes) -> None:
    def save() -> None:
        started = theatre.start()
        theatre.save(started, 40, weights=b"older")
        theatre.save(started, 80, weights=b"0123456789ab")

    theatre.world.on["faults"] = save
    played = theatre.play(
        f"{HEAD}steps:\n  {LAUNCH}  - object: {{job: train, file: weights, {do}}}\nexpect: {{}}"
    )
    assert not played.stuck
    kept = {k.split("/")[-2]: v for k, v in theatre.objects.bodies.items() if "/data/" in k}
    assert kept == {"save-40": b"older", "save-80": left}


def test_a_stray_object_can_lie_beside_them(theatre: Theatre) -> None:
    theatre.play(
        f"{HEAD}steps: [{{object: {{job: train, do: put, key: 'jobs/${{job:train}}/manifests/x', "
        "body: '{}'}}]\nexpect: {}"
    )
    assert theatre.objects.bodies == {f"jobs/{theatre.job_id}/manifests/x": b"{}"}


# ---------------------------------------------------------------------- messages and events
def test_messages_go_to_the_queue_each_with_its_number(theatre: Theatre) -> None:
    theatre.play(
        HEAD
        + """
steps:
  - message: {queue: intake, times: 12, body: {detail: {instance-id: "i-${n}"}}}
  - message: {queue: work, body: {v: 1, job: "${job:train}", attempt: "${attempt:train}"}}
  - message: {queue: orders, body: {token: "${token:train}"}}
expect: {}
"""
    )
    (job,) = theatre.story.memory.job_rows.values()
    sent = theatre.queues.sent
    strangers = [json.loads(body)["detail"]["instance-id"] for body in sent["https://queue/intake"]]
    assert strangers == [f"i-{number:017x}" for number in range(1, 13)]
    work = json.loads(sent[theatre.story.pool.work_queue_url][0])
    assert work == {"v": 1, "job": job.id, "attempt": "1"}
    assert json.loads(sent["https://queue/orders"][0]) == {"token": job.token}


def test_times_in_an_event_are_those_of_the_scaled_clock(theatre: Theatre) -> None:
    theatre.world.answers["events"] = {"delivered": [1]}
    theatre.play(
        HEAD
        + """
steps:
  - event: {body: {time: "${now}", detail: {startTime: "${rfc1123+360000}", n: "${now-360000}"}}}
expect: {}
"""
    )
    ((_, _, body),) = theatre.world.sent
    event = body["event"]
    now = datetime.fromisoformat(event["time"])
    assert abs((parsedate_to_datetime(event["detail"]["startTime"]) - now).seconds - 3600) <= 1
    assert event["detail"]["startTime"].endswith(" GMT")
    assert abs((now - datetime.fromisoformat(event["detail"]["n"])).seconds - 3600) <= 1


# ---------------------------------------------------------------------- the world
def test_the_worlds_lags_are_scaled_and_its_quotas_are_not(theatre: Theatre) -> None:
    theatre.play(
        HEAD
        + """
world: {registration_seconds: 60}
steps:
  - world: {spot_vcpus: 8, boot_seconds: 10}
expect: {}
"""
    )
    assert [body for _, _, body in theatre.world.sent] == [
        {"settings": {"registration_seconds": 0.6}},
        {"settings": {"spot_vcpus": 8, "boot_seconds": 0.1}},
    ]


def test_a_fault_may_do_one_thing_after_the_other(theatre: Theatre) -> None:
    played = theatre.play(
        HEAD
        + """
steps:
  - fault:
      service: imds
      action: spot/instance-action
      key: "x/*"
      then: [{error: {status: 401}}, {delay_seconds: 100, drop: before}, {pass: true}]
expect: {}
"""
    )
    ((_, _, sent),) = theatre.world.sent
    assert sent["key"] == "x/*"
    assert sent["then"] == [
        {"error": {"status": 401}},
        {"delay_seconds": 1.0, "drop": "before"},
        {"pass": True},
    ]
    (said,) = [line.text for line in played.timeline if line.text.startswith("step")]
    assert said.endswith(": error 401, delay seconds 100 and drop before, none")
