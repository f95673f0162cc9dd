"""``reprieve queue``."""

from __future__ import annotations

import click

from reprieve.domain.job import Job
from reprieve.domain.lease import Lease
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal


@click.command(short_help="List the jobs that aren't over.")
@click.option("--pool", metavar="NAME", help="Only this pool.")
@json_option
@click.pass_obj
def queue(context: Context, /, pool: str | None, terminal: Terminal) -> None:
    """List the jobs that run or wait, and why they wait."""
    cloud = context.find_cloud()
    pools = [cloud.stack.pool(pool).name] if pool else list(cloud.stack.pools)
    entries = [entry for name in pools for entry in _entries(cloud, name)]
    if entries and not terminal.json:
        terminal.table(
            ("JOB", "STATUS", "TRY", "STEP", "SAVED", "WHERE OR WHY"),
            [_row(cloud, job, lease) for job, lease in entries],
        )
    waiting = sum(1 for _, lease in entries if not (lease and lease.holder))
    summary = f"{phrases.count(len(entries), 'job')} in {', '.join(pools)}"
    terminal.answer(
        f"{summary}: {len(entries) - waiting} on hosts, {waiting} waiting"
        if entries
        else f"no jobs in {', '.join(pools)}",
        {"jobs": [documents.in_queue(job, lease) for job, lease in entries]},
    )


def _entries(cloud: Cloud, pool: str) -> list[tuple[Job, Lease | None]]:
    """Read each job that the index names; one that ended meanwhile is left out."""
    jobs = [cloud.jobs.read(job_id) for job_id, _ in cloud.jobs.live(pool).jobs]
    found = sorted(
        (job for job in jobs if job and not job.terminal), key=lambda job: job.created_at
    )
    leases = cloud.jobs.leases(job.lease_key for job in found)
    return [(job, leases.get(job.lease_key)) for job in found]


def _row(cloud: Cloud, job: Job, lease: Lease | None) -> tuple[str, ...]:
    why = lease.holder.instance_id if lease and lease.holder else job.reason
    if job.needs_you:
        why = f"needs you: {job.reason}"
    elif job.next_try_at:
        why = f"{job.reason}; next try {phrases.moment(job.next_try_at, now=cloud.now())}"
    return (
        job.id,
        job.status.value,
        str(job.attempt),
        phrases.steps(lease.step if lease else None),
        phrases.steps(job.checkpoint.step if job.checkpoint else None),
        why,
    )
