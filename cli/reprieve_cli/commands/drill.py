"""``reprieve drill``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprieve_cli.commands.common import json_option
from reprieve_cli.errors import BadInputError
from reprieve_cli.terminal import Terminal, trouble

if TYPE_CHECKING:
    from reprieve_cli.drill.scenario import Scenario


def _print_schema(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the format and leave: it needs no scenario."""
    if not value:
        return
    from reprieve_cli.drill.form import schema

    Terminal(json=True).answer("", schema())
    context.exit()


@click.command(short_help="Play a scenario on an embedded cloud and say what held.")
@click.argument(
    "files",
    metavar="SCENARIO…",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option("--up", is_flag=True, help="Play on the cloud that `reprieve local up` keeps.")
@click.option("--verbose", is_flag=True, help="Tell the whole timeline, also of what held.")
@click.option("--keep", is_flag=True, help="Leave the cloud up at the end, until Ctrl-C.")
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the outcome for a CI system.",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the format of scenarios as JSON Schema.",
)
@json_option
def drill(*, files: tuple[Path, ...], terminal: Terminal, **options: Any) -> None:
    """
    Play each SCENARIO (a YAML file) and look whether what it expects holds.

    Each gets an embedded cloud of its own: real functions, agents and checkpoints, and a
    world that does to them what EC2 can do. Exit status: 0 everything held, 1 something
    did not, 2 a file can't be played, 3 there is no cloud to play it on.
    """
    from reprieve_cli.drill import junit, report
    from reprieve_cli.drill.session import Options, play

    target: Path | None = options.pop("junit")
    wanted = Options(**options)
    if wanted.keep and (len(files) > 1 or wanted.up):
        raise BadInputError("--keep is for one scenario on a cloud of its own")
    outcomes = play(_read(files), wanted, terminal)
    if target is not None:
        target.write_text(junit.document(outcomes), encoding="utf-8")
    terminal.answer(report.verdict(outcomes), report.document(outcomes))
    if not all(outcome.holds for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _read(files: tuple[Path, ...]) -> list[Scenario]:
    """Read all of them before any is played; raise ``BadInputError`` once all problems are said."""
    from reprieve_cli.drill.document import ScenarioError, load

    scenarios, problems = [], 0
    for path in files:
        try:
            scenarios.append(load(path))
        except ScenarioError as error:
            trouble(str(error))
            problems += len(error.problems)
    if problems:
        text = "1 problem" if problems == 1 else f"{problems} problems"
        raise BadInputError(f"nothing was played: {text} in the files, see docs/drills.md")
    return scenarios
