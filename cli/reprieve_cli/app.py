"""The command line as a whole: which commands there are, and how each of them ends."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from reprieve_cli.commands.cancel import cancel
from reprieve_cli.commands.checkpoints import checkpoints
from reprieve_cli.commands.common import Context
from reprieve_cli.commands.demo import demo
from reprieve_cli.commands.doctor import doctor
from reprieve_cli.commands.drain import drain
from reprieve_cli.commands.drill import drill
from reprieve_cli.commands.hosts import hosts
from reprieve_cli.commands.leave import leave
from reprieve_cli.commands.local import local
from reprieve_cli.commands.logs import logs
from reprieve_cli.commands.plan import plan
from reprieve_cli.commands.pools import pools
from reprieve_cli.commands.queue import queue
from reprieve_cli.commands.requeue import requeue
from reprieve_cli.commands.savings import savings
from reprieve_cli.commands.simulate import simulate
from reprieve_cli.commands.status import status
from reprieve_cli.commands.submit import submit
from reprieve_cli.commands.wait import wait
from reprieve_cli.commands.why import why
from reprieve_cli.errors import BadInputError, CliError, Exit
from reprieve_cli.failures import translate
from reprieve_cli.stack import Cloud
from reprieve_cli.terminal import Terminal, trouble


class Commands(click.Group):
    """The commands in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names as they were added."""
        return list(self.commands)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    no_args_is_help=True,
)
@click.version_option(package_name="reprieve", message="reprieve %(version)s")
def cli() -> None:
    """
    Run long GPU jobs on EC2 Spot: checkpoint on notice, replace the host, resume.

    The stack is found by REPRIEVE_STACK (default Reprieve) in AWS_REGION. Exit status:
    0 yes, 1 no (with the reason), 2 bad input, 3 cloud unreachable.
    """


COMMANDS: tuple[click.Command, ...] = (
    demo,
    submit,
    queue,
    status,
    why,
    wait,
    logs,
    cancel,
    requeue,
    checkpoints,
    hosts,
    pools,
    drain,
    drill,
    doctor,
    leave,
    savings,
    plan,
    simulate,
    local,
)
for command in COMMANDS:
    cli.add_command(command)


def run(arguments: Sequence[str], *, find_cloud: Callable[[], Cloud]) -> int:
    """Run one command and return its exit status; the only place that turns errors into words."""
    try:
        ended: object = cli.main(
            args=list(arguments),
            prog_name="reprieve",
            obj=Context(find_cloud),
            standalone_mode=False,
        )
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
        return Exit.BAD_INPUT
    except (KeyboardInterrupt, click.Abort):
        trouble("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:  # noqa: BLE001 - a person gets a line, not a traceback
        return _fail(error, as_json=_wants_json(arguments))
    # What `click.exceptions.Exit` carried; commands themselves return nothing.
    return ended if isinstance(ended, int) else Exit.YES


def _fail(error: Exception, *, as_json: bool) -> int:
    if isinstance(error, click.ClickException):
        error = BadInputError(_usage(error))
    told = translate(error) or _defect(error)
    trouble(f"error: {told}")
    if as_json:
        document = {"error": {"exit_code": int(told.exit_code), "message": str(told)}}
        Terminal(json=True).answer("", document)
    return told.exit_code


def _usage(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message} (see `{context.command_path} --help`)" if context else message


def _defect(error: Exception) -> CliError:
    if os.environ.get("REPRIEVE_DEBUG"):
        traceback.print_exception(error)
    reason = " ".join(str(error).split())[:200] or "no message"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return CliError(f"{error.filename}: {error.strerror}")
    return CliError(f"unexpected {type(error).__name__}: {reason} (REPRIEVE_DEBUG=1 shows where)")


def _wants_json(arguments: Sequence[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _nobody_reads() -> int:
    """Leave without Python's own complaint at exit about the closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.NO
