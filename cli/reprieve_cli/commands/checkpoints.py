"""``reprieve checkpoints``."""

from __future__ import annotations

from typing import Any

import click

from reprieve.domain.checkpoint import step_of
from reprieve_cli import documents, phrases
from reprieve_cli.commands.common import Context, find_job, job_argument, json_option
from reprieve_cli.documents import Inspected
from reprieve_cli.terminal import Terminal


@click.group(short_help="Look at a job's checkpoints.")
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
