"""``reprieve status``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from reprieve.domain.job import Attempt, Job, JobStatus
from reprieve.domain.lease import Lease
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.terminal import Terminal


@click.command(short_help="Say where a job stands.")
@job_argument
@json_option
@click.pass_obj
def status(context: Context, /, job_id: str, terminal: Terminal) -> None:
    """Say where JOB stands, what it can resume from, and on which hosts it has been."""
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    attempts = cloud.jobs.attempts(job.id)
    document = documents.status(job, attempts, cloud.objects)
    lease = cloud.jobs.lease(job.lease_key)
    if not terminal.json:
        _facts(job, document["checkpoint"], lease, terminal)
        if attempts:
            attempts_table(attempts, terminal, now=cloud.now())
    terminal.answer(answer(job, lease), document)


def _facts(
    job: Job, checkpoint: dict[str, object], lease: Lease | None, terminal: Terminal
) -> None:
    terminal.line(f"{job.name}, pool {job.pool}, attempt {job.attempt}")
    if job.checkpoint:
        proof = "verified" if checkpoint["verified"] else "NOT verified"
        terminal.line(f"checkpoint at step {phrases.steps(job.checkpoint.step)}, {proof}")
        terminal.line(f"  {checkpoint['uri']}")
    else:
        terminal.line("no checkpoint yet")
    counters = job.counters
    terminal.line(
        f"{phrases.count(counters.interruptions, 'interruption')}, "
        f"{phrases.count(counters.crashes, 'crash')} of {job.spec.max_restarts} forgiven, "
        f"{phrases.count(counters.launch_failures, 'launch failure')}, "
        f"{phrases.count(job.steps_lost, 'step')} repeated"
    )
    if lease and lease.holder and lease.phase and not job.terminal:
        terminal.line(f"{lease.holder.instance_id} says {lease.phase.lower()}")


def attempts_table(attempts: Sequence[Attempt], terminal: Terminal, *, now: datetime) -> None:
    """Say which hosts the job has been on."""
    terminal.table(
        ("TRY", "HOST", "TYPE", "ZONE", "MARKET", "FROM", "TO", "ENDED"),
        [
            (
                str(row.n),
                row.instance_id or "-",
                row.instance_type or "-",
                row.zone or "-",
                row.market or "-",
                phrases.steps(row.restored_step),
                phrases.steps(row.last_step),
                row.cause or (phrases.moment(row.ended_at, now=now) if row.ended_at else "-"),
            )
            for row in attempts
        ],
    )


def answer(job: Job, lease: Lease | None) -> str:
    """Return where the job stands in one line."""
    known = lease is not None and lease.step is not None
    if job.status is JobStatus.SUCCEEDED:
        end = f" at step {phrases.steps(lease.step)}" if lease and known else ""
        interruptions = phrases.count(job.counters.interruptions, "interruption")
        repeated = phrases.count(job.steps_lost, "step")
        return f"{job.id} {job.status}{end}: {interruptions}, {repeated} repeated"
    if job.terminal:
        return f"{job.id} {job.status}: {job.reason}"
    step = f", step {phrases.steps(lease.step)}" if lease and known else ""
    needs = ", needs you" if job.needs_you else ""
    return f"{job.id} {job.status}: {job.reason}{step}{needs}"
