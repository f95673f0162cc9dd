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
@click.option("--image", metavar="NAME", help="Container image to run in; by name@sha256:...")
@click.option("--env", multiple=True, metavar="K=V", help="Variable of the job; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="K=ARN",
    help="Variable whose value the host fetches from there; repeatable.",
)
@click.option(
    "--save-every",
    metavar="TIME",
    help="Periodic saves: 90s, 10m, 1h, never; by default as often as the odds say.",
)
@click.option("--deadline", metavar="TIME", help="When it must be done: 60h from now, or a date.")
@click.option("--work", metavar="TIME", help="With a deadline: the time it works, undisturbed.")
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="With a deadline: the steps in that work."
)
@click.option(
    "--if-stuck",
    type=click.Choice(["park", "on-demand"]),
    default="park",
    show_default=True,
    help="When it gets nowhere and has no fallback pool.",
)
@click.option(
    "--if-spot-loses",
    type=click.Choice(["on-demand", "park", "nothing"]),
    default="on-demand",
    show_default=True,
    help="When redone work has made Spot dearer than on demand.",
)
@click.option(
    "--profile",
    multiple=True,
    metavar="NAME|PATTERN",
    help="How its checkpoints look, if it has no reprieve_job: hf, lightning, dcp, orbax,"
    " deepspeed or 'ckpt-{step}/model.pt:BYTES'; patterns are repeatable.",
)
@click.option("--no-helper", is_flag=True, help="Leave its PYTHONPATH alone.")
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="Crashes forgiven; interruptions are never counted.",
)
@click.option("--gpus", type=click.IntRange(1, 16), metavar="N", help="GPUs it uses, at least.")
@click.option(
    "--gpu-memory",
    type=click.FloatRange(0.1, 1024),
    metavar="GIB",
    help="What it uses of one GPU at its peak; a tenth is added.",
)
@click.option("--gpu-model", metavar="NAME", help="The one model it runs on: L4, A100, H100...")
@click.option(
    "--compute-capability",
    "capabilities",
    metavar="LIST",
    help="What its code is compiled for: 8.0,8.6 or, with PTX, 8.0+.",
)
@click.option("--precision", type=click.Choice(["bf16", "fp8"]), help="What its GPUs must do.")
@click.option("--nvlink", is_flag=True, help="Its GPUs must be linked.")
@click.option(
    "--host-memory", type=click.IntRange(1, 8192), metavar="GIB", help="Memory of the host."
)
@click.option(
    "--same-gpus",
    is_flag=True,
    help="Results depend on the GPUs: always exactly --gpus of --gpu-model.",
)
@click.option(
    "--fallback-pool", metavar="NAME", help="Where it goes on if it gets nowhere in its pool."
)
@click.option("--dry-run", is_flag=True, help="Say what would be launched; write nothing.")
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.pass_obj
def submit(context: Context, /, terminal: Terminal, **given: Any) -> None:
    """
    Queue COMMAND, run without a shell in the folder that --code names.

    For example: reprieve submit --code . -- python train.py --epochs 3
    """
    from reprieve_cli import submission

    dry_run = given.pop("dry_run")
    request = submission.Request(**given)
    if dry_run:
        _dry_run(context, terminal, request)
        return
    job = submission.submit(request, context.find_cloud, warn=terminal.warn)
    if not terminal.json:
        terminal.line(f"queued in pool {job.pool}; follow it: reprieve wait {job.id}")
    terminal.answer(
        job.id, {"id": job.id, "name": job.name, "pool": job.pool, "code": job.spec.code}
    )


def _dry_run(context: Context, terminal: Terminal, request: Any) -> None:
    from reprieve_cli import outlook, submission

    cloud, pool, spec = submission.check(request, context.find_cloud, warn=terminal.warn)
    found = outlook.look(cloud, pool, spec.needs)
    if not terminal.json:
        outlook.say(found, terminal, now=cloud.now())
    terminal.answer(found.answer, {"dry_run": True, **outlook.document(found)})
