"""``reprieve checkpoints``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from reprieve.domain.checkpoint import Manifest, step_of
from reprieve.domain.clock import NoticeClock
from reprieve.domain.job import Job
from reprieve.domain.retention import Retention
from reprieve.usecases.collect_checkpoints import CollectCheckpoints, Collection, may_collect
from reprieve_cli import contents, documents, phrases
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.documents import Inspected
from reprieve_cli.errors import AnswerIsNoError, BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

F = TypeVar("F", bound=Callable[..., object])


def _step_option(command: F) -> F:
    return click.option(
        "--step", type=click.IntRange(min=0), help="Of this step, the latest attempt's."
    )(command)


@click.group(short_help="Look at a job's checkpoints, check them, fetch one.")
def checkpoints() -> None:
    """Look at a job's checkpoints in the bucket."""


@checkpoints.command(name="ls", short_help="List them.")
@job_argument
@json_option
@click.pass_obj
def ls(context: Context, /, job_id: str, terminal: Terminal) -> None:
    """List the committed checkpoints of JOB, oldest first; * marks where it would resume."""
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    found = {
        key: documents.inspect(key, cloud.objects)
        for key in cloud.objects.sizes(f"jobs/{job.id}/manifests/")
        if step_of(key)
    }
    current = job.checkpoint.manifest if job.checkpoint else None
    rows = [_row(key, inspected) | {"current": key == current} for key, inspected in found.items()]
    if rows and not terminal.json:
        terminal.table(
            ("", "TRY", "STEP", "SAVED", "SIZE", "FILES", "STATE"),
            [
                (
                    "*" if row["current"] else "",
                    str(row["attempt"]),
                    phrases.steps(row["step"]),
                    phrases.moment(inspected.manifest.saved_at, now=cloud.now())
                    if inspected.manifest
                    else "-",
                    phrases.size(row["bytes"]),
                    str(row["files"]),
                    inspected.fault or "whole",
                )
                for row, inspected in zip(rows, found.values(), strict=True)
            ],
        )
    damaged = sum(1 for inspected in found.values() if inspected.fault)
    summary = phrases.count(len(rows), "checkpoint") if rows else "no checkpoints yet"
    terminal.answer(
        f"{summary}, {damaged} damaged" if damaged else summary,
        {"job": job.id, "checkpoints": rows},
    )


@checkpoints.command(name="verify", short_help="Read every byte and compare.")
@job_argument
@_step_option
@json_option
@click.pass_obj
def verify(context: Context, /, job_id: str, terminal: Terminal, *, step: int | None) -> None:
    """
    Read the checkpoints of JOB to the last byte and compare them with their manifests.

    All of them, or the one of --step. It downloads what it reads. Exit status 1 tells that
    one is damaged; a host that meets it goes back to the one before.
    """
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    rows, damaged = [], 0
    for key in _keys(cloud, job, step):
        inspected = documents.inspect(key, cloud.objects)
        found = [inspected.fault] if inspected.fault else []
        if inspected.manifest:
            found = contents.faults(inspected.manifest, cloud.objects)
        damaged += bool(found)
        rows.append(_row(key, inspected) | {"fault": "; ".join(found) or None})
        attempt, at_step = step_of(key) or (0, 0)
        state = "; ".join(found) or "every byte as it was saved"
        terminal.line(f"try {attempt}, step {phrases.steps(at_step)}: {state}", indent=2)
    document = {"job": job.id, "checkpoints": rows}
    whole = f"{phrases.count(len(rows) - damaged, 'checkpoint')} whole"
    terminal.answer(f"{whole}, {damaged} damaged" if damaged else whole, document)
    if damaged:
        raise click.exceptions.Exit(AnswerIsNoError.exit_code)


@checkpoints.command(name="restore", short_help="Fetch one into a folder.")
@job_argument
@click.argument("folder", type=click.Path(path_type=Path))
@_step_option
@json_option
@click.pass_obj
def restore(
    context: Context, /, job_id: str, folder: Path, terminal: Terminal, *, step: int | None
) -> None:
    """
    Write the newest checkpoint of JOB, or the one of --step, into FOLDER.

    FOLDER must be empty or not exist. It appears when everything is there and matches the
    manifest, and not at all otherwise.
    """
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    manifest = _chosen(cloud, job, step)
    contents.restore(manifest, cloud.objects, folder)
    files = phrases.count(len(manifest.files), "file")
    terminal.answer(
        f"step {phrases.steps(manifest.step)} in {folder}: {files}, {phrases.size(manifest.size)}",
        {
            "job": job.id,
            "step": manifest.step,
            "manifest": manifest.key,
            "folder": str(folder),
            "bytes": manifest.size,
        },
    )


