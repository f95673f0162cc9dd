"""
Uploading a save while it is still being written.

In an emergency every second of the link counts: a file that the job has finished goes up
while it writes the next, and is read for its digest meanwhile. Nothing depends on that
guess. When the checkpoint is whole, a file counts as sent only if it is the very one that
was sent: the same inode, with the same length and the same time of its last change.
Whatever differs is sent as usual, and what changes under way isn't sent to its end.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from reprieve.domain.checkpoint import data_key
from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import Checkpoints
from reprieve_agent import checkpoint

log = logging.getLogger(__name__)

T = TypeVar("T")

PART_NAME = re.compile(r"\.step-(\d{1,12})\.part", re.ASCII)
LOOK_SECONDS = 0.05
BUSY = 4  # a look may take a fifth of the time, however many files there are
# Where nobody can tell whether a file is still written: left alone for so long, it isn't.
QUIET_SECONDS = 0.2
TICK_SECONDS = 0.02  # two changes within one tick of the clock look like one
FILES_AT_ONCE = 4

# A file on this disk and its content, as far as that is known without reading it.
Identity = tuple[int, int, int, int]
Content = tuple[str, int]  # SHA-256 and length


def identity(status: os.stat_result) -> Identity:
    """Return what tells one content of one file from any other."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def is_written(descriptor: int) -> bool | None:
    """
    Tell whether anybody has the file open, or mapped, for writing; None if nobody may know.

    The kernel grants a read lease on a file that has no writer, to its owner and to who has
    CAP_LEASE. It is given back at once. Who opens the file between the two waits that long,
    and the signal that tells us of it is one that a process ignores by default.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


@dataclass(frozen=True, slots=True)
class _Read:
    """What reading a file told."""

    sha256: str
    known: bool  # the newest commit has these bytes


@dataclass(frozen=True, slots=True)
class _Early:
    """A file on its way: where it will lie, and what reading it told."""

    key: Future[str]
    read: Future[_Read]


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2 * FILES_AT_ONCE, thread_name_prefix="ahead")


@dataclass(slots=True)
class Ahead:
    """
    Sends finished files of unfinished saves, while told to.

    *known* says which contents the newest commit has. A file is sent until that is known of it.
    """

    key: LeaseKey
    folder: Path
    store: Checkpoints
    known: Callable[[threading.Event], Mapping[Content, str]]
    _sent: dict[Identity, _Early] = field(default_factory=dict)
    _seen: dict[Identity, float] = field(default_factory=dict)
    _stop: threading.Event | None = None
    _aborted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(default_factory=_new_pool)

    def start(self) -> None:
        """Begin to look, in a thread of its own, unless that is done already."""
        with self._lock:
            if self._stop is not None:
                return
            stop = self._stop = threading.Event()
        threading.Thread(target=self._run, args=(stop,), name="ahead", daemon=True).start()

    def end(self) -> None:
        """Stop looking; what is on its way arrives."""
        with self._lock:
            if self._stop is not None:
                self._stop.set()
            self._stop = None

    def abort(self) -> None:
        """Call off what is on its way, for good."""
        self._aborted.set()
        self.end()

    def begin(self, descriptor: int, path: str) -> None:
        """Send and read the open file *path* now, unless that has begun."""
        status = os.fstat(descriptor)
        if status.st_size and identity(status) not in self._sent:
            self._begin(os.dup(descriptor), path, status)

    def sha256(self, descriptor: int) -> str | None:
        """Return the digest of this very file, once it is read; None if it wasn't sent ahead."""
        early = self._sent.get(identity(os.fstat(descriptor)))
        read = _outcome(early.read) if early else None
        return read.sha256 if read else None

    def take(self, descriptor: int) -> str | None:
        """Return the key under which this very file was stored, once it is; None if it wasn't."""
        early = self._sent.get(identity(os.fstat(descriptor)))
        return _outcome(early.key) if early else None

    def look(self) -> None:
        """Look once: send what nobody writes any more."""
        found: dict[Identity, float] = {}
        for part in _parts(self.folder):
            for path in _files(part):
                with suppress(OSError):
                    found |= self._consider(part, path)
        self._seen = found

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            try:
                self.look()
            except OSError as error:
                log.warning("unfinished saves can't be read", extra={"error": str(error)})
            stop.wait(max(LOOK_SECONDS, BUSY * (time.monotonic() - began)))

    def _consider(self, part: Path, path: str) -> dict[Identity, float]:
        descriptor = checkpoint.open_below(part, path)
        status = os.fstat(descriptor)
        now, at = identity(status), time.monotonic()
        if not stat.S_ISREG(status.st_mode) or not status.st_size or now in self._sent:
            os.close(descriptor)
            return {}
        since = self._seen.get(now)
        written = is_written(descriptor)
        needed = QUIET_SECONDS if written is None else TICK_SECONDS
        if written or since is None or at - since < needed:
            os.close(descriptor)
            return {now: at if since is None else since}
        self._begin(descriptor, path, status)
        return {}

    def _begin(self, descriptor: int, path: str, status: os.stat_result) -> None:
        """Take over *descriptor*: one thread reads it for its digest while another sends it."""
        now = identity(status)
        with self._lock:
            if now in self._sent:
                os.close(descriptor)
                return
            read = self._pool.submit(self._read, os.dup(descriptor), path, status.st_size)
            key = data_key(self.key.job, self.key.attempt, uuid.uuid4().hex, path)
            sent = self._pool.submit(self._send, descriptor, key, now, read)
            self._sent[now] = _Early(sent, read)

    def _read(self, descriptor: int, path: str, size: int) -> _Read:
        try:
            sha256 = checkpoint.sha256_of(descriptor, self._aborted.is_set, what=path)
        finally:
            os.close(descriptor)
        return _Read(sha256, (sha256, size) in self.known(self._aborted))

    def _send(self, descriptor: int, key: str, was: Identity, read: Future[_Read]) -> str:
        def stopped() -> bool:
            told = read.result() if read.done() and read.exception() is None else None
            changed = identity(os.fstat(descriptor)) != was
            return changed or self._aborted.is_set() or (told is not None and told.known)

        try:
            opened = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            self.store.put_file(key, opened, stopped=stopped)
            return key
        finally:
            os.close(descriptor)


def _outcome(coming: Future[T]) -> T | None:
    try:
        return coming.result()
    except (Exception, CancelledError) as error:  # noqa: BLE001 - it is done again, as usual
        log.info("what was done ahead is done again", extra={"error": repr(error)})
        return None


def _parts(folder: Path) -> list[Path]:
    """Return the unfinished saves, by number."""
    with suppress(FileNotFoundError):
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
        found = {int(match[1]): name for name in names if (match := PART_NAME.fullmatch(name))}
        return [folder / found[step] for step in sorted(found)]
    return []


def _files(part: Path) -> Iterator[str]:
    for root, _folders, names in os.walk(part):
        inner = Path(root).relative_to(part)
        yield from (str(inner / name) for name in sorted(names) if name != checkpoint.MANIFEST)
