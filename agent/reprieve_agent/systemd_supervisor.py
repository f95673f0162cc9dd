"""Keeping a job in a transient systemd unit."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprieve.domain.lease import LeaseKey
from reprieve_agent.child_supervisor import (
    KILL_PATIENCE_SECONDS,
    LONGEST_DETAIL,
    POLL_SECONDS,
    START_PATIENCE_SECONDS,
    ChildSupervisor,
)
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import JobStart, LaunchError, public_name

METADATA_ADDRESSES = "169.254.169.254/32 fd00:ec2::254/128"
# The agent hands a job over within 90 s of its own stop, and may take 110 s to leave.
SAVE_SECONDS = 95.0
ANSWER_SECONDS = 6.0  # the agent's own limit for a decision is 5 s
PROPERTIES: Mapping[str, str] = {
    "Type": "exec",
    # SIGTERM to the keeper alone: control-group would end the data workers of a save first.
    "KillMode": "mixed",
    "TimeoutStopSec": "100",
    # Stopped before the agent when the host shuts down: what is saved then is still uploaded.
    "After": "reprieve-agent.service",
    # How it ended stays known until it was asked for.
    "RemainAfterExit": "yes",
    "SuccessExitStatus": "75",
    # A worker that runs out of memory is the job's own affair, as it is without systemd.
    "OOMPolicy": "continue",
    "TasksMax": "infinity",
    "IgnoreSIGPIPE": "no",
    "NoNewPrivileges": "yes",
    "IPAddressDeny": METADATA_ADDRESSES,
}
UNIT_NOT_LOADED = 5  # exit status of systemctl
EXITED = "1"  # CLD_EXITED


class SystemdSupervisor(ChildSupervisor):
    """
    Keeps each job in a transient unit: it survives the agent and its watchdog's restarts.

    The unit's main process is the same keeper; systemd adds the cgroup, stops the job
    before the agent when the host shuts down, and keeps it off the metadata service.
    *agent_socket* is where the keeper then asks for the job to be saved.
    """

    def __init__(self, agent_socket: Path) -> None:
        super().__init__()
        self._agent_socket = agent_socket

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt; the cgroup catches what /proc didn't show."""
        gone = super().kill(key, places)
        known = self._found(places)
        if known:  # it has something to write down
            self._wait_for_keeper(known, seconds=KILL_PATIENCE_SECONDS)
        _systemctl("kill", "--signal=KILL", unit(places))
        stopped = _systemctl("stop", unit(places))  # returns when the cgroup is empty
        _systemctl("reset-failed", unit(places))
        return gone and stopped

    def _order(self, start: JobStart) -> dict[str, Any]:
        agent = {
            "socket": str(self._agent_socket),
            "answer_seconds": ANSWER_SECONDS,
            "save_seconds": SAVE_SECONDS,
        }
        return super()._order(start) | {"agent": agent}

    def _start_keeper(self, start: JobStart) -> None:
        command = [*unit_command(start), "--", *self._command(start)]
        try:
            done = subprocess.run(
                command,
                check=False,
                capture_output=True,
                text=True,
                timeout=START_PATIENCE_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise LaunchError("systemd-run doesn't answer") from error
        if done.returncode:
            raise LaunchError(f"systemd-run: {done.stderr.strip()[-LONGEST_DETAIL:]}")

    def _status(self, places: Places, process: Process) -> int | None:  # noqa: ARG002 - the port's
        """Return what systemd saw, and let it forget the unit."""
        ends = time.monotonic() + KILL_PATIENCE_SECONDS
        seen = _end_of(unit(places))
        while seen == ("0", "0") and time.monotonic() < ends:
            time.sleep(POLL_SECONDS)  # it has not yet heard that the keeper is gone
            seen = _end_of(unit(places))
        _systemctl("--no-block", "stop", unit(places))
        _systemctl("reset-failed", unit(places))
        return int(seen[1]) if seen and seen[0] == EXITED else None

    def _abandon(self, start: JobStart) -> None:
        super()._abandon(start)
        _systemctl("reset-failed", unit(start.places))  # or its name would be taken


def unit(places: Places) -> str:
    """Return the name of an attempt's unit."""
    return f"{public_name(places)}.service"


def unit_command(start: JobStart) -> list[str]:
    """Return what makes the unit; the command to run in it follows."""
    return [
        "systemd-run",
        f"--unit={unit(start.places)}",
        f"--description=Reprieve job {start.key.job}, attempt {start.key.attempt}",
        "--quiet",
        *(f"--property={name}={value}" for name, value in PROPERTIES.items()),
    ]


def _end_of(name: str) -> tuple[str, str] | None:
    """Return code and status of the main process's end, zeros while it runs."""
    asked = ["systemctl", "show", "--property=LoadState,ExecMainCode,ExecMainStatus", name]
    done = _run(asked)
    if done is None or done.returncode:
        return None
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if said.get("LoadState") != "loaded":
        return None
    return said["ExecMainCode"], said["ExecMainStatus"]


def _systemctl(*arguments: str) -> bool:
    done = _run(["systemctl", "--quiet", *arguments])
    return done is not None and done.returncode in {0, UNIT_NOT_LOADED}


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=KILL_PATIENCE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
