"""What /proc tells about a job's processes, and how to end every one of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")

# Fields of /proc/<pid>/stat, counted after the command's closing parenthesis.
STATE, PPID, START_TIME = 0, 1, 19
DEAD_STATES = frozenset("ZXx")

POLL_SECONDS = 0.01


def start_ticks(pid: int) -> int | None:
    """Return when *pid* started, which tells it from a later process of that number."""
    stat = _stat(pid)
    return int(stat[START_TIME]) if stat and stat[STATE] not in DEAD_STATES else None


def alive(pid: int, ticks: int | None) -> bool:
    """Whether the very process that had *ticks* still runs."""
    return ticks is not None and start_ticks(pid) == ticks


def send(pid: int, ticks: int | None, signum: int) -> bool:
    """Signal exactly that process; tell whether it was there."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not alive(pid, ticks):  # asked after the handle: now it can't be another one
            return False
        signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def of_job(root: int | None, marker: str) -> set[int]:
    """
    Return the pids of a job: all below *root*, and all whose environment has *marker*.

    Each finds what the other can miss: a process that overwrote its environment, and one
    that was orphaned. *root* itself isn't among them.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    needle = marker.encode()
    for pid in _pids():
        stat = _stat(pid)
        if stat is None or stat[STATE] in DEAD_STATES:
            continue
        parents[pid] = int(stat[PPID])
        if needle in _environment(pid):
            found.add(pid)
    if root is not None:
        found |= {pid for pid in parents if _below(pid, root, parents)}
    return found - {os.getpid(), root}


def is_of_job(pid: int, root: int | None, marker: str) -> bool:
    """Whether *pid* is one of those, without a look at every process of the host."""
    if pid in {os.getpid(), root}:
        return False
    if marker.encode() in _environment(pid):
        return True
    seen: set[int] = set()
    while root is not None and pid > 1 and pid not in seen:
        seen.add(pid)
        stat = _stat(pid)
        pid = int(stat[PPID]) if stat else 0
        if pid == root:
            return True
    return False


def kill_job(root: int | None, marker: str, *, patience_seconds: float) -> bool:
    """SIGKILL until none is left; False if some survived *patience_seconds*."""
    ends = time.monotonic() + patience_seconds
    while found := of_job(root, marker):
        for pid in found:
            send(pid, start_ticks(pid), signal.SIGKILL)
        if time.monotonic() >= ends:
            return False
        time.sleep(POLL_SECONDS)
    return True


def writing(root: int | None, marker: str) -> set[str]:
    """Return the names of the files that a job has open for writing."""
    return {name for pid in of_job(root, marker) for name in _open_for_writing(pid)}


def running(argument: str) -> int | None:
    """Return a live process that has *argument* among its arguments."""
    needle = argument.encode()
    for pid in _pids():
        with suppress(OSError):
            arguments = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if needle in arguments and start_ticks(pid) is not None:
                return pid
    return None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _open_for_writing(pid: int) -> Iterator[str]:
    process = PROC / str(pid)
    with suppress(OSError):
        for number in os.listdir(process / "fd"):  # noqa: PTH208 - names are all that is needed
            with suppress(OSError):  # it may be closed meanwhile
                flags = (process / "fdinfo" / number).read_text().partition("flags:")[2].split()
                if int(flags[0], 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield str((process / "fd" / number).readlink())


def _environment(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _below(pid: int, root: int, parents: dict[int, int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        if pid == root:
            return True
    return False
