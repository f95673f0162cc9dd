"""Which process is at the other end of a connection, so that a fault can kill it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from reprieve_cli.local import processes

_TABLES = ("tcp", "tcp6")
_LOCAL, _INODE = 1, 9  # columns of /proc/net/tcp


def find(port: int) -> int | None:
    """
    Return the process whose end of a connection to us has the local *port*.

    Only what runs deep below us is found, a function or an agent: whoever else calls, the
    emulator or a person's shell, is nobody to kill.
    """
    inodes = set(_inodes(port))
    below = set(processes.descendants(os.getpid())) - _children(os.getpid())
    return next((pid for pid in below if _holds(pid, inodes)), None)


def kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(parent: int) -> set[int]:
    """Return the emulator and the hosts' init processes."""
    path = processes.PROC / str(parent) / "task" / str(parent) / "children"
    return {int(pid) for pid in path.read_text(encoding="ascii").split()}


def _inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        path = processes.PROC / "net" / table
        if not path.exists():
            continue
        for line in path.read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            if int(columns[_LOCAL].rpartition(":")[2], 16) == port:
                yield columns[_INODE]


def _holds(pid: int, inodes: set[str]) -> bool:
    try:
        return any(
            _inode(entry) in inodes for entry in (processes.PROC / str(pid) / "fd").iterdir()
        )
    except OSError:  # it ended while we looked
        return False


def _inode(entry: Path) -> str:
    try:
        return str(entry.readlink()).removeprefix("socket:[").removesuffix("]")
    except OSError:
        return ""
