"""``reprieve demo``."""

from __future__ import annotations

from typing import Any

import click

from reprieve_cli import phrases
from reprieve_cli.commands.common import json_option
from reprieve_cli.terminal import Terminal


@click.command(short_help="Watch a job survive an interruption, here, without an account.")
@click.option(
    "--notice-seconds",
    type=click.FloatRange(3, 120),
    default=6.0,
    show_default=True,
    help="Length of the notice; EC2 gives 120 s.",
)
@click.option(
    "--steps",
    type=click.IntRange(100, 100_000),
    default=400,
    show_default=True,
    help="Optimiser steps of the training run.",
)
@click.option(
    "--forget-random-state",
    is_flag=True,
    help="Leave it out of checkpoints, to see the weights differ.",
)
@click.option("--keep", is_flag=True, help="Leave the cloud up at the end, until Ctrl-C.")
@json_option
def demo(*, terminal: Terminal, **options: Any) -> None:
    """
    Train, interrupt, resume, and compare with a run that nobody interrupted.

    Exit status 0 only if the job succeeded from a checkpoint in the bucket with weights
    that are identical to the last bit.
    """
    from reprieve_cli.demo import Options, run

    receipt, faults = run(Options(**options), terminal)
    job = receipt.job
    if faults:
        answer = f"no: {'; '.join(faults)}"
    else:
        answer = (
            f"{job['id']} SUCCEEDED at step {receipt.steps_total:,}: "
            f"{phrases.count(receipt.interruptions, 'interruption')}, "
            f"{phrases.count(receipt.steps_repeated, 'step')} repeated, weights identical"
        )
    terminal.answer(answer, receipt.document())
    if faults:
        raise click.exceptions.Exit(1)
