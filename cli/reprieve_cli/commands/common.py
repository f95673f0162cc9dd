"""What every command shares: how it reaches the cloud, its options, and how it finds a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import click

from reprieve.domain.job import Job
from reprieve_cli.errors import BadInputError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """Click's ``obj``; the cloud is looked for by the commands that need it, when they do."""

    find_cloud: Callable[[], Cloud]


def _terminal(_context: click.Context, _option: click.Parameter, value: bool) -> Terminal:  # noqa: FBT001 - click's signature
    return Terminal(json=value)


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--json``; the command receives a ``terminal``."""
    return click.option(
        "--json",
        "terminal",
        is_flag=True,
        callback=_terminal,
        help="Print one JSON document on stdout, everything else on stderr.",
    )(command)


def job_argument(command: Callable[P, T]) -> Callable[P, T]:
    """Add the argument JOB."""
    return click.argument("job_id", metavar="JOB")(command)


def find_job(cloud: Cloud, job_id: str) -> Job:
    """Return the job; raise ``BadInputError`` if there is none."""
    job = cloud.jobs.read(job_id)
    if job is None:
        raise BadInputError(
            f"no job {job_id} in stack {cloud.stack.name}: `reprieve queue` lists what isn't over"
        )
    return job
