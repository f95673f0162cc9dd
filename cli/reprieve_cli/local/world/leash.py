"""Run a command that must not outlive us: ``python -m …leash PARENT COMMAND…``."""

from __future__ import annotations

import os
import signal
import sys

from reprieve_cli.local.processes import die_with_parent


def main(arguments: list[str]) -> None:
    parent, *command = arguments
    die_with_parent(int(parent), signal.SIGKILL)  # survives exec
    os.execv(command[0], command)  # noqa: S606  # no shell is the point


if __name__ == "__main__":
    main(sys.argv[1:])
