"""
Uploading a save while it is still being written.

In an emergency every second of the link counts: a file that the job has finished goes up
while it writes the next. Nothing depends on that guess. When the checkpoint is whole, a
file counts as sent only if it is the very one that was sent: the same inode, with the same
length and the same time of its last change. Whatever differs is sent as usual.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reprieve.domain.checkpoint import data_key
from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import Checkpoints
from reprieve_agent import checkpoint

log = logging.getLogger(__name__)

PART_NAME = re.compile(r"\.step-(\d{1,12})\.part", re.ASCII)
LOOK_SECONDS = 0.2  # a file that is left alone for so long is taken for finished
FILES_AT_ONCE = 4

# A file on this disk and its content, as far as that is known without reading it.
Identity = tuple[int, int, int, int]


def identity(status: os.stat_result) -> Identity:
    """Return what tells one content of one file from any other."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(slots=True)
class Ahead:
    """Sends finished files of unfinished saves, while told to."""

    key: LeaseKey
    folder: Path
    store: Checkpoints
    _sent: dict[Identity, Future[str]] = field(default_factory=dict)
    _seen: set[Identity] = field(default_factory=set)
    _stop: threading.Event | None = None
    _aborted: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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

    def take(self, descriptor: int) -> str | None:
        """Return the key under which this very file was stored, once it is; None if it wasn't."""
        coming = self._sent.get(identity(os.fstat(descriptor)))
        if coming is None:
            return None
        try:
            return coming.result()
        except (Exception, CancelledError) as error:  # noqa: BLE001 - it is sent again, as usual
            log.info("a file sent ahead is sent again", extra={"error": repr(error)})
            return None

    def look(self, pool: ThreadPoolExecutor) -> None:
        """Look once: send what is as it was at the last look."""
        found: set[Identity] = set()
        save_id = uuid.uuid4().hex
        for part in _parts(self.folder):
            for path in _files(part):
                with suppress(OSError):
                    found |= self._consider(part, path, save_id, pool)
        self._seen = found

    def _run(self, stop: threading.Event) -> None:
        with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="ahead") as pool:
            while not stop.is_set():
                try:
                    self.look(pool)
                except OSError as error:
                    log.warning("unfinished saves can't be read", extra={"error": str(error)})
                stop.wait(LOOK_SECONDS)

    def _consider(
        self, part: Path, path: str, save_id: str, pool: ThreadPoolExecutor
    ) -> set[Identity]:
        descriptor = checkpoint.open_below(part, path)
        status = os.fstat(descriptor)
        now = identity(status)
        known = not stat.S_ISREG(status.st_mode) or not status.st_size or now in self._sent
        if known or now not in self._seen:
            os.close(descriptor)
            return set() if known else {now}
        self._sent[now] = pool.submit(self._send, descriptor, path, save_id)
        return set()

    def _send(self, descriptor: int, path: str, save_id: str) -> str:
        try:
            key = data_key(self.key.job, self.key.attempt, save_id, path)
            opened = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
            self.store.put_file(key, opened, stopped=self._aborted.is_set)
            return key
        finally:
            os.close(descriptor)


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
