"""``reprieve leave``."""

from __future__ import annotations

import time

import click

from reprieve.domain.host import InstanceState
from reprieve_cli import phrases
from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.errors import AnswerIsNoError
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal

PATIENCE_SECONDS = 300.0
POLL_SECONDS = 2.0


@click.command(short_help="Terminate every host, before the stack is destroyed.")
@click.option("--yes", is_flag=True, help="Also with jobs that aren't over.")
@json_option
@click.pass_obj
def leave(context: Context, /, terminal: Terminal, *, yes: bool) -> None:
    """
    Stop buying hosts and terminate those there are.

    A network with hosts in it can't be deleted, so do this before `cdk destroy`; `make
    destroy` does both. What the jobs have committed stays in the bucket. To use the stack
    again instead, deploy it anew: nothing is launched until then.
    """
    cloud = context.find_cloud()
    waiting = [job for pool in cloud.stack.pools for job, _ in cloud.jobs.live(pool).jobs]
    if waiting and not yes:
        raise AnswerIsNoError(
            f"{phrases.count(len(waiting), 'job')} not over ({', '.join(sorted(waiting)[:3])}): "
            "cancel them, or say --yes and keep their checkpoints only"
        )
    cloud.stop_launching()
    with terminal.working("terminating hosts") as show:
        told = _terminate(cloud)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while left := _alive(cloud):
            if time.monotonic() > give_up:
                raise AnswerIsNoError(f"still there after five minutes: {', '.join(sorted(left))}")
            told |= _terminate(cloud)
            show(f"{phrases.count(len(left), 'host')} shutting down")
            time.sleep(POLL_SECONDS)
    terminal.answer(
        f"{phrases.count(len(told), 'host')} terminated, none left", {"terminated": sorted(told)}
    )


def _terminate(cloud: Cloud) -> set[str]:
    alive = _alive(cloud)
    if alive:
        cloud.fleet.terminate(sorted(alive))
    return alive


def _alive(cloud: Cloud) -> set[str]:
    return {i.instance_id for i in cloud.fleet.ours() if i.state is InstanceState.ALIVE}
