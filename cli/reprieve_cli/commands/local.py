"""``reprieve local``."""

from __future__ import annotations

import shlex

import click

from reprieve_cli.commands.common import json_option
from reprieve_cli.errors import CloudUnreachableError
from reprieve_cli.terminal import Terminal


@click.group(short_help="Keep an embedded cloud on this machine.")
def local() -> None:
    """Keep an embedded cloud on this machine, without an AWS account."""


@local.command(short_help="Start it and deploy the stack to it.")
@click.option(
    "--notice-seconds",
    type=click.FloatRange(3, 120),
    default=20.0,
    show_default=True,
    help="Length of the notice; EC2 gives 120 s.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Port to listen on; by default a free one.",
)
@json_option
def up(*, notice_seconds: float, port: int, terminal: Terminal) -> None:
    """Start the embedded cloud in the background and deploy the stack to it."""
    from reprieve_cli.local import cloud
    from reprieve_cli.provision import prepare, provision

    with terminal.working("starting") as show:
        running = cloud.up(notice_seconds=notice_seconds, port=port)
        try:
            show("synthesising the stack")
            localized = prepare(
                {}, notice_seconds=notice_seconds, target=running.run_dir / "assembly"
            )
            show("deploying it")
            provisioned = provision(running, localized)
        except BaseException:
            cloud.down()
            raise
    if not terminal.json:
        terminal.line('point this shell at it with: eval "$(reprieve local env)"')
    terminal.answer(
        f"up at {running.endpoint} with stack {provisioned.stack}",
        {
            "endpoint": running.endpoint,
            "control": running.control.url,
            "stack": provisioned.stack,
            "env": running.env,
            "removed_from_template": list(provisioned.removed),
            "changed_for_local": list(provisioned.changed),
        },
    )


@local.command(short_help="Print what points a shell at it.")
@json_option
def env(terminal: Terminal) -> None:
    """Print the variables that point any AWS SDK, and reprieve, at the embedded cloud."""
    from reprieve_cli.local import cloud

    try:
        variables = cloud.load().env
    except cloud.CloudError as error:
        raise CloudUnreachableError(str(error)) from error
    if terminal.json:
        terminal.answer("", variables)
    for name, value in sorted(variables.items() if not terminal.json else ()):
        click.echo(f"export {name}={shlex.quote(value)}")


@local.command(short_help="Stop it and forget everything in it.")
@json_option
def down(terminal: Terminal) -> None:
    """Stop the embedded cloud with everything in it; fine if there is none."""
    from reprieve_cli.local import cloud

    was_up = cloud.down()
    terminal.answer("down" if was_up else "nothing was up", {"was_up": was_up})
