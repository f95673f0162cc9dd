"""
Digests of a save's files, made while the job still writes the next ones.

A file that nobody has open for writing any more is read at once. Its digest counts at the end
only if it is still the same file, with the same length and the same time of its last change;
any other is read then. So hashing and syncing keep the job for as long as the last file takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_LOOK_SECONDS = 0.05
_BUSY = 9  # a look may take a tenth of the time, however many files there are
_TICK_NS = 20_000_000  # two changes within one tick of the clock look like one
_READ_BYTES = 1 << 18  # read into the same place again and again, near the processor
_THREADS = 4


class _StoppedError(Exception):
    """The save was given up."""


class Digests:
    """The SHA-256 of each file in one folder, which is synced too where *sync* says so."""

    def __init__(self, folder: Path, *, sync: Callable[[], bool]) -> None:
        """Watch *folder* from now on; ``end`` must follow."""
        self._folder = folder
        self._sync = sync
        self._early: dict[tuple[int, ...], Future[str]] = {}
        self._over = threading.Event()
        self._stopped = False
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="digest")
        self._looking = threading.Thread(target=self._look_on, name="digests", daemon=True)
        self._looking.start()

    def of(self, files: list[Path]) -> list[str]:
        """Return the digests of *files*, which are relative to the folder and complete now."""
        self._over.set()
        self._looking.join()
        coming = [self._finished(self._folder / path) for path in files]
        return [one.result() for one in coming]

    def end(self) -> None:
        """Stop, whatever is under way."""
        self._over.set()
        self._stopped = True
        self._looking.join()
        self._pool.shutdown(cancel_futures=True)

    def _finished(self, path: Path) -> Future[str]:
        early = self._early.get(_identity(path.stat()))
        return early or self._pool.submit(self._digest, path)

    def _look_on(self) -> None:
        wait = _LOOK_SECONDS
        while not self._over.wait(wait):
            began = time.perf_counter()
            for path in _plain(self._folder):
                # What can't be read now is read at the end, and then it is an error.
                with contextlib.suppress(OSError):
                    self._consider(path)
            wait = max(_LOOK_SECONDS, _BUSY * (time.perf_counter() - began))

    def _consider(self, path: Path) -> None:
        status = path.stat()
        identity = _identity(status)
        if identity in self._early or time.time_ns() - status.st_mtime_ns < _TICK_NS:
            return
        with path.open("rb") as stream:
            if not _has_no_writer(stream.fileno()):
                return
        self._early[identity] = self._pool.submit(self._digest, path)

    def _digest(self, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as stream:
            if self._sync():
                os.fsync(stream.fileno())
            block = bytearray(_READ_BYTES)
            view = memoryview(block)
            while read := stream.readinto(block):
                if self._stopped:
                    raise _StoppedError
                digest.update(view[:read])
        return digest.hexdigest()


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _has_no_writer(descriptor: int) -> bool:
    """
    Tell whether surely nobody has the file open, or mapped, for writing.

    The kernel grants a read lease only then; it is given back at once. Who opens the file
    between the two waits that long, and we hear of it by a signal that is ignored by default.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def _plain(folder: Path) -> Iterator[Path]:
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if not path.is_symlink() and path.is_file():
                yield path
