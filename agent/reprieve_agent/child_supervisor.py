"""Keeping a job without any help of the system: a session of its own, pids and a marker."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reprieve.domain.lease import LeaseKey
from reprieve_agent import handover, keeper, processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import Exit, JobStart, LaunchError, TooLateError, begun, marker

log = logging.getLogger(__name__)

START_PATIENCE_SECONDS = 20.0
KILL_PATIENCE_SECONDS = 10.0
POLL_SECONDS = 0.005
LAST_LINE_BYTES = 4096
LONGEST_DETAIL = 200


class ChildSupervisor:
    """
    Keeps jobs as sessions of their own, found again by pid and start time.

    A small process between agent and job, the keeper, adopts what the job orphans and writes
    down how it ended: `keeper.py` has the details.
    """

    def __init__(self) -> None:
        self._doomed: set[LeaseKey] = set()
        self._starting = threading.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, start: JobStart, *, not_after: float) -> Process:
        """Start it unless it runs; raise ``TooLateError`` or ``LaunchError``."""
        keeper = None
        with self._starting:
            if start.key in self._doomed:
                raise LaunchError("the attempt was ended before its start")
            known = self._found(start.places)
            if known is None and processes.running(str(start.places.order)) is None:
                write_json(start.places.order, self._order(start), mode=0o600)
                if start.secrets:
                    handover.lay(start.places.secrets)
                if boot_seconds() >= not_after:
                    raise TooLateError
                keeper = self._start_keeper(start)
            try:
                return self._came_up(start, not_after=not_after)
            except LaunchError:
                self._abandon(start)
                if keeper:
                    self._children.pop(keeper.pid, None)
                    keeper.wait()
                raise

    def wait(self, key: LeaseKey, places: Places, process: Process) -> Exit:
        """Return once the job is over, also if it was before and another agent started it."""
        self._wait_for_keeper(process)
        status = self._status(places, process)
        written = read_json(places.exit)
        if written is None:
            # Either the keeper was killed, or the disk is full. What is left must end now.
            self.kill(key, places)
            if status is None:
                return Exit(None, "the job's keeper was killed")
            written = {"exit_code": status}
        code = written.get("exit_code")
        exit_code = code if isinstance(code, int) else None
        return Exit(exit_code, _detail(exit_code, written, places), bool(written.get("stopped")))

    def terminate(self, process: Process) -> None:
        """SIGTERM to the main process, and to no other."""
        if process.pid is not None:
            processes.send(process.pid, process.ticks, signal.SIGTERM)

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt, now and for good; True if none is left."""
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

    def _start_keeper(self, start: JobStart) -> subprocess.Popen[bytes] | None:
        child = subprocess.Popen(
            self._command(start),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"REPRIEVE_RUN_DIR": str(start.places.contract)},
        )
        self._children[child.pid] = child
        return child

    def _order(self, start: JobStart) -> dict[str, Any]:
        return order_of(start)

    def _command(self, start: JobStart) -> list[str]:
        return [sys.executable, "-I", "-S", keeper.__file__, str(start.places.order)]

    def _came_up(self, start: JobStart, *, not_after: float) -> Process:
        ends = time.monotonic() + START_PATIENCE_SECONDS
        owed = bool(start.secrets)
        while time.monotonic() < ends:
            if start.key in self._doomed:
                raise LaunchError("the attempt was ended during its start")
            # In this order: what is found then is the last that its keeper says of it.
            if begun(start.places) and (found := self._found(start.places)):
                return found
            if owed:
                if boot_seconds() >= not_after:
                    raise TooLateError
                owed = not handover.give(start.places.secrets, start.secrets)
            time.sleep(POLL_SECONDS)
        raise LaunchError(f"the job's keeper didn't start within {START_PATIENCE_SECONDS:g} s")

    def _status(self, places: Places, process: Process) -> int | None:  # noqa: ARG002 - others ask elsewhere
        """Return the keeper's exit status, which is the job's, if it is known and it chose it."""
        child = self._children.pop(process.keeper, None)
        status = child.wait() if child else -1
        return status if status >= 0 else None

    def _abandon(self, start: JobStart) -> None:
        """End a keeper that didn't come up, whatever it has started meanwhile."""
        pid = processes.running(str(start.places.order))
        processes.kill_job(pid, marker(start.key), patience_seconds=KILL_PATIENCE_SECONDS)
        if pid is not None:
            processes.send(pid, processes.start_ticks(pid), signal.SIGKILL)

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

    def _wait_for_keeper(self, process: Process, *, seconds: float | None = None) -> None:
        """Sleep until the keeper ends; a pidfd costs no polling and can't mean another process."""
        try:
            handle = os.pidfd_open(process.keeper)
        except ProcessLookupError:
            return
        try:
            if processes.alive(process.keeper, process.keeper_ticks):
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                poll.poll(None if seconds is None else seconds * 1000)
        finally:
            os.close(handle)


def order_of(start: JobStart) -> dict[str, Any]:
    """Return what the keeper is to do."""
    order: dict[str, Any] = {
        "argv": list(start.argv),
        "env": dict(start.env),
        "cwd": str(start.cwd),
        "log_file": str(start.places.log),
        "process_file": str(start.places.process),
        "exit_file": str(start.places.exit),
    }
    if start.starter_env is not None:
        order["starter_env"] = dict(start.starter_env)
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
