"""Starting, watching and ending a job's processes, with and without systemd."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from reprieve.domain.lease import LeaseKey
from reprieve_agent import handover, keeper, processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Account, Places
from reprieve_agent.state import Process

log = logging.getLogger(__name__)

START_PATIENCE_SECONDS = 20.0
KILL_PATIENCE_SECONDS = 10.0
POLL_SECONDS = 0.005
LAST_LINE_BYTES = 4096
LONGEST_DETAIL = 200


class LaunchError(Exception):
    """The job's keeper didn't come up; nothing of the job runs."""


class TooLateError(Exception):
    """The start was delayed beyond the moment until which it was allowed."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """What is to be started; *secrets* join its environment without lying in any file."""

    key: LeaseKey
    places: Places
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    account: Account | None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a job ended; *stopped* if the system's own shutdown stopped it first."""

    exit_code: int | None
    detail: str = ""
    stopped: bool = False


class Supervisor(Protocol):
    """
    Who keeps the job's processes.

    A start is idempotent: what already runs for that attempt is found, not started again.
    """

    def launch(self, start: JobStart, *, not_after: float) -> Process:
        """Start it unless it runs; raise ``TooLateError`` or ``LaunchError``."""

    def wait(self, key: LeaseKey, places: Places, process: Process) -> Exit:
        """Return once the job is over."""

    def terminate(self, process: Process) -> None:
        """SIGTERM to the main process."""

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt, now and for good: a later launch is refused."""


def marker(key: LeaseKey) -> str:
    """Return the entry of the environment by which every process of an attempt is known."""
    return f"REPRIEVE_TOKEN={key.token}"


def begun(places: Places) -> bool:
    """Whether the job itself was started: whatever it was to be given, it has."""
    process = read_json(places.process) or {}
    return process.get("pid") is not None or read_json(places.exit) is not None


class ChildSupervisor:
    """Keeps jobs as sessions of their own, found again by pid and start time."""

    def __init__(self) -> None:
        self._doomed: set[LeaseKey] = set()
        self._starting = threading.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, start: JobStart, *, not_after: float) -> Process:
        """Start it unless it runs; raise ``TooLateError`` or ``LaunchError``."""
        with self._starting:
            if start.key in self._doomed:
                raise LaunchError("the attempt was ended before its start")
            known = self._found(start.places)
            if known is None and processes.running(str(start.places.order)) is None:
                write_json(start.places.order, _order(start), mode=0o600)
                if start.secrets:
                    handover.lay(start.places.secrets)
                if boot_seconds() >= not_after:
                    raise TooLateError
                self._start_keeper(start)
            try:
                return self._came_up(start, not_after=not_after)
            except LaunchError:
                self._abandon(start)
                raise

    def wait(self, key: LeaseKey, places: Places, process: Process) -> Exit:
        """Return once the job is over."""
        self._wait_for_keeper(process)
        child = self._children.pop(process.keeper, None)
        if child:
            child.wait()
        written = read_json(places.exit)
        if written is None:
            # The keeper was killed: nobody saw how the job ended, so it must end now.
            self.kill(key, places)
            return Exit(None, "the job's keeper was killed")
        code = written.get("exit_code")
        exit_code = code if isinstance(code, int) else None
        return Exit(exit_code, _detail(exit_code, written, places), bool(written.get("stopped")))

    def terminate(self, process: Process) -> None:
        """SIGTERM to the main process."""
        if process.pid is not None:
            processes.send(process.pid, process.ticks, signal.SIGTERM)

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt, now and for good: a later launch is refused."""
        self._doomed.add(key)
        with self._starting:  # a launch under way sees that and ends first
            known = self._found(places)
        if known and known.pid is None:  # it may be waiting for its secrets
            processes.send(known.keeper, known.keeper_ticks, signal.SIGTERM)
        root = known.keeper if known and processes.alive(known.keeper, known.keeper_ticks) else None
        gone = processes.kill_job(root, marker(key), patience_seconds=KILL_PATIENCE_SECONDS)
        if not gone:
            log.error("processes survive SIGKILL", extra={"lease": str(key)})
        return gone

    def _start_keeper(self, start: JobStart) -> None:
        child = subprocess.Popen(
            self._command(start),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"REPRIEVE_RUN_DIR": str(start.places.contract)},
        )
        self._children[child.pid] = child

    def _command(self, start: JobStart) -> list[str]:
        return [sys.executable, "-I", "-S", keeper.__file__, str(start.places.order)]

    def _came_up(self, start: JobStart, *, not_after: float) -> Process:
        ends = time.monotonic() + START_PATIENCE_SECONDS
        owed = bool(start.secrets)
        while time.monotonic() < ends:
            if start.key in self._doomed:
                raise LaunchError("the attempt was ended during its start")
            found = self._found(start.places)
            if found and begun(start.places):
                return found
            if owed:
                if boot_seconds() >= not_after:
                    raise TooLateError
                owed = not handover.give(start.places.secrets, start.secrets)
            time.sleep(POLL_SECONDS)
        raise LaunchError(f"the job's keeper didn't start within {START_PATIENCE_SECONDS:g} s")

    def _abandon(self, start: JobStart) -> None:
        """End a keeper that didn't come up, whatever it has started meanwhile."""
        pid = processes.running(str(start.places.order))
        processes.kill_job(pid, marker(start.key), patience_seconds=KILL_PATIENCE_SECONDS)
        if pid is not None:
            processes.send(pid, processes.start_ticks(pid), signal.SIGKILL)
            child = self._children.pop(pid, None)
            if child:
                child.wait()

    def _found(self, places: Places) -> Process | None:
        written = read_json(places.process)
        if written:
            with suppress(KeyError, TypeError, ValueError):
                return Process(
                    keeper=int(written["keeper"]),
                    keeper_ticks=int(written["keeper_ticks"]),
                    pid=written.get("pid"),
                    ticks=written.get("ticks"),
                )
        return None

    def _wait_for_keeper(self, process: Process) -> None:
        """Sleep until the keeper ends; a pidfd costs no polling and can't mean another process."""
        try:
            handle = os.pidfd_open(process.keeper)
        except ProcessLookupError:
            return
        try:
            if processes.alive(process.keeper, process.keeper_ticks):
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                poll.poll()
        finally:
            os.close(handle)


