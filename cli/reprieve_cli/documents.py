"""The JSON that scripts rely on: names and shapes change only with a new version of the CLI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reprieve.domain.checkpoint import Manifest
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import MalformedError
from reprieve.domain.host import Host
from reprieve.domain.job import Attempt, CheckpointRef, Event, Job
from reprieve.domain.lease import Holds, Lease
from reprieve.domain.notice import Notice
from reprieve.domain.order import Order, Try
from reprieve.domain.silence import Sight
from reprieve_cli.objects import Objects, missing
from reprieve_cli.timeline import Heard


def status(job: Job, attempts: Sequence[Attempt], objects: Objects) -> dict[str, Any]:
    """Return ``status --json``."""
    return {
        "id": job.id,
        "name": job.name,
        "status": job.status.value,
        "reason": job.reason,
        "pool": job.pool,
        "attempt": job.attempt,
        "next_try_at": _iso(job.next_try_at),
        "checkpoint": checkpoint(job.checkpoint, objects),
        "counters": {
            "interruptions": job.counters.interruptions,
            "launch_failures": job.counters.launch_failures,
            "crashes": job.counters.crashes,
            "no_progress": job.counters.no_progress,
        },
        "steps_lost": job.steps_lost,
        "attempts": [attempt(row) for row in attempts],
    }


def attempt(row: Attempt) -> dict[str, Any]:
    """Return one start of a job."""
    return {
        "n": row.n,
        "instance_id": row.instance_id,
        "instance_type": row.instance_type,
        "zone": row.zone,
        "market": row.market,
        "started_at": _iso(row.started_at),
        "ended_at": _iso(row.ended_at),
        "outcome": row.outcome.value if row.outcome else None,
        "restored_step": row.restored_step,
        "last_step": row.last_step,
    }


def checkpoint(ref: CheckpointRef | None, objects: Objects) -> dict[str, Any]:
    """Return the newest commit and whether the bucket still proves it."""
    if ref is None:
        return {"step": None, "uri": None, "verified": False}
    found = inspect(ref.manifest, objects)
    return {
        "step": ref.step,
        "uri": objects.uri(ref.manifest),
        "verified": not found.fault,
    }


@dataclass(frozen=True, slots=True)
class Inspected:
    """A manifest, unless it can't be read, and what is wrong with its checkpoint, if anything."""

    manifest: Manifest | None
    fault: str = ""


def inspect(key: str, objects: Objects) -> Inspected:
    """
    Read the manifest *key* and compare the sizes of its files.

    Digests are compared where the files are used: by the host that resumes from them.
    """
    body = objects.read(key)
    if body is None:
        return Inspected(None, "its manifest is gone")
    try:
        manifest = Manifest.from_json(body, key=key)
    except MalformedError as error:
        return Inspected(None, str(error))
    bad = missing(objects, ((file.key, file.size) for file in manifest.files))
    if bad:
        return Inspected(manifest, f"{len(bad)} of {len(manifest.files)} files missing or cut")
    return Inspected(manifest)


def event(row: Event) -> dict[str, Any]:
    """Return one line of the timeline."""
    return {
        "at": _iso(row.at),
        "kind": row.kind,
        "text": row.text,
        "attempt": row.attempt,
        "data": dict(row.data),
    }


def heard(notice: Heard) -> dict[str, Any]:
    """Return who told of a notice, in seconds where they are known, and who never did."""
    return {
        "attempt": notice.attempt,
        "kind": notice.kind,
        "seconds": {channel.value: late for channel, late in notice.seconds.items()},
        "never": [channel.value for channel in notice.never],
    }


def order(head: Order, tries: Sequence[Try]) -> dict[str, Any]:
    """Return what was asked of EC2 for one attempt, and what it said."""
    return {
        "attempt": head.attempt,
        "state": head.state.value,
        "reason": head.reason,
        "outcome": head.outcome,
        "next_try_at": _iso(head.next_try_at),
        "tries": [_try(row) for row in tries],
    }


def _try(row: Try) -> dict[str, Any]:
    answer = row.answer
    return {
        "n": row.n,
        "at": _iso(row.at),
        "market": row.plan.market.value,
        "asked": [
            {"instance_type": o.capacity.type, "zone": o.capacity.zone} for o in row.plan.overrides
        ],
        "instances": [
            {
                "instance_id": i.instance_id,
                "instance_type": i.capacity.type,
                "zone": i.capacity.zone,
            }
            for i in (answer.instances if answer else ())
        ],
        "errors": [
            {
                "code": e.code,
                "instance_type": e.capacity.type if e.capacity else None,
                "zone": e.capacity.zone if e.capacity else None,
            }
            for e in (answer.errors if answer else ())
        ],
    }


def host(row: Host, holds: Holds | None, sight: Sight | None, clock: NoticeClock) -> dict[str, Any]:
    """Return one host; *sight* is what the sweep last heard of it."""
    unheard = sight.count - 1 if sight else 0
    return {
        "instance_id": row.instance_id,
        "pool": row.pool,
        "state": row.state.value,
        "reason": row.reason,
        "instance_type": row.capacity.type,
        "zone": row.capacity.zone,
        "market": row.capacity.market.value,
        "usd_per_hour": row.usd_per_hour,
        "launched_at": _iso(row.launched_at),
        "jobs": sorted(key.job for key in holds.leases) if holds else [],
        "heard": bool(holds and (holds.beat or holds.leases)),
        "unheard_sweeps": unheard,
        "cannot_tell": unheard >= clock.unheard_sweeps,
        "notice": notice(row.notice),
    }


def notice(said: Notice | None) -> dict[str, Any] | None:
    """Return what was announced about a host."""
    if said is None:
        return None
    return {
        "kind": said.kind.value,
        "channel": said.channel.value,
        "noticed_at": _iso(said.noticed_at),
        "reclaimed_at": _iso(said.reclaimed_at),
    }


def in_queue(job: Job, lease: Lease | None) -> dict[str, Any]:
    """Return one entry of the queue."""
    return {
        "id": job.id,
        "name": job.name,
        "pool": job.pool,
        "status": job.status.value,
        "reason": job.reason,
        "attempt": job.attempt,
        "step": lease.step if lease else None,
        "checkpoint_step": job.checkpoint.step if job.checkpoint else None,
        "instance_id": lease.holder.instance_id if lease and lease.holder else None,
        "submitted_at": _iso(job.created_at),
        "next_try_at": _iso(job.next_try_at),
        "needs_you": job.needs_you,
    }


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
