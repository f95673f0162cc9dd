"""A drill does its steps in their order, and says what it found instead of what it expected."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.lease import Cause, Outcome
from reprieve_cli.drill import report
from reprieve_cli.drill.engine import Patience
from tests.drill.conftest import Theatre

HEAD = """
clock_scale: 0.01
jobs:
  - {name: train, command: [python, train.py]}
"""
MARKET = {
    "pools": [
        {"type": "g5.xlarge", "zone": "us-east-1a"},
        {"type": "g5.xlarge", "zone": "us-east-1b"},
    ],
    "on_demand": [{"type": "g5.xlarge", "zone": "us-east-1a"}],
}


def test_steps_are_done_in_their_order_on_the_host_that_is_meant(theatre: Theatre) -> None:
    hosts = []
    theatre.world.answers["events"] = {"delivered": [1, 1]}
    theatre.world.on["faults"] = lambda: hosts.append(theatre.start())
    theatre.play(
        HEAD
        + """
steps:
  - fault: {service: s3, action: Put*, seconds: 100, then: {delay_seconds: 1}}
  - when: {job: train, status: RUNNING, step: 0}
    host: {of: train, do: notice, channels: [event], in: 60}
  - host: {of: train, do: cut, what: metadata, seconds: 50}
  - event: {body: {detail: {instance-id: "${host:train}", job: "${job:train}"}}, times: 2}
expect: {}
"""
    )
    instance, job_id = hosts[0].instance_id, theatre.job_id
    assert theatre.world.sent == [
        (
            "POST",
            "faults",
            {
                "service": "s3",
                "action": "Put*",
                "then": [{"delay_seconds": 0.01}],  # of the drill's clock
                "seconds": 1.0,
            },
        ),
        (
            "POST",
            f"hosts/{instance}/notice",
            {"action": "terminate", "channels": ["event"], "in_seconds": 0.6, "reclaim": True},
        ),
        ("POST", f"hosts/{instance}/cut", {"what": "metadata", "seconds": 0.5}),
        (
            "POST",
            "events",
            {"event": {"detail": {"instance-id": instance, "job": job_id}}, "times": 2},
        ),
    ]


def test_only_what_is_listed_is_for_sale(theatre: Theatre) -> None:
    theatre.play(
        HEAD
        + """
pools:
  - {type: g5.xlarge, zone: us-east-1a, price: 0.4, capacity: 1, estimate: 9}
  - {type: g6.xlarge, zone: us-east-1b, market: on-demand}
  - {type: g6.xlarge, zone: us-east-1c, market: reserved, reservation: cr-1, capacity: 2}
expect: {}
"""
    )
    assert theatre.world.sent == [
        (
            "PUT",
            "pools",
            {
                "pools": [
                    {
                        "type": "g5.xlarge",
                        "zone": "us-east-1a",
                        "capacity": 1,
                        "price": 0.4,
                        "estimate": 9,
                    }
                ],
                "on_demand": [{"type": "g6.xlarge", "zone": "us-east-1b", "capacity": None}],
                "reserved": [
                    {
                        "type": "g6.xlarge",
                        "zone": "us-east-1c",
                        "capacity": 2,
                        "reservation": "cr-1",
                    }
                ],
            },
        )
    ]


def test_a_change_of_the_market_reaches_every_pool_that_it_means(theatre: Theatre) -> None:
    theatre.world.answers["pools"] = MARKET
    played = theatre.play(
        HEAD
        + """
steps:
  - pools: [{zone: us-east-1a, capacity: 0}]
  - pools: [{zone: us-east-1f, capacity: 0}]
expect: {}
"""
    )
    changed = [(body["zone"], body["market"]) for _, _, body in theatre.world.sent]
    assert changed == [("us-east-1a", "spot"), ("us-east-1a", "on-demand")]
    assert played.stuck == (
        "step 2 (1 change of the market): no capacity pool has that type, zone and market"
    )


def test_a_condition_that_never_comes_ends_the_drill_and_is_reported(theatre: Theatre) -> None:
    played = theatre.play(
        HEAD
        + """
steps:
  - when: {job: train, status: RUNNING}
    host: {of: train, do: kill}
