"""
Checkpoints on the local disk, as a job leaves them.

A whole one is a folder ``step-<digits>`` with a MANIFEST.json and every file that it
names, in the size that it names. Anything else (a ``.part``, a folder without manifest)
isn't looked at. Files are opened without following links: the job chooses their names,
and the agent may read more than the job.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reprieve.ports.checkpoints import AbortedError
from reprieve_agent.files import read_json

MANIFEST = "MANIFEST.json"
STEP_NAME = re.compile(r"step-(\d{1,12})", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")
READ_BYTES = 256 * 1024  # read into the same place again and again, near the processor
KEPT = 2
MOST_SECONDS = 1e6


class NotWholeError(Exception):
    """The folder is no checkpoint; the message says why."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a checkpoint as its manifest describes it; without a digest, we make it."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class LocalManifest:
    """What the job says that it saved."""

    step: int
    files: tuple[LocalFile, ...]
    framework: str
    world_size: int
    seconds: float | None = None  # how long the save took, if the job said so

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """
    A file held open: the job may rotate the folder away meanwhile, the bytes stay.

    ``handle`` is a path to the very file that was opened.
    """

    about: LocalFile
    descriptor: int

    @property
    def handle(self) -> Path:
        """Return a path that leads to the open file whatever became of its name."""
        return Path(f"/proc/{os.getpid()}/fd/{self.descriptor}")

    def read(self, stopped: Callable[[], bool]) -> str:
        """Return the digest of what is in the file."""
        return sha256_of(self.descriptor, stopped, what=self.about.path)

    def compare(self, sha256: str) -> None:
        """Raise ``NotWholeError`` if the manifest says another digest."""
        if self.about.sha256 not in {None, sha256}:
            raise NotWholeError(f"{self.about.path} has another SHA-256 than its manifest says")


def sha256_of(descriptor: int, stopped: Callable[[], bool], *, what: str) -> str:
    """Read an open file, wherever its own position is, and return its digest."""
    digest = hashlib.sha256()
    block = bytearray(READ_BYTES)
    view = memoryview(block)
    offset = 0
    while read := os.preadv(descriptor, [block], offset):
        if stopped():
            raise AbortedError(f"the check of {what} was called off")
        digest.update(view[:read])
        offset += read
    return digest.hexdigest()


def folder_of(checkpoints: Path, step: int) -> Path | None:
    """Return the folder of *step*, however many zeros its name has."""
    return _folders(checkpoints).get(step)


def whole_steps(checkpoints: Path, *, known: Container[int] = ()) -> list[int]:
    """
    Return the steps of the folders that look whole, oldest first, but for those *known*.

    Digests are for later: this is asked twice a second.
    """
    return sorted(
        step
        for step, folder in _folders(checkpoints).items()
        if step not in known and fault(folder, step) is None
    )


def fault(folder: Path, step: int) -> str | None:
    """Say why *folder* isn't a whole checkpoint of *step*, or None."""
    try:
        with opened(folder, step):
            return None
    except NotWholeError as error:
        return str(error)


@contextmanager
def opened(folder: Path, step: int) -> Iterator[tuple[LocalManifest, tuple[OpenFile, ...]]]:
    """Open every file of a checkpoint and check its size; raise ``NotWholeError``."""
    manifest = read_manifest(folder, step)
    with ExitStack() as stack:
        files = []
        for about in manifest.files:
            try:
                descriptor = open_below(folder, about.path)
            except OSError as error:
                raise NotWholeError(f"{about.path}: {error.strerror}") from error
            stack.callback(os.close, descriptor)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != about.size:
                raise NotWholeError(f"{about.path} isn't a file of {about.size} bytes")
            files.append(OpenFile(about, descriptor))
        yield manifest, tuple(files)


def read_manifest(folder: Path, step: int) -> LocalManifest:
    """Read what the job wrote last; raise ``NotWholeError``."""
    said = read_json(folder / MANIFEST)
    if said is None:
        raise NotWholeError(f"no readable {MANIFEST}")
    try:
        manifest = LocalManifest(
            step=int(said["step"]),
            files=tuple(
                LocalFile(str(f["path"]), int(f["size"]), _digest(f)) for f in said["files"]
            ),
            framework=str(said.get("framework") or ""),
            world_size=int(said.get("world_size") or 1),
            seconds=_seconds(said.get("seconds")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotWholeError(f"{MANIFEST} isn't one: {error!r}") from error
    if manifest.step != step:
        raise NotWholeError(f"{MANIFEST} is about step {manifest.step}")
    if not manifest.files:
        raise NotWholeError(f"{MANIFEST} names no file")
    for file in manifest.files:
        parts = PurePosixPath(file.path).parts
        unsafe = not parts or file.path.startswith("/") or ".." in parts or "\0" in file.path
        if unsafe or file.size < 0 or not (file.sha256 is None or SHA256.fullmatch(file.sha256)):
            raise NotWholeError(f"{MANIFEST} names an unusable file {file.path!r}")
    return manifest


def prune(checkpoints: Path, committed: int, *, kept: int = KEPT) -> None:
    """
    Keep the newest *kept* committed steps, and everything newer, which is still to be sent.

    At least one stays: the newest committed is what a job of this host would go on from.
    Names that aren't exactly a checkpoint's are nobody's business.
    """
    old = sorted((step for step in _folders(checkpoints) if step <= committed), reverse=True)
    for step in old[max(kept, 1) :]:
        folder = folder_of(checkpoints, step)
        if folder:
            retired = folder.with_name(f".{folder.name}.old")
            # Renamed first, so that nobody ever meets a checkpoint that is half deleted.
            try:
                folder.rename(retired)
            except OSError:
                continue  # the job rotates too
            shutil.rmtree(retired, ignore_errors=True)


def _digest(said: dict[str, object]) -> str | None:
    return str(said["sha256"]) if "sha256" in said else None


def _seconds(said: object) -> float | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return float(said) if 0 <= said < MOST_SECONDS else None


def _folders(checkpoints: Path) -> dict[int, Path]:
    try:
        names = os.listdir(checkpoints)  # noqa: PTH208 - names are all that is needed
    except FileNotFoundError:
        return {}
    found = ((STEP_NAME.fullmatch(name), name) for name in names)
    return {int(match[1]): checkpoints / name for match, name in found if match}


def open_below(folder: Path, path: str) -> int:
    """Open *path* inside *folder*, no part of it being a link."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        *parents, name = PurePosixPath(path).parts
        for parent in parents:
            inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)