class SystemdSupervisor(ChildSupervisor):
    """
    Keeps each job in a transient unit: it survives the agent and its watchdog's restarts.

    The unit's main process is the same keeper; systemd adds the cgroup, stops the job
    before the agent when the host shuts down, and keeps it off the metadata service.
    """

    METADATA_ADDRESSES = "169.254.169.254/32 fd00:ec2::254/128"

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt; the cgroup catches what /proc didn't show."""
        gone = super().kill(key, places)
        self._systemctl("kill", "--signal=KILL", unit(places))
        self._systemctl("reset-failed", unit(places))
        return gone

    def _start_keeper(self, start: JobStart) -> None:
        command = [*self._unit_command(start), "--", *self._command(start)]
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

    def _unit_command(self, start: JobStart) -> list[str]:
        properties = {
            "Type": "exec",
            "KillMode": "mixed",  # control-group would SIGTERM data workers first
            "TimeoutStopSec": "100",
            "After": "reprieve-agent.service",
            "SuccessExitStatus": "75",
            "IgnoreSIGPIPE": "no",
            "NoNewPrivileges": "yes",
            "IPAddressDeny": self.METADATA_ADDRESSES,
        }
        return [
            "systemd-run",
            f"--unit={unit(start.places)}",
            f"--description=Reprieve job {start.key.job}, attempt {start.key.attempt}",
            "--collect",
            "--quiet",
            *(f"--property={name}={value}" for name, value in properties.items()),
        ]

    def _systemctl(self, *arguments: str) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["systemctl", "--quiet", *arguments],
                check=False,
                capture_output=True,
                timeout=KILL_PATIENCE_SECONDS,
            )


def unit(places: Places) -> str:
    """Return the name of an attempt's unit."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in places.name)
    return f"reprieve-job-{name}.service"


def _order(start: JobStart) -> dict[str, Any]:
    order: dict[str, Any] = {
        "argv": list(start.argv),
        "env": dict(start.env),
        "cwd": str(start.cwd),
        "log_file": str(start.places.log),
        "process_file": str(start.places.process),
        "exit_file": str(start.places.exit),
    }
    if start.secrets:
        order["secrets_pipe"] = str(start.places.secrets)
    if start.account:
        order |= {
            "user": start.account.uid,
            "group": start.account.gid,
            "extra_groups": list(start.account.groups),
        }
    return order


def _detail(exit_code: int | None, written: Mapping[str, Any], places: Places) -> str:
    if written.get("detail"):
        return str(written["detail"])[:LONGEST_DETAIL]
    if exit_code == 0:
        return ""
    what = (
        f"killed by {_signal_name(-exit_code)}"
        if exit_code is not None and exit_code < 0
        else f"exit {exit_code}"
    )
    last = last_line(places.log)
    return f"{what}: {last}"[:LONGEST_DETAIL] if last else what


def last_line(path: Path) -> str:
    """Return the last line of the job's output that says something."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LAST_LINE_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
