"""The demo's verdict: what makes it a no, and where its figures come from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from reprieve.domain.checkpoint import FileEntry
from reprieve.domain.host import HostState
from reprieve.domain.job import CheckpointRef, Counters, JobStatus
from reprieve.domain.notice import Channel
from reprieve_cli import receipt
from reprieve_cli.receipt import Evidence, Receipt, gather, write
from tests.builders import (
    HOST,
    OTHER_HOST,
    a_host,
    a_job,
    a_lease,
    a_manifest,
    a_notice,
    an_attempt,
    an_event,
    at,
)
from tests.cli.conftest import Cli, sha256
from tests.stored import note, submit, tell

WEIGHTS = b"the weights"


@pytest.fixture
def evidence(cli: Cli) -> Evidence:
    """Attempt 1 committed step 3 under notice; attempt 2 went on at step 4 and finished at 6."""
    saved, final = a_manifest(1, 3), a_manifest(2, 6)
    steps = [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]
    log = "".join(json.dumps({"attempt": a, "step": n, "loss": 1.0}) + "\n" for a, n in steps)
    files = {"weights.npz": WEIGHTS, "steps.jsonl": log.encode()}
    final = replace(
        final,
        files=tuple(
            FileEntry(path, f"jobs/job-1/data/000002/save-2/{path}", len(body), sha256(body))
            for path, body in files.items()
        ),
    )
    bodies = cli.objects.bodies
    bodies |= {saved.key: saved.to_json(), final.key: final.to_json()}
    bodies |= {file.key: bytes(file.size) for file in saved.files}
    bodies |= {file.key: files[file.path] for file in final.files}
    job = a_job(
        status=JobStatus.SUCCEEDED,
        attempt=2,
        checkpoint=CheckpointRef(6, final.key),
        counters=Counters(interruptions=1),
    )
    submit(cli.memory.rows, job, a_lease(job))
    first = an_attempt(1, instance_id=HOST, instance_type="g5.xlarge", zone="us-east-1a")
    second = an_attempt(2, instance_id=OTHER_HOST, restored_step=3)
    for row in (first, second):
        note(cli.memory.rows, row)
    notice = a_notice(channel=Channel.METADATA)
    cli.memory.hosts.adopt(a_host(HOST, state=HostState.GONE, notice=notice))
    tell(
        cli.memory.rows,
        "job-1",
        [
            an_event(1, "started", attempt=1),
            an_event(20, "committed", text="before the notice", attempt=1),
            an_event(30, "notice", text="seen by event", attempt=1),
            an_event(30.5, "notice", text="seen by metadata", attempt=1),
            an_event(31.2, "committed", attempt=1),
            an_event(33.6, "started", attempt=2),
            an_event(39, "committed", attempt=2),
        ],
    )
    return gather(cli.cloud, job)


def a_receipt(evidence: Evidence, *, reference: bytes | None = WEIGHTS) -> Receipt:
    return write(
        evidence, job={}, reference=reference, removed=["a"], changed=["b", "c"], wall_seconds=1.26
    )


def test_a_run_that_went_on_as_if_nothing_had_happened_has_no_fault(evidence: Evidence) -> None:
    written = a_receipt(evidence)

    assert receipt.faults(evidence, written) == []
    assert written.document() == {
        "job": {},
        "interruptions": 1,
        "steps_total": 6,
        "steps_repeated": 0,
        "first_channel": "metadata",
        "seconds_notice_to_committed": 1.2,
        "seconds_notice_to_running": 3.6,
        "final_digest": sha256(WEIGHTS),
        "uninterrupted_digest": sha256(WEIGHTS),
        "identical": True,
        "removed_from_template": ["a"],
        "changed_for_local": ["b", "c"],
        "wall_seconds": 1.3,
    }


def changed_job(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, job=replace(evidence.job, **changes))


def test_a_report_that_is_missing_leaves_its_figure_open(evidence: Evidence) -> None:
    events = [e for e in evidence.events if (e.kind, e.at) != ("committed", at(31.2))]
    late = replace(evidence, events=events)

    assert receipt.is_told(evidence.events, attempt=2)
    assert not receipt.is_told(late.events, attempt=2)
    assert a_receipt(late).seconds_notice_to_committed is None
    assert receipt.faults(late, a_receipt(late)) == []


def test_an_end_other_than_success_is_a_no(evidence: Evidence) -> None:
    failed = changed_job(evidence, status=JobStatus.FAILED, reason="exit code 1")

    assert receipt.faults(failed, a_receipt(failed)) == ["the job is FAILED: exit code 1"]


def test_a_run_that_nobody_interrupted_proves_nothing(evidence: Evidence) -> None:
    alone = changed_job(replace(evidence, attempts=evidence.attempts[:1]), counters=Counters())

    assert receipt.faults(alone, a_receipt(alone)) == [
        "the job was never interrupted",
        "there is no second attempt",
    ]


@pytest.mark.parametrize("reference", [b"other weights", None])
def test_weights_that_differ_or_are_missing_are_a_no(
    evidence: Evidence, reference: bytes | None
) -> None:
    written = a_receipt(evidence, reference=reference)

    assert written.identical is False
    assert len(receipt.faults(evidence, written)) == 1


def test_two_missing_files_are_not_identical(evidence: Evidence) -> None:
    lost = replace(evidence, weights=None)

    assert a_receipt(lost, reference=None).identical is False


def test_a_restart_from_the_beginning_is_a_no(evidence: Evidence) -> None:
    restarted = replace(evidence, attempts=[evidence.attempts[0], an_attempt(2)])

    assert receipt.faults(restarted, a_receipt(restarted)) == [
        "attempt 2 started from the beginning"
    ]


def test_a_checkpoint_that_no_manifest_proves_is_a_no(evidence: Evidence) -> None:
    unproved = replace(evidence, restorable=frozenset())

    assert receipt.faults(unproved, a_receipt(unproved)) == [
        "attempt 2 started from step 3: no manifest"
    ]


def test_a_step_run_twice_or_left_out_is_a_no(evidence: Evidence) -> None:
    skipped = replace(evidence, steps=[s for s in evidence.steps if s.n != 4])

    assert receipt.faults(skipped, a_receipt(skipped)) == [
        "attempt 2 restored step 3, its first step is 5"
    ]


def test_an_attempt_that_lost_its_host_before_its_first_step_is_no_fault(
    evidence: Evidence,
) -> None:
    third = replace(evidence.attempts[1], n=3)
    steps = [replace(s, attempt=3) if s.attempt == 2 else s for s in evidence.steps]
    again = replace(
        changed_job(evidence, attempt=3),
        attempts=[evidence.attempts[0], an_attempt(2), third],
        steps=steps,
    )

    assert receipt.faults(again, a_receipt(again)) == []
