"""The job's output, copied off the host every few seconds while it grows, and at the end."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from reprieve.domain.errors import ReprieveError
from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import Checkpoints
from reprieve_agent.log_stream import LogStream

log = logging.getLogger(__name__)

# What is pushed is pushed whole each time, so a long log is cut at its beginning.
MOST_BYTES = 4 * 1024 * 1024
# Nobody follows a job by its stream: for that there is the copy.
PUSHES_PER_STREAMING = 3
CUT = b"[... the beginning is cut off ...]\n"


@dataclass(slots=True)
class LogPusher:
    """Pushes one attempt's log: whole to the bucket, and what is new to its stream."""

    key: LeaseKey
    path: Path
    store: Checkpoints
    period: float
    stream: LogStream | None = None
    _pushed: int = -1
    _pushes: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _pushing: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Push in a thread of its own."""
        threading.Thread(target=self.run, name="log", daemon=True).start()

    def run(self) -> None:
        """Push until ended."""
        while not self._ended.wait(self.period):
            self.push()

    def end(self) -> None:
        """Stop pushing; the last push is the caller's."""
        self._ended.set()

    def push(self, *, last: bool = False) -> None:
        """Push what is new; a failure is made good by the next push. *last*: nothing follows."""
        self._copy()
        if self.stream and (last or self._pushes % PUSHES_PER_STREAMING == 0):
            self.stream.send(last=last)
        self._pushes += 1

    def _copy(self) -> None:
        with self._pushing:
            if not self.path.exists():
                return
            try:
                size = self.path.stat().st_size
                if size == self._pushed:
                    return
                self.store.put_log(self.key.job, self.key.attempt, tail(self.path, MOST_BYTES))
                self._pushed = size
            except (OSError, ReprieveError) as error:
                log.warning("job log not pushed", extra={"error": str(error)})


def tail(path: Path, most_bytes: int) -> bytes:
    """Return the file, or its last lines when it is longer than *most_bytes*."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most_bytes))
        body = file.read(most_bytes)
    if size <= most_bytes:
        return body
    return CUT + body.partition(b"\n")[2]
