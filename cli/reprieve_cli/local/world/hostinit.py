"""
Process 1 of a host: ``python -m …hostinit PARENT PIDFILE COMMAND…``.

It starts the agent in a session of its own and starts it again when it crashes, as systemd
does. Orphans are handed to it, so whatever the host runs stays below it in the process tree.
When the agent ends with 0, or after SIGPWR (the power button) with any code, the host has shut
down: init ends everything and exits. After SIGUSR2 (``systemctl stop`` of the agent's unit) the
host stays on without an agent. It goes down with all it runs when the world dies.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from reprieve_cli.local.processes import adopt_orphans, die_with_parent, kill_descendants

RESTART_SECONDS = 1.0  # RestartSec of the agent's unit
REAP_SECONDS = 0.1


class Init:
    def __init__(self, command: list[str], pidfile: Path) -> None:
        self._command = command
        self._pidfile = pidfile
        self._agent: int | None = None
        self._powering_off = False
        self._stopped = False

    def run(self) -> None:
        """Keep the agent running until the host shuts down."""
        while not (self._powering_off or self._stopped):
            exit_code = self._run_agent()
            if self._stopped or exit_code == 0:
                break
            sys.stderr.write(f"agent ended with {exit_code}\n")
            sys.stderr.flush()
            if not self._powering_off:
                time.sleep(RESTART_SECONDS)
        while self._stopped and not self._powering_off:
            with suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(REAP_SECONDS)
        kill_descendants(os.getpid())

    def press_power_button(self, _signal: int, _frame: object) -> None:
        self._powering_off = True
        self._tell_agent()

    def stop_agent(self, _signal: int, _frame: object) -> None:
        self._stopped = True
        self._tell_agent()

    def _tell_agent(self) -> None:
        if self._agent is not None:
            os.kill(self._agent, signal.SIGTERM)

    def pull_the_plug(self, _signal: int, _frame: object) -> None:
        kill_descendants(os.getpid())
        os._exit(128 + signal.SIGTERM)

    def _run_agent(self) -> int:
        defaults = [signal.SIGTERM, signal.SIGPIPE, signal.SIGPWR]
        agent = os.posix_spawn(
            self._command[0], self._command, os.environ, setsid=True, setsigdef=defaults
        )
        self._agent = agent
        self._pidfile.write_text(f"{agent}\n", encoding="ascii")
        while True:  # orphans are reaped here too
            pid, status = os.waitpid(-1, 0)
            if pid == agent:
                self._agent = None
                return os.waitstatus_to_exitcode(status)


def main(arguments: list[str]) -> None:
    parent, pidfile, *command = arguments
    init = Init(command, Path(pidfile))
    signal.signal(signal.SIGTERM, init.pull_the_plug)
    signal.signal(signal.SIGPWR, init.press_power_button)
    signal.signal(signal.SIGUSR2, init.stop_agent)
    die_with_parent(int(parent), signal.SIGTERM)
    adopt_orphans()
    init.run()


if __name__ == "__main__":
    main(sys.argv[1:])
