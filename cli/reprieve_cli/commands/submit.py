"""``reprieve submit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.ignore import IGNORE_FILE
from reprieve_cli.terminal import Terminal


@click.command(
    # Options of the job's own command are not ours, also when the `--` was forgotten.
    context_settings={"allow_interspersed_args": False},
    short_help="Queue a job.",
)
@click.option("--pool", metavar="NAME", help="Pool to run in; by default the only one.")
@click.option("--name", metavar="NAME", help="Name for people; by default the script's.")
@click.option(
    "--code",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Folder to run in; {IGNORE_FILE} keeps files out, by the rules of .gitignore.",
)
@click.option("--setup", metavar="LINE", help="Shell line that prepares a host for this code.")
@click.option("--env", multiple=True, metavar="K=V", help="Variable of the job; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="K=ARN",
    help="Variable whose value the host fetches from there; repeatable.",
)
@click.option("--save-every", metavar="TIME", help="Periodic saves: 90s, 10m, 1h.")
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="Crashes forgiven; interruptions are never counted.",
)
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.pass_obj
def submit(context: Context, /, terminal: Terminal, **given: Any) -> None:
    r"""
    Queue COMMAND, run without a shell in the folder that --code names.

    \b
    reprieve submit --code . --setup 'pip install -r requirements.txt' \
        -- python train.py --epochs 3
    """
    from reprieve_cli import submission

    request = submission.Request(**given)
    job = submission.submit(request, context.find_cloud, warn=terminal.warn)
    if not terminal.json:
        terminal.line(f"queued in pool {job.pool}; follow it: reprieve wait {job.id}")
    terminal.answer(
        job.id, {"id": job.id, "name": job.name, "pool": job.pool, "code": job.spec.code}
    )
