"""A job that is over, as the plan of its next run: what it took, and how its pools behaved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from reprieve.domain.economics.pools import NOTHING_KNOWN, History
from reprieve.domain.economics.recall import SuccessRate
from reprieve.domain.host import Market
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import Cause
from reprieve_cli import documents
from reprieve_cli.economics.jobfile import USUAL_SAVE, Checkpoints, KnownPool, PlannedJob
from reprieve_cli.errors import BadInputError
from reprieve_cli.stack import Cloud

TAKEN_BACK = frozenset({Cause.NOTICE, Cause.LOST, Cause.SILENT})


def planned(cloud: Cloud, job: Job) -> PlannedJob:
    """Return *job* as a plan's input; raise ``BadInputError`` while it isn't over."""
    attempts = [row for row in cloud.jobs.attempts(job.id) if row.started_at and row.ended_at]
    if not job.terminal or not attempts:
        raise BadInputError(
            f"job {job.id} is {job.status}: plan it from a job file, or when it is over"
        )
    events = cloud.jobs.events(job.id)
    pool = cloud.stack.pools.get(job.pool)
    return PlannedJob(
        name=job.name,
        work_hours=max(_useful_hours(attempts), 0.01),
        types=pool.types if pool else tuple({row.instance_type or "" for row in attempts} - {""}),
        region=cloud.stack.region,
        state_gigabytes=_gigabytes(cloud, job),
        checkpoints=_checkpoints(job, attempts, events),
        pools=_pools(attempts),
    )


def _hours(row: Attempt) -> float:
    if row.started_at is None or row.ended_at is None:
        return 0.0
    return (row.ended_at - row.started_at) / timedelta(hours=1)


def _useful_hours(attempts: Sequence[Attempt]) -> float:
    """Return the time in attempts less the share of their steps that was repeated."""
    total = sum(_hours(row) for row in attempts)
    steps = sum((row.last_step or 0) - (row.restored_step or 0) for row in attempts)
    lost = sum(row.steps_lost for row in attempts)
    return total * (1 - lost / steps) if steps > lost else total


def _gigabytes(cloud: Cloud, job: Job) -> float:
    if job.checkpoint is None:
        return 0.0
    manifest = documents.inspect(job.checkpoint.manifest, cloud.objects).manifest
    return manifest.size / 1e9 if manifest else 0.0


def _checkpoints(
    job: Job, attempts: Sequence[Attempt], events: Sequence[Event]
) -> Checkpoints | None:
    if job.checkpoint is None:
        return None
    noticed = [row for row in attempts if row.cause is Cause.NOTICE]
    saved = [row for row in noticed if row.committed_step is not None and not row.steps_lost]
    return Checkpoints(
        save_seconds=_longest(events, "saved_s", since="accepted_s") or USUAL_SAVE,
        emergency_seconds=_longest(events, "committed_s"),
        rate=SuccessRate(len(noticed), len(saved)),
    )


def _longest(events: Iterable[Event], stage: str, *, since: str = "") -> float | None:
    """Return the longest time to *stage* in any receipt, from *since* on."""
    found = []
    for event in events:
        end, start = event.data.get(stage), event.data.get(since, 0.0)
        if isinstance(end, int | float) and isinstance(start, int | float) and end > start:
            found.append(float(end - start))
    return max(found, default=None)


def _pools(attempts: Sequence[Attempt]) -> tuple[KnownPool, ...]:
    """Return what the job's hosts have seen of their Spot pools."""
    histories: dict[tuple[str, str], History] = {}
    prices: dict[tuple[str, str], float | None] = {}
    for row in attempts:
        if row.market != Market.SPOT or not row.instance_type:
            continue
        at = (row.instance_type, row.zone or "")
        histories[at] = histories.get(at, NOTHING_KNOWN).after_run(
            hours=_hours(row), interrupted=row.cause in TAKEN_BACK
        )
        prices[at] = row.usd_per_hour or prices.get(at)
    return tuple(
        KnownPool(type=kind, zone=zone, usd_per_hour=prices[kind, zone], history=history)
        for (kind, zone), history in histories.items()
    )
