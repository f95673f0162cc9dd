"""``reprieve pools``."""

from __future__ import annotations

import click

from reprieve_cli.commands.common import Context, json_option
from reprieve_cli.terminal import Terminal


@click.command(short_help="Say what each pool would ask EC2 for now, and why.")
@click.option("--pool", metavar="NAME", help="Only this pool.")
@json_option
@click.pass_obj
def pools(context: Context, /, pool: str | None, terminal: Terminal) -> None:
    """
    Say what each pool would ask EC2 for now, tier by tier, and why not for the rest.

    It is the answer that the next launch gets, at today's prices; nothing is written.
    """
    from reprieve_cli import outlook

    cloud = context.find_cloud()
    chosen = [cloud.stack.pool(pool)] if pool else list(cloud.stack.pools.values())
    found = [outlook.look(cloud, one) for one in chosen]
    if not terminal.json:
        for one in found:
            outlook.say(one, terminal, now=cloud.now())
        for one in found[:-1]:
            terminal.line(one.answer)
    terminal.answer(
        found[-1].answer if found else "no pools",
        {"pools": [outlook.document(one) for one in found]},
    )
