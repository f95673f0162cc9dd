"""Checkpoints: the manifest that makes one, its key, and which ones an attempt may start from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from reprieve.domain.errors import MalformedError

MANIFEST_KEY = re.compile(
    r"jobs/(?P<job>[^/]+)/manifests/(?P<attempt>\d{6})-(?P<step>\d{12})\.json"
)
DATA_KEY = re.compile(r"jobs/[^/]+/data/(?P<attempt>\d{6})/")
SHA256_HEX_DIGITS = 64


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: *path* inside the checkpoint, *key* of its bytes, *size* in bytes."""

    path: str
    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Measured:
    """
    What steps and saves took on a host of the type *host*, up to and with this save.

    *size* is in bytes, those that a save had to send. None is what wasn't measured.
    """

    host: str
    save_seconds: float | None = None
    size: float | None = None
    bytes_per_second: float | None = None
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The proof of a checkpoint, written last and only if its key is new.

    ``parent`` is the manifest this attempt continued from when it saved: its own
    previous commit, or its base. Following it leads back through the lineage.
    ``measured`` lets the next host judge its first save.
    """

    job: str
    attempt: int
    token: str
    step: int
    parent: str | None
    files: tuple[FileEntry, ...]
    saved_at: datetime
    framework: str = ""
    world_size: int = 1
    measured: Measured | None = None

    @property
    def key(self) -> str:
        """Where it lies in the bucket."""
        return manifest_key(self.job, self.attempt, self.step)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        """Return the object's body."""
        measured = {"measured": asdict(self.measured)} if self.measured else {}
        return json.dumps(
            {
                "v": 1,
                "job": self.job,
                "attempt": self.attempt,
                "token": self.token,
                "step": self.step,
                "parent": self.parent,
                "framework": self.framework,
                "world_size": self.world_size,
                "saved_at": self.saved_at.isoformat(),
                "files": [
                    {"path": f.path, "key": f.key, "size": f.size, "sha256": f.sha256}
                    for f in self.files
                ],
                **measured,
            },
            sort_keys=True,
        ).encode()

    @classmethod
    def from_json(cls, body: bytes, *, key: str) -> Manifest:
        """Read the object at *key*; raise ``MalformedError`` if it isn't that manifest."""
        try:
            raw = json.loads(body)
            manifest = cls(
                job=raw["job"],
                attempt=int(raw["attempt"]),
                token=raw["token"],
                step=int(raw["step"]),
                parent=raw["parent"],
                files=tuple(
                    FileEntry(f["path"], f["key"], int(f["size"]), f["sha256"])
                    for f in raw["files"]
                ),
                saved_at=datetime.fromisoformat(raw["saved_at"]),
                framework=raw.get("framework", ""),
                world_size=int(raw.get("world_size", 1)),
                measured=_measured(raw.get("measured")),
            )
        except (ValueError, KeyError, TypeError) as error:
            message = f"{key} isn't a manifest: {error}"
            raise MalformedError(message) from error
        if manifest.key != key:
            message = f"{key} holds the manifest of {manifest.key}"
            raise MalformedError(message)
        for file in manifest.files:
            unsafe = file.path.startswith("/") or ".." in file.path.split("/")
            if unsafe or len(file.sha256) != SHA256_HEX_DIGITS:
                message = f"{key} names an unusable file {file.path!r}"
                raise MalformedError(message)
        return manifest


def _measured(raw: object) -> Measured | None:
    """Read what was measured; a checkpoint is none the worse for figures that can't be read."""
    if not isinstance(raw, dict) or not isinstance(raw.get("host"), str):
        return None
    figures = {field.name: raw.get(field.name) for field in fields(Measured)[1:]}
    usable = all(
        figure is None or (isinstance(figure, int | float) and 0 <= figure < math.inf)
        for figure in figures.values()
    )
    if not usable or figures["bytes_per_second"] == 0:
        return None
    return Measured(raw["host"], **figures)


def manifest_key(job: str, attempt: int, step: int) -> str:
    """Return the key; fixed widths make S3's order the numeric one within an attempt."""
    return f"jobs/{job}/manifests/{attempt:06d}-{step:012d}.json"


def data_key(job: str, attempt: int, save_id: str, path: str) -> str:
    """Return the key of a file; the random *save_id* keeps a repeated save off committed bytes."""
    return f"jobs/{job}/data/{attempt:06d}/{save_id}/{path}"


def mark_key(manifest: str) -> str:
    """Return where it stands that *manifest* was set aside."""
    return manifest.replace("/manifests/", "/set-aside/", 1)


def manifest_of_mark(mark: str) -> str:
    """Return the manifest that *mark* is about."""
    return mark.replace("/set-aside/", "/manifests/", 1)


def data_attempt(key: str) -> int | None:
    """Return the attempt that stored the bytes at *key*, None for any other name."""
    match = DATA_KEY.match(key)
    return int(match["attempt"]) if match else None


def code_key(sha256: str) -> str:
    """Return the key of a job's code."""
    return f"code/{sha256}.zip"


def log_key(job: str, attempt: int) -> str:
    """Return the key of an attempt's log."""
    return f"jobs/{job}/logs/{attempt:06d}.log"


def step_of(key: str) -> tuple[int, int] | None:
    """Return (attempt, step) of a manifest key, or None for any other name."""
    match = MANIFEST_KEY.fullmatch(key)
    return (int(match["attempt"]), int(match["step"])) if match else None


def own_manifests(keys: Iterable[str], attempt: int) -> list[str]:
    """Return *attempt*'s manifests among *keys*, newest step first, by number and not by text."""
    steps = {key: found[1] for key in keys if (found := step_of(key)) and found[0] == attempt}
    return sorted(steps, key=lambda key: steps[key], reverse=True)
