"""
What of a checkpoint is in the bucket already, for the agent's next life.

One folder for each step under way, one small file for each content: under which key it is
being stored, and which parts of it are there. An agent that starts again goes on with them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprieve_agent.files import read_json, write_json


@dataclass(slots=True)
class FileLedger:
    """A ``Ledger`` of one content, kept at *path* if there is one; *done*: all of it is there."""

    key: str
    path: Path | None = None
    upload_id: str | None = None
    part_bytes: int | None = None
    done: bool = False
    _parts: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def parts(self) -> Mapping[int, str]:
        """The tags of the parts that were stored, by number."""
        with self._lock:
            return dict(self._parts)

    def begin(self, upload_id: str, part_bytes: int) -> None:
        """Note that an upload began."""
        with self._lock:
            self.upload_id, self.part_bytes, self._parts = upload_id, part_bytes, {}
            self._write()

    def sent(self, number: int, tag: str) -> None:
        """Note that a part was stored."""
        with self._lock:
            self._parts[number] = tag
            self._write()

    def forget(self) -> None:
        """Note that the bucket knows nothing of it any more."""
        with self._lock:
            self.upload_id, self.part_bytes, self._parts = None, None, {}
            self._write()

    def end(self) -> None:
        """Note that all of it is stored."""
        with self._lock:
            self.done = True
            self._write()

    def _write(self) -> None:
        if self.path is not None:
            content = {
                "key": self.key,
                "upload_id": self.upload_id,
                "part_bytes": self.part_bytes,
                "parts": {str(number): tag for number, tag in self._parts.items()},
                "done": self.done,
            }
            write_json(self.path, content)


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The ledgers of one attempt; without a *folder* they end with the process."""

    folder: Path | None = None

    def of(self, step: int, sha256: str, *, key: str) -> FileLedger:
        """Return the ledger of one content of *step*; *key* is where it goes if that is new."""
        if self.folder is None:
            return FileLedger(key)
        place = self.folder / str(step)
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{sha256}.json"
        said = read_json(path) or {}
        try:
            return FileLedger(
                key=str(said["key"]),
                path=path,
                upload_id=said["upload_id"],
                part_bytes=said["part_bytes"],
                done=bool(said["done"]),
                _parts={int(number): str(tag) for number, tag in said["parts"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return FileLedger(key, path)

    def close(self, step: int) -> None:
        """Forget *step*: it is committed, or never will be."""
        if self.folder is not None:
            shutil.rmtree(self.folder / str(step), ignore_errors=True)
