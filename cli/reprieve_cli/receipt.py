"""What an interrupted run cost and whether it ended as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve.domain.checkpoint import Manifest, own_manifests
from reprieve.domain.job import Attempt, CheckpointRef, Event, Job, JobStatus
from reprieve.domain.notice import Channel
from reprieve.protocol import ReportKind
from reprieve_cli import documents
from reprieve_cli.stack import Cloud

WEIGHTS_FILE = "weights.npz"
STEPS_FILE = "steps.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """One executed step, from the trainer's own log."""

    attempt: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """
    What the rows, the bucket and the trainer's log say about one job.

    ``restorable`` are the steps that attempts before the last one committed, by their
    manifests in the bucket. ``weights`` is None if there is no final checkpoint.
    """

    job: Job
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    first_channel: Channel | None
    restorable: frozenset[int]
    steps: Sequence[Step]
    weights: bytes | None


def gather(cloud: Cloud, job: Job) -> Evidence:
    """Read everything anew; nothing is taken from what was printed on the way."""
    attempts = cloud.jobs.attempts(job.id)
    manifests = list(cloud.objects.sizes(f"jobs/{job.id}/manifests/"))
    earlier = [key for n in range(1, job.attempt) for key in own_manifests(manifests, n)]
    found = [documents.inspect(key, cloud.objects) for key in earlier]
    final = _manifest(job.checkpoint, cloud)
    hosts = cloud.hosts.read(row.instance_id for row in attempts if row.instance_id)
    notices = [host.notice for host in hosts.values() if host.notice]
    notices.sort(key=lambda notice: notice.noticed_at)
    return Evidence(
        job=job,
        attempts=attempts,
        events=cloud.jobs.events(job.id),
        first_channel=notices[0].channel if notices else None,
        restorable=frozenset(one.manifest.step for one in found if one.manifest and not one.fault),
        steps=_steps(_file(final, STEPS_FILE, cloud)),
        weights=_file(final, WEIGHTS_FILE, cloud),
    )


def _manifest(ref: CheckpointRef | None, cloud: Cloud) -> Manifest | None:
    return documents.inspect(ref.manifest, cloud.objects).manifest if ref else None


def _file(manifest: Manifest | None, path: str, cloud: Cloud) -> bytes | None:
    files = manifest.files if manifest else ()
    key = next((file.key for file in files if file.path == path), None)
    return cloud.objects.read(key) if key else None


def _steps(log: bytes | None) -> list[Step]:
    lines = [json.loads(line) for line in (log or b"").splitlines()]
    return [Step(int(line["attempt"]), int(line["step"])) for line in lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The demo's result; a digest is None where there is no such file."""

    job: dict[str, Any]
    interruptions: int
    steps_total: int
    steps_repeated: int
    first_channel: str | None
    seconds_notice_to_committed: float | None
    seconds_notice_to_running: float | None
    final_digest: str | None
    uninterrupted_digest: str | None
    removed_from_template: tuple[str, ...]
    changed_for_local: tuple[str, ...]
    wall_seconds: float

    @property
    def identical(self) -> bool:
        """Whether both runs ended with the same weights, to the last bit."""
        return self.final_digest is not None and self.final_digest == self.uninterrupted_digest

    def document(self) -> dict[str, Any]:
        """Return ``demo --json``."""
        return {
            "job": self.job,
            "interruptions": self.interruptions,
            "steps_total": self.steps_total,
            "steps_repeated": self.steps_repeated,
            "first_channel": self.first_channel,
            "seconds_notice_to_committed": self.seconds_notice_to_committed,
            "seconds_notice_to_running": self.seconds_notice_to_running,
            "final_digest": self.final_digest,
            "uninterrupted_digest": self.uninterrupted_digest,
            "identical": self.identical,
            "removed_from_template": list(self.removed_from_template),
            "changed_for_local": list(self.changed_for_local),
            "wall_seconds": round(self.wall_seconds, 1),
        }


def write(
    evidence: Evidence,
    *,
    job: dict[str, Any],
    reference: bytes | None,
    removed: Sequence[str],
    changed: Sequence[str],
    wall_seconds: float,
) -> Receipt:
    """Return the receipt; *reference* is the weights file of the run that nobody interrupted."""
    times = _times(evidence.events, attempt=evidence.job.attempt)
    return Receipt(
        job=job,
        interruptions=evidence.job.counters.interruptions,
        steps_total=max((step.n for step in evidence.steps), default=0),
        steps_repeated=evidence.job.steps_lost,
        first_channel=evidence.first_channel,
        seconds_notice_to_committed=_seconds(times.noticed, times.committed),
        seconds_notice_to_running=_seconds(times.noticed, times.running),
        final_digest=_digest(evidence.weights),
        uninterrupted_digest=_digest(reference),
        removed_from_template=tuple(removed),
        changed_for_local=tuple(changed),
        wall_seconds=wall_seconds,
    )


def is_told(events: Sequence[Event], *, attempt: int) -> bool:
    """Tell whether the reports that the receipt is written from have all been recorded."""
    times = _times(events, attempt=attempt)
    return None not in (times.noticed, times.committed, times.running)


@dataclass(frozen=True, slots=True)
class _Times:
    """The first notice, the commit that answered it, and the start of the next attempt."""

    noticed: datetime | None
    committed: datetime | None
    running: datetime | None


def _times(events: Sequence[Event], *, attempt: int) -> _Times:
    def first(kind: str, wanted: Callable[[Event], bool]) -> datetime | None:
        return min((e.at for e in events if e.kind == kind and wanted(e)), default=None)

    noticed = first("notice", lambda _: True)
    if noticed is None:
        return _Times(None, None, None)
    return _Times(
        noticed=noticed,
        committed=first(
            ReportKind.COMMITTED, lambda e: e.at >= noticed and (e.attempt or 0) < attempt
        ),
        running=first(ReportKind.STARTED, lambda e: e.attempt == attempt),
    )


def faults(evidence: Evidence, receipt: Receipt) -> list[str]:
    """Return why the run doesn't prove what it should; empty if it does."""
    job, found = evidence.job, []
    if job.status is not JobStatus.SUCCEEDED:
        found.append(f"the job is {job.status}: {job.reason}")
    if job.counters.interruptions < 1:
        found.append("the job was never interrupted")
    if receipt.final_digest is None or receipt.uninterrupted_digest is None:
        found.append("there are no two weights files to compare")
    elif not receipt.identical:
        found.append("the weights differ from those of the uninterrupted run")
    return found + _resume_faults(evidence)


def _resume_faults(evidence: Evidence) -> list[str]:
    """Check each attempt after the first: it went on where a checkpoint in the bucket ended."""
    found = []
    if len(evidence.attempts) < 2:  # noqa: PLR2004 - nothing was resumed
        return ["there is no second attempt"]
    worked = {step.attempt for step in evidence.steps} | {evidence.job.attempt}
    for row in evidence.attempts[1:]:
        if row.n not in worked:  # lost its host before its first step
            continue
        if not row.restored_step:
            found.append(f"attempt {row.n} started from the beginning")
            continue
        if row.restored_step not in evidence.restorable:
            found.append(f"attempt {row.n} started from step {row.restored_step}: no manifest")
        first = next((step.n for step in evidence.steps if step.attempt == row.n), None)
        if first != row.restored_step + 1:
            found.append(
                f"attempt {row.n} restored step {row.restored_step}, its first step is {first}"
            )
    return found


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return round((end - start).total_seconds(), 1) if start and end else None


def _digest(body: bytes | None) -> str | None:
    return hashlib.sha256(body).hexdigest() if body is not None else None
