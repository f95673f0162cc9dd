"""The commands that read: what they say to people, and to scripts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.domain.checkpoint import log_key, manifest_key
from reprieve.domain.host import HostState
from reprieve.domain.job import CheckpointRef, Counters, JobStatus
from reprieve.domain.lease import Cause, Holds, LeaseState, Outcome, Phase
from reprieve.domain.order import FleetAnswer, FleetError, Launched, OrderState
from reprieve_cli.commands import logs, wait
from reprieve_cli.terminal import Terminal
from tests.builders import (
    HOST,
    OTHER_HOST,
    SPOT_A,
    SPOT_B,
    a_held_lease,
    a_holder,
    a_host,
    a_job,
    a_lease,
    a_manifest,
    a_notice,
    a_plan,
    an_attempt,
    an_event,
    an_order,
    at,
)
from tests.cli.conftest import Cli
from tests.stored import plan, submit, tell

STATUS_KEYS = [
    "id",
    "name",
    "status",
    "reason",
    "pool",
    "attempt",
    "next_try_at",
    "checkpoint",
    "counters",
    "steps_lost",
    "attempts",
]
ATTEMPT_KEYS = [
    "n",
    "instance_id",
    "instance_type",
    "zone",
    "market",
    "started_at",
    "ended_at",
    "outcome",
    "restored_step",
    "last_step",
]


@pytest.fixture
def story(cli: Cli) -> Cli:
    """One job, interrupted once, running again from step 100."""
    manifest = a_manifest(attempt=1, step=100)
    job = a_job(
        attempt=2,
        token="t2",
        status=JobStatus.RUNNING,
        reason="running",
        checkpoint=CheckpointRef(100, manifest.key),
        counters=Counters(interruptions=1),
        steps_lost=14,
    )
    memory, objects = cli.memory, cli.objects
    memory.job_rows[job.id] = job
    lease = a_held_lease(
        job, a_holder(OTHER_HOST), step=120, phase=Phase.RUNNING, restored_step=100
    )
    memory.lease_rows[lease.key] = lease
    objects.bodies[manifest.key] = manifest.to_json()
    objects.bodies |= {file.key: bytes(file.size) for file in manifest.files}
    memory.attempt_rows["job-1", 1] = an_attempt(
        1,
        instance_id=HOST,
        instance_type="g5.xlarge",
        zone="us-east-1a",
        market="spot",
        started_at=at(5),
        ended_at=at(40),
        outcome=Outcome.INTERRUPTED,
        cause=Cause.NOTICE,
        last_step=114,
    )
    memory.attempt_rows["job-1", 2] = an_attempt(
        2, instance_id=OTHER_HOST, instance_type="g6.xlarge", zone="us-east-1b", restored_step=100
    )
    events = [
        an_event(0, "submitted", text="submitted to pool small"),
        an_event(
            31,
            "notice",
            text="interruption notice, seen by event",
            attempt=1,
            data={"host": HOST, "kind": "interruption", "channel": "event"},
        ),
        an_event(39, "committed", text="checkpoint committed", data={"seconds": 6, "bytes": 9}),
        an_event(40, "replacement", text="landed", attempt=2),
    ]
    tell(memory.rows, job.id, events)
    memory.order_rows["job-1", 2] = an_order(attempt=2, state=OrderState.LANDED)
    refused = (FleetError("InsufficientInstanceCapacity", "", SPOT_A),)
    plan(memory.rows, a_plan(attempt=2), FleetAnswer((Launched(OTHER_HOST, SPOT_B),), refused))
    memory.hosts.adopt(a_host(HOST, state=HostState.DRAINING, notice=a_notice(), usd_per_hour=0.4))
    memory.hosts.adopt(a_host(OTHER_HOST, capacity=SPOT_B, launched_at=at(35), usd_per_hour=0.5))
    memory.holds_rows[OTHER_HOST] = Holds(OTHER_HOST, frozenset({lease.key}), 3)
    return cli


def test_status_json_has_exactly_the_shape_that_scripts_rely_on(story: Cli) -> None:
    assert story("status", "job-1", "--json") == 0

    document = story.document
    assert list(document) == STATUS_KEYS
    assert [list(row) for row in document["attempts"]] == [ATTEMPT_KEYS, ATTEMPT_KEYS]
    assert document["checkpoint"] == {
        "step": 100,
        "uri": f"s3://bucket/{manifest_key('job-1', 1, 100)}",
        "verified": True,
    }
    assert document["counters"] == {
        "interruptions": 1,
        "launch_failures": 0,
        "crashes": 0,
        "no_progress": 0,
    }
    assert document["attempts"][0]["outcome"] == "interrupted"
    assert document["attempts"][0]["started_at"] == at(5).isoformat()
    assert story.err == ""


def test_a_job_without_a_checkpoint_keeps_the_shape(cli: Cli) -> None:
    submit(cli.memory.rows, a_job(), a_lease())

    cli("status", "job-1", "--json")

    assert cli.document["checkpoint"] == {"step": None, "uri": None, "verified": False}
    assert cli.document["next_try_at"] is None
    assert cli.document["attempts"] == []


@pytest.mark.parametrize("damage", ["manifest gone", "manifest cut", "file gone", "file cut"])
def test_a_damaged_checkpoint_is_not_called_verified(story: Cli, damage: str) -> None:
    bodies = story.objects.bodies
    manifest = manifest_key("job-1", 1, 100)
    file = next(key for key in bodies if "/data/" in key)
    match damage:
        case "manifest gone":
            del bodies[manifest]
        case "manifest cut":
            bodies[manifest] = bodies[manifest][:-5]
        case "file gone":
            del bodies[file]
        case "file cut":
            bodies[file] = b"x"

    story("status", "job-1", "--json")

    assert story.document["checkpoint"]["verified"] is False


def test_status_ends_with_where_the_job_stands(story: Cli) -> None:
    story("status", "job-1")

    assert story.last_line == "job-1 RUNNING: running, step 120"
    assert "checkpoint at step 100, verified" in story.out
    assert "g6.xlarge" in story.out
    assert all(len(line) <= 80 for line in story.out.splitlines())


@pytest.mark.parametrize("command", ["status", "why", "wait", "logs", "cancel", "checkpoints ls"])
def test_an_unknown_job_is_bad_input(cli: Cli, command: str) -> None:
    assert cli(*command.split(), "job-404") == 2

    assert cli.err.startswith("error: no job job-404 in stack Reprieve")
    assert cli.out == ""


def test_why_tells_the_story_in_order_with_its_figures(story: Cli) -> None:
    assert story("why", "job-1") == 0

    lines = story.out.splitlines()
    assert lines[0].endswith("submitted to pool small")
    assert lines[1].endswith(f"{HOST}: interruption notice, seen by event")
    assert lines[2].endswith("checkpoint committed (6.0 s, 9 B)")
    assert lines[3].endswith("EC2 has no g5.xlarge in us-east-1a: InsufficientInstanceCapacity")
    assert lines[4].endswith(f"{OTHER_HOST} launched: g6.xlarge in us-east-1b, spot, $0.500/h")
    assert lines[-1] == "job-1 RUNNING: running, step 120"
    assert all(len(line) <= 80 for line in lines)


def test_why_says_who_told_of_a_notice_and_who_never_did(story: Cli) -> None:
    story("why", "job-1")
    assert "attempt 1, interruption: heard by event; never metadata, ssm, sweep" in story.out

    story("why", "job-1", "--json")
    (heard,) = story.document["channels"]
    assert (heard["seconds"], heard["never"]) == ({"event": None}, ["metadata", "ssm", "sweep"])


def test_why_json_holds_events_attempts_and_what_ec2_answered(story: Cli) -> None:
    story("why", "job-1", "--json")

    document = story.document
    assert [row["kind"] for row in document["events"]] == [
        "submitted",
        "notice",
        "committed",
        "replacement",
    ]
    assert [row["n"] for row in document["attempts"]] == [1, 2]
    (order,) = document["orders"]
    assert order["attempt"] == 2
    (tried,) = order["tries"]
    assert tried["instances"][0]["instance_id"] == OTHER_HOST
    assert tried["errors"] == [
        {
            "code": "InsufficientInstanceCapacity",
            "instance_type": "g5.xlarge",
            "zone": "us-east-1a",
        }
    ]


def test_queue_lists_what_is_not_over_and_why_it_waits(story: Cli) -> None:
    parked = a_job(
        "job-2",
        status=JobStatus.PARKED,
        reason="no host to be had",
        next_try_at=at(900),
        created_at=at(1),
    )
    over = a_job("job-3", status=JobStatus.SUCCEEDED, created_at=at(2))
    for job in (parked, over):
        submit(story.memory.rows, job, a_lease(job))

    story("queue", "--json")
    assert [row["id"] for row in story.document["jobs"]] == ["job-1", "job-2"]
    assert story.memory.lease_rows
    assert story("queue") == 0
    assert "next try 12:15:00" in " ".join(story.out.split()) or "next try" in story.out
    assert story.last_line == "2 jobs in small: 1 on hosts, 1 waiting"


def test_an_empty_queue_says_so(cli: Cli) -> None:
    assert cli("queue") == 0
    assert cli.last_line == "no jobs in small"
    assert cli("queue", "--pool", "nope") == 2


def test_hosts_says_what_each_is_costs_and_holds(story: Cli) -> None:
    story("hosts", "--json")
    draining, ready = story.document["hosts"]
    assert draining["notice"]["kind"] == "interruption"
    assert (ready["instance_id"], ready["jobs"]) == (OTHER_HOST, ["job-1"])

    assert story("hosts") == 0
    assert story.last_line == "2 hosts, $0.900/h in all"
    assert all(len(line) <= 80 for line in story.out.splitlines())


def test_checkpoints_are_listed_with_what_is_wrong_with_them(story: Cli) -> None:
    story.objects.bodies[manifest_key("job-1", 1, 50)] = b"{"

    story("checkpoints", "ls", "job-1", "--json")
    first, second = story.document["checkpoints"]
    assert (first["step"], first["current"]) == (50, False)
    assert "isn't a manifest" in first["fault"]
    assert (second["step"], second["current"], second["fault"]) == (100, True, None)

    assert story("checkpoints", "ls", "job-1") == 0
    assert story.last_line == "2 checkpoints, 1 damaged"


def test_cancel_closes_the_job_and_says_no_to_one_that_is_over(cli: Cli) -> None:
    submit(cli.memory.rows, a_job(), a_lease())

    assert cli("cancel", "job-1") == 0
    assert cli.last_line == "job-1 CANCELLED"
    assert cli("cancel", "job-1", "--json") == 0
    assert cli.document["status"] == "CANCELLED"
    assert cli.memory.lease_rows[a_job().lease_key].state is LeaseState.CLOSED

    done = a_job("job-2", status=JobStatus.SUCCEEDED, reason="finished")
    submit(cli.memory.rows, done, a_lease(done))
    assert cli("cancel", "job-2") == 1
    assert "was over already: SUCCEEDED" in cli.err


def test_logs_are_those_of_the_newest_attempt_that_wrote(story: Cli) -> None:
    assert story("logs", "job-1") == 1
    assert "has written nothing yet" in story.err

    story.objects.bodies[log_key("job-1", 1)] = b"first\n"
    assert story("logs", "job-1") == 0
    assert "first" in story.out

    story.objects.bodies[log_key("job-1", 2)] = b"second\n"
    story("logs", "job-1")
    assert story.out == "second\n"
    story("logs", "job-1", "--attempt", "1")
    assert "first" in story.out
    assert story("logs", "job-1", "--attempt", "3") == 2


def test_following_a_log_goes_from_attempt_to_attempt_and_ends_with_the_job(
    story: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies, rows = story.objects.bodies, story.memory.job_rows
    rows["job-1"] = replace(rows["job-1"], attempt=1)
    bodies[log_key("job-1", 1)] = b"one "

    def goes_on() -> None:
        bodies[log_key("job-1", 1)] += b"more "

    def ends() -> None:
        rows["job-1"] = replace(rows["job-1"], attempt=2)
        bodies[log_key("job-1", 1)] += b"last\n"
        bodies[log_key("job-1", 2)] = b"two\n"

    def finishes() -> None:
        rows["job-1"] = replace(rows["job-1"], status=JobStatus.SUCCEEDED)

    scenes = iter([goes_on, ends, finishes])

    logs.follow_log(story.cloud, rows["job-1"], attempt=None, sleep=lambda _: next(scenes)())

    out, err = capsys.readouterr()
    assert out == "one more last\ntwo\n"
    assert err == "-- attempt 2\n"


def test_following_a_log_survives_that_its_beginning_is_cut_off(
    story: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies, rows = story.objects.bodies, story.memory.job_rows
    lines = [f"line {n} {'.' * 300}\n" for n in range(40)]
    key = log_key("job-1", 2)
    bodies[key] = "".join(lines[:10]).encode()

    def is_cut() -> None:
        bodies[key] = ("[cut]\n" + "".join(lines[5:20])).encode()

    def is_cut_again() -> None:
        bodies[key] = ("[cut]\n" + "".join(lines[15:30])).encode()

    def grew_too_fast_for_us() -> None:
        bodies[key] = ("[cut]\n" + "".join(lines[35:])).encode()

    def finishes() -> None:
        rows["job-1"] = replace(rows["job-1"], status=JobStatus.SUCCEEDED)

    scenes = iter([is_cut, is_cut_again, grew_too_fast_for_us, finishes])

    logs.follow_log(story.cloud, rows["job-1"], attempt=None, sleep=lambda _: next(scenes)())

    out = capsys.readouterr().out
    assert out == "".join(lines[:30]) + "[cut]\n" + "".join(lines[35:])


def test_wait_tells_what_is_new_until_the_job_is_over(
    story: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = story.memory.job_rows

    def restarts() -> None:
        grounds = an_event(49, "receipt", text="receipt, from the request on: accepted 0.1 s")
        again = an_event(50, "started", text="started again", data={"policy": "saves every 60 s"})
        tell(story.memory.rows, "job-1", [grounds, again])

    def finishes() -> None:
        # A report that comes late is older than what was told already.
        tell(story.memory.rows, "job-1", [an_event(45, "claimed", text="claimed late")])
        rows["job-1"] = replace(rows["job-1"], status=JobStatus.SUCCEEDED, reason="finished")

    scenes = iter([restarts, finishes])
    job = wait.follow(story.cloud, rows["job-1"], Terminal(), sleep=lambda _: next(scenes)())

    assert job.status is JobStatus.SUCCEEDED
    told = [line.split("  ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "submitted to pool small",
        f"{HOST}: interruption notice, seen by event",
        "checkpoint committed (6.0 s, 9 B)",
        "EC2 has no g5.xlarge in us-east-1a: InsufficientInstanceCapacity",
        f"{OTHER_HOST} launched: g6.xlarge in us-east-1b, spot, $0.500/h",
        "started again",
        "claimed late",
    ]


@pytest.mark.parametrize(
    ("status", "needs_you", "code"),
    [
        (JobStatus.SUCCEEDED, False, 0),
        (JobStatus.FAILED, False, 1),
        (JobStatus.CANCELLED, False, 1),
        (JobStatus.PARKED, True, 1),
    ],
)
def test_the_exit_status_of_wait_is_the_jobs_end(
    story: Cli, status: JobStatus, code: int, *, needs_you: bool
) -> None:
    rows = story.memory.job_rows
    rows["job-1"] = replace(rows["job-1"], status=status, needs_you=needs_you, reason="because")

    assert story("wait", "job-1") == code
    end = {
        JobStatus.SUCCEEDED: " at step 120: 1 interruption, 14 steps repeated",
        JobStatus.PARKED: ": because, step 120, needs you",
    }
    assert story.last_line == f"job-1 {status}{end.get(status, ': because')}"
    assert story("wait", "job-1", "--json") == code
    assert story.document["status"] == status
    assert "submitted to pool small" in story.err


def test_waiting_has_an_end(story: Cli) -> None:
    assert story("wait", "job-1", "--timeout", "0s") == 1
    assert "is still RUNNING after 0s" in story.err
    assert story("wait", "job-1", "--timeout", "soon") == 2