expect: {jobs: {train: {status: SUCCEEDED, attempt: 1}}}
"""
    )
    assert not played.holds
    assert played.stuck == (
        "step 1 (kill the host of train): waited 0 s in vain for job train: RUNNING"
    )
    text = list(report.lines(played))
    assert text[:4] == [
        "BROKEN  job train: status",
        "          expected  SUCCEEDED",
        "          seen      QUEUED",
        "kept    job train: attempt: 1",
    ]
    assert any("submitted to pool" in line for line in text)  # the timeline around it
    assert text[-1].startswith("story is BROKEN: 1 of 2 expectations kept, ")


def test_a_host_that_isnt_there_ends_the_drill(theatre: Theatre) -> None:
    played = theatre.play(f"{HEAD}steps: [{{host: {{nth: 2, do: kill}}}}]\nexpect: {{}}")
    assert played.stuck == "step 1 (kill host number 2): host number 2: only 0 were launched so far"


def test_a_refusal_of_the_world_ends_the_drill(theatre: Theatre) -> None:
    played = theatre.play(f"{HEAD}steps: [{{host: {{of: train, do: kill}}}}]\nexpect: {{}}")
    assert "it has none now" in played.stuck


def test_cancel_goes_through_the_use_case(theatre: Theatre) -> None:
    played = theatre.play(
        HEAD
        + """
steps: [{job: {name: train, do: cancel}}]
expect: {jobs: {train: {status: CANCELLED, never: [finished], counters: {crashes: 0}}}}
"""
    )
    assert played.holds


def test_calls_and_instances_are_counted_since_the_start(theatre: Theatre) -> None:
    call = {
        "service": "ec2",
        "action": "CreateFleet",
        "caller": "reprieve-replace_host",
        "resources": ["lt-1"],
        "error": None,
    }
    host: dict[str, Any] = {
        "instance_id": "i-1",
        "type": "g5.xlarge",
        "zone": "us-east-1a",
        "market": "spot",
        "state": "terminated",
        "pid": None,
        "launched_at": "2026-03-01T10:00:00+00:00",
        "price": 0.4,
        "tags": {},
    }

    def happen() -> None:
        theatre.world.answers["calls"] = [
            call | {"n": 8},
            call | {"n": 9, "error": "Throttling"},
            call | {"n": 10, "caller": None},
        ]
        theatre.world.answers["hosts"] = [host, host | {"instance_id": "i-2", "state": "running"}]

    theatre.world.answers["hosts"] = [host]
    theatre.world.on["faults"] = happen
    played = theatre.play(
        HEAD
        + """
steps: [{fault: {service: s3, action: "*", then: {duplicate: 1}}}]
expect:
  calls:
    - {service: ec2, action: Create*, count: 3}
    - {service: ec2, action: CreateFleet, caller: "reprieve-*", error: ""}
    - {service: ec2, action: CreateFleet, error: "Throttl*", count: {at_most: 1}}
    - {service: ssm, action: "*", count: 0}
    - {service: ec2, action: CreateFleet, resource: lt-2, count: 1}
  instances: {launched: 1, alive: 1}
"""
    )
    broken = [finding.what for finding in played.findings if not finding.holds]
    assert broken == ["calls ec2 CreateFleet on lt-2"]


RESUMED = """
clock_scale: 0.01
jobs:
  - name: train
    command: [python, train.py]
    reference: [PYTHON, -c, "open('weights', 'wb').write(b'final')"]
steps:
  - fault: {service: s3, action: "*", then: {duplicate: 1}}
expect:
  jobs:
    train:
      status: SUCCEEDED
      reason: finished
      attempt: 2
      steps_lost: 2
      checkpoint_step: 60
      counters: {interruptions: 1}
      attempts:
        - {cause: notice, restored_step: null, last_step: 42}
        - {outcome: finished, restored_step: 40}
      resumes_proven: true
      step_log: steps
      identical: weights
      events: [submitted, was taken back, replacement, ended]
