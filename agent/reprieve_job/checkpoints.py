"""
Checkpoints on disk that are either whole or not there at all.

A save is written to ``.step-<n>.part/``, every file is synced, ``MANIFEST.json`` (sizes and
SHA-256) comes last, then one rename to ``step-<n>/`` and a sync of the parent folder. A crash at
any point leaves a ``.part`` that nobody reads. Names that start with a dot are never checkpoints.

A save before the host goes away isn't synced: the disk goes with it, and the time is the upload's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from reprieve_job.contract import VERSION
from reprieve_job.early import Digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MANIFEST_FILE = "MANIFEST.json"

_STEP_NAME = re.compile(r"step-(\d+)", re.ASCII)
_LEFTOVERS = (".step-*.part", ".step-*.old")
_READ_BYTES = 1 << 20

_log = logging.getLogger("reprieve_job")


class CheckpointError(RuntimeError):
    """A checkpoint could not be written; the ones before it are untouched."""


class CheckpointStore:
    """The checkpoint folders in one directory; one process writes there at a time."""

    def __init__(self, directory: Path, *, keep: int | None) -> None:
        """Hold checkpoints in *directory*, the newest *keep* of them (None: all)."""
        self._directory = directory
        self._keep = keep
        self._saved_here: set[int] = set()

    def folder(self, step: int) -> Path:
        """Return where the checkpoint of *step* lies once it is whole."""
        return self._directory / f"step-{step}"

    def steps(self) -> list[int]:
        """Return the steps of the folders that hold a manifest and all its bytes, newest first."""
        return [step for step in self._numbered() if fault(self.folder(step), hashes=False) is None]

    def newest_whole(self) -> int | None:
        """
        Return the newest step whose files match their hashes, or None.

        One that does not match is set aside under a dotted name, so that it is neither taken
        for a checkpoint later nor in the way when training reaches its step again.
        """
        for step in self._numbered():
            folder = self.folder(step)
            reason = fault(folder, hashes=True)
            if reason is None:
                return step
            _log.warning("checkpoint ignored: %s: %s", folder, reason)
            if (folder / MANIFEST_FILE).exists():
                self._set_aside(step)
        return None

    def is_whole(self, step: int) -> bool:
        """Tell whether *step* is already saved; hashes are compared unless we wrote it."""
        return fault(self.folder(step), hashes=step not in self._saved_here) is None

    @contextlib.contextmanager
    def saving(
        self, step: int, *, facts: dict[str, Any], lasting: Callable[[], bool] = lambda: True
    ) -> Iterator[Path]:
        """
        Give a folder to write to; it becomes the checkpoint of *step* when the block ends well.

        *facts* go into the manifest. *lasting* tells, whenever it is asked, whether this disk
        will be read again: then every file is synced. When the block or the sync fails, the
        folder is removed and an ``OSError`` is raised as ``CheckpointError``.
        """
        part = self._directory / f".step-{step}.part"
        began = monotonic()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            part.mkdir()
            digests = Digests(part, sync=lasting)
            try:
                yield part
                sync = lasting()
                _seal(part, {"step": step, **facts}, began=began, digests=digests, sync=sync)
            finally:
                digests.end()
            self._publish(part, step, sync=sync)
        except OSError as error:
            _remove(part)
            raise CheckpointError(
                f"checkpoint of step {step} was not saved in {self._directory}:"
                f" {error.strerror or error}; earlier checkpoints are untouched"
            ) from error
        except BaseException:
            _remove(part)
            raise
        self._saved_here.add(step)

    @contextlib.contextmanager
    def discarding(self, step: int) -> Iterator[Path]:
        """Give a folder to write to that is thrown away: *step* is already saved."""
        part = self._directory / f".step-{step}.part"
        _remove(part)
        part.mkdir()
        try:
            yield part
        finally:
            _remove(part)

    def rotate(self) -> None:
        """Remove all whole checkpoints but the newest ones."""
        if self._keep is None:
            return
        for step in self.steps()[self._keep :]:
            retired = self._directory / f".step-{step}.old"
            # Renamed first: a reader never meets a checkpoint that is half deleted. The host
            # may be faster, and one that stays costs space: neither must stop the training.
            with contextlib.suppress(OSError):
                self.folder(step).rename(retired)
            _remove(retired)

    def _numbered(self) -> list[int]:
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return []
        matches = (_STEP_NAME.fullmatch(name) for name in names)
        steps = {int(match[1]) for match in matches if match}
        return sorted(steps, reverse=True)

    def _publish(self, part: Path, step: int, *, sync: bool) -> None:
        folder = self.folder(step)
        if folder.exists():
            self._set_aside(step)
        part.rename(folder)
        if sync:
            _sync(self._directory)

    def _set_aside(self, step: int) -> None:
        aside = self._directory / f".step-{step}.corrupt"
        _remove(aside)
        self.folder(step).rename(aside)

    def _remove_leftovers(self) -> None:
        for pattern in _LEFTOVERS:
            for leftover in self._directory.glob(pattern):
                _remove(leftover)


def fault(folder: Path, *, hashes: bool) -> str | None:
    """Say what is wrong with the checkpoint in *folder*, or None when it is whole."""
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
        entries = [
            (str(f["path"]), int(f["size"]), str(f.get("sha256"))) for f in manifest["files"]
        ]
    except FileNotFoundError:
        return f"no {MANIFEST_FILE}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"unreadable {MANIFEST_FILE}: {error}"
    faults = (_file_fault(folder, *entry, hashes=hashes) for entry in entries)
    return next((found for found in faults if found is not None), None)


def _file_fault(folder: Path, path: str, size: int, sha256: str, *, hashes: bool) -> str | None:
    try:
        if (folder / path).stat().st_size != size:
            return f"{path} is not {size} bytes long"
        if hashes and _sha256(folder / path) != sha256:
            return f"{path} does not match its SHA-256"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what the manifest in *folder* says, nothing if there is none to read."""
    try:
        found = json.loads((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _seal(part: Path, facts: dict[str, Any], *, began: float, digests: Digests, sync: bool) -> None:
    """Describe what the job wrote to *part* in the manifest, which is written last."""
    files = _plain_files(part)
    if not files:
        raise CheckpointError(
            f"nothing was written to {part}: write the checkpoint's files to that folder"
        )
    described = [
        {"path": path.as_posix(), "size": (part / path).stat().st_size, "sha256": sha256}
        for path, sha256 in zip(files, digests.of(files), strict=True)
    ]
    manifest = part / MANIFEST_FILE
    content = {"v": VERSION, **facts, "seconds": round(monotonic() - began, 3), "files": described}
    manifest.write_text(json.dumps(content), encoding="utf-8")
    if sync:
        folders = [path for path in part.rglob("*") if path.is_dir()]
        for path in (*folders, manifest, part):
            _sync(path)


def _plain_files(part: Path) -> list[Path]:
    """Return the files under *part*, relative to it and in a fixed order."""
    found = sorted(path for path in part.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise CheckpointError(
                f"{path} is not a plain file: a checkpoint holds plain files only"
            )
    relative = [path.relative_to(part) for path in found]
    if Path(MANIFEST_FILE) in relative:
        raise CheckpointError(
            f"{part / MANIFEST_FILE} is written by reprieve_job: choose another name"
        )
    return relative


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove *folder* if it is there; what can't be removed costs space, not correctness."""
    shutil.rmtree(folder, ignore_errors=True)