@checkpoints.command(name="gc", short_help="Show what is superfluous; delete it if told to.")
@job_argument
@click.option("--keep", type=click.IntRange(min=1), default=3, help="How many of the newest stay.")
@click.option(
    "--every", type=click.IntRange(min=0), default=0, help="Of so many steps the first stays, too."
)
@click.option("--delete", is_flag=True, help="Delete it now, and don't wait for the sweep.")
@json_option
@click.pass_obj
def gc(
    context: Context,
    /,
    job_id: str,
    terminal: Terminal,
    *,
    keep: int,
    every: int,
    delete: bool,
) -> None:
    """
    Show which checkpoints of JOB the newer ones made superfluous.

    The sweep deletes them by itself, under the same conditions and with the stack's own
    numbers: only while a host holds the job and has committed a checkpoint that is all
    there; never what that attempt began from. --delete does it now; your credentials must
    allow s3:DeleteObject, which no policy of the stack gives.
    """
    cloud = context.find_cloud()
    job = find_job(cloud, job_id)
    collect = CollectCheckpoints(
        cloud.rows, cloud.stored, Retention(keep, every), 2 * NoticeClock().notice, cloud.now
    )
    lease = cloud.jobs.lease(job.lease_key)
    if lease is None or not may_collect(job, lease):
        found = Collection()
        why = "nothing can go: no host holds the job and has committed under its current attempt"
    else:
        found = collect(job.id) if delete else collect.plan(lease)
        why = "nothing is superfluous"
    done = "deleted" if delete else "superfluous, kept until the sweep or --delete"
    what = phrases.count(len(found.manifests), "checkpoint")
    said = f"{what}, {phrases.size(found.bytes)} {done}"
    for key in found.manifests:
        attempt, step = step_of(key) or (0, 0)
        terminal.line(f"try {attempt}, step {phrases.steps(step)}")
    terminal.answer(
        said if found else why,
        {
            "job": job.id,
            "deleted": delete,
            "checkpoints": list(found.manifests),
            "objects": len(found.data),
            "bytes": found.bytes,
        },
    )


def _keys(cloud: Cloud, job: Job, step: int | None) -> list[str]:
    """Return the manifests of *job*, oldest first, or those of one step; ``BadInputError``."""
    places = {
        key: place
        for key in cloud.objects.sizes(f"jobs/{job.id}/manifests/")
        if (place := step_of(key))
    }
    keys = sorted(places, key=lambda key: places[key])
    if step is None:
        return keys
    keys = [key for key in keys if places[key][1] == step]
    if not keys:
        raise BadInputError(f"{job.id} has no checkpoint of step {step}: reprieve checkpoints ls")
    return keys


def _chosen(cloud: Cloud, job: Job, step: int | None) -> Manifest:
    """Return the manifest to restore from; raise what a person can understand."""
    if step is None and job.checkpoint is None:
        raise AnswerIsNoError(f"{job.id} has no checkpoint yet")
    current = job.checkpoint.manifest if job.checkpoint else ""
    key = current if step is None else _keys(cloud, job, step)[-1]
    inspected = documents.inspect(key, cloud.objects)
    if inspected.manifest is None:
        raise AnswerIsNoError(f"{key}: {inspected.fault} (reprieve checkpoints ls)")
    return inspected.manifest


def _row(key: str, inspected: Inspected) -> dict[str, Any]:
    attempt, step = step_of(key) or (0, 0)
    manifest = inspected.manifest
    return {
        "attempt": attempt,
        "step": step,
        "manifest": key,
        "saved_at": manifest.saved_at.isoformat() if manifest else None,
        "bytes": manifest.size if manifest else 0,
        "files": len(manifest.files) if manifest else 0,
        "fault": inspected.fault or None,
    }