""".replace("PYTHON", sys.executable)


def log(*parts: tuple[int, range]) -> bytes:
    made = [(attempt, step) for attempt, steps in parts for step in steps]
    return "".join(f'{{"attempt": {a}, "step": {s}}}\n' for a, s in made).encode()


def live(
    theatre: Theatre,
    *,
    weights: bytes = b"final",
    steps: bytes = log((1, range(1, 41)), (2, range(41, 61))),
    damage: bool = False,
) -> None:
    """Run the job through one interruption at step 42, saved at 40, to its end at 60."""
    first = theatre.start()
    base = theatre.save(first, 40, weights=b"half way")
    first.step(42, committed_step=40, committed_manifest=base)
    theatre.end(first, Outcome.INTERRUPTED, Cause.NOTICE)
    theatre.take_back(first)
    second = theatre.start(base=base, restored=40)
    if damage:
        theatre.objects.bodies.update(
            {k: b"otherlen" for k in theatre.objects.bodies if "/data/" in k}
        )
    theatre.save(second, 60, weights=weights, steps=steps)
    theatre.end(second, Outcome.FINISHED, Cause.DONE)


def broken(theatre: Theatre, **told: object) -> list[str]:
    theatre.world.on["faults"] = lambda: live(theatre, **told)  # type: ignore[arg-type]
    return [finding.what for finding in theatre.play(RESUMED).findings if not finding.holds]


def test_a_whole_story_is_kept(theatre: Theatre) -> None:
    assert broken(theatre) == []


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"weights": b"others"}, "weights identical"),
        ({"steps": log((1, range(1, 41)), (2, range(42, 61)))}, "step log"),
        ({"steps": log((1, range(1, 44)), (2, range(44, 61)))}, "step log"),
        ({"steps": log((1, range(1, 41)), (2, range(41, 60)))}, "step log"),
        ({"damage": True}, "resumes proven"),
    ],
)
def test_evidence_that_doesnt_fit_breaks_the_expectation(
    theatre: Theatre, told: dict[str, object], found: str
) -> None:
    assert broken(theatre, **told) == [f"job train: {found}"]


def test_a_restart_from_nothing_is_no_proven_resume(theatre: Theatre) -> None:
    def restart() -> None:
        first = theatre.start()
        theatre.end(first, Outcome.INTERRUPTED, Cause.NOTICE)
        theatre.take_back(first)
        theatre.start()

    theatre.world.on["faults"] = restart
    text = RESUMED.replace("status: SUCCEEDED", "status: RUNNING")
    found = {finding.what: finding for finding in theatre.play(text).findings}
    assert found["job train: resumes proven"].seen == "attempt 2 begins at none"
    assert found["job train: weights identical"].seen == "no such file in the last checkpoint"


def test_what_comes_late_is_waited_for(theatre: Theatre) -> None:
    patient = Patience(step=0.05, end=0.05, rest=0.6)
    played = theatre.play(f"{HEAD}expect: {{instances: {{alive: 1}}}}", patience=patient)
    assert not played.holds
    assert played.seconds > 0.5  # it looked again, and in vain


def test_a_reference_that_fails_is_said(theatre: Theatre) -> None:
    theatre.world.on["faults"] = lambda: live(theatre)
    text = RESUMED.replace("open('weights', 'wb').write(b'final')", "raise SystemExit('no data')")
    found = {finding.what: finding for finding in theatre.play(text).findings}
    assert found["job train: weights identical"].seen.endswith("ends with: no data")


def test_the_reference_knows_nothing_of_us(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRIEVE_JOB_ID", "job-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    theatre.world.on["faults"] = lambda: live(theatre)
    script = (
        "import os; assert not [n for n in os.environ if n.startswith(('REPRIEVE', 'AWS'))]; "
        "open('weights', 'wb').write(b'final')"
    )
    text = RESUMED.replace("open('weights', 'wb').write(b'final')", script)
    assert theatre.play(text).holds


def test_requeue_takes_a_running_job_off_its_host(theatre: Theatre) -> None:
    theatre.world.on["faults"] = theatre.start
    played = theatre.play(
        HEAD
        + """
steps:
  - fault: {service: s3, action: "*", then: {duplicate: 1}}
  - job: {name: train, do: requeue}
expect: {jobs: {train: {status: QUEUED, attempt: 2, counters: {interruptions: 0, crashes: 0}}}}
"""
    )
    assert played.holds, "\n".join(report.lines(played))
