"""
Process trees: who descends from whom, and how to end all of them.

Linux only: the tree is read from ``/proc``. A tree stays whole although its members start
sessions of their own, because the root is a subreaper: orphans are handed to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# A fork bomb apart, three rounds find every child born while we were looking.
_MOST_ROUNDS = 50


def die_with_parent(parent: int, how: signal.Signals) -> None:
    """Have the kernel send us *how* when *parent*, who started us, dies."""
    _prctl(PR_SET_PDEATHSIG, int(how))
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), how)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def descendants(root: int) -> list[int]:
    """List every living process below *root*, parents first, without *root*."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid, (parent, state) in _processes().items():
        if state not in "ZX":
            children[parent].append(pid)
    found: list[int] = []
    wave = [root]
    while wave:
        wave = [child for parent in wave for child in children[parent]]
        found += wave
    return found


def _processes() -> dict[int, tuple[int, str]]:
    """Map each pid to its parent and its state letter."""
    found = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked
            # pid (comm) state ppid …: comm may hold spaces and parentheses
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(entry.name)] = (int(fields[1]), fields[0])
    return found


def alive(pid: int) -> bool:
    """Tell whether *pid* runs; a zombie doesn't."""
    try:
        state = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def send(pids: list[int], how: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)


def freeze(root: int) -> None:
    """Stop everything below *root*, children born meanwhile included."""
    stopped: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        born = set(descendants(root)) - stopped
        if not born:
            return
        send(sorted(born), signal.SIGSTOP)
        stopped |= born


def thaw(root: int) -> None:
    send(descendants(root), signal.SIGCONT)


def kill_descendants(root: int) -> None:
    """SIGKILL everything below *root*; stopped first, so that nobody escapes by forking."""
    for _ in range(_MOST_ROUNDS):
        freeze(root)
        left = descendants(root)
        if not left:
            return
        send(left, signal.SIGKILL)
        time.sleep(0.002)


def end(pid: int, *, grace_seconds: float, group: bool = True) -> None:
    """SIGTERM *pid* (its group), then SIGKILL it and all its descendants after the grace."""
    tree = [pid, *descendants(pid)]
    _signal_group(pid, signal.SIGTERM, group=group)
    wait_gone([pid], seconds=grace_seconds)
    tree += descendants(pid)
    _signal_group(pid, signal.SIGKILL, group=group)
    send(tree, signal.SIGKILL)
    wait_gone(tree, seconds=2)


def _signal_group(pid: int, how: signal.Signals, *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(pid, how)
        else:
            os.kill(pid, how)


def wait_gone(pids: list[int], *, seconds: float) -> bool:
    """Wait until none of *pids* runs; False when the time is up first."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill_those_in(directory: Path) -> None:
    """SIGKILL whoever works in or below *directory*; the last broom, for what escaped its tree."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(directory):
                os.kill(int(entry.name), signal.SIGKILL)
