"""``reprieve doctor``."""

from __future__ import annotations

import click

from reprieve_cli.commands.common import json_option
from reprieve_cli.terminal import Terminal


@click.command(short_help="Find out what would stop a job.")
@json_option
def doctor(terminal: Terminal) -> None:
    """Check credentials, stack, vCPU quotas, the Spot role, the image and versions."""
    from reprieve_cli.doctor import MARKS, State, examine, verdict

    checks = []
    with terminal.working("looking"):
        for check in examine():
            checks.append(check)
            remedy = f" -> {check.remedy}" if check.remedy else ""
            terminal.line(f"{MARKS[check.state]:<5} {check.name}: {check.found}{remedy}", indent=6)
    failed = verdict(checks)
    warnings = sum(1 for check in checks if check.state is State.WARN)
    ready = "jobs can run" + (f", {warnings} warnings" if warnings else "")
    terminal.answer(
        f"no: {failed}" if failed else ready,
        {
            "ok": failed is None,
            "checks": [
                {
                    "name": check.name,
                    "state": check.state.value,
                    "found": check.found,
                    "remedy": check.remedy,
                }
                for check in checks
            ],
        },
    )
    if failed:
        raise click.exceptions.Exit(failed.exit_code)
