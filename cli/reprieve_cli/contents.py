"""The bytes of a checkpoint in the bucket: read to the last one, compared with the manifest."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reprieve.domain.checkpoint import FileEntry, Manifest
from reprieve_cli.errors import AnswerIsNoError, BadInputError
from reprieve_cli.objects import Objects


def faults(manifest: Manifest, objects: Objects) -> list[str]:
    """Return what is wrong with each file that is bad; every byte is read."""
    checked = (_read(file, objects, write=_nowhere) for file in manifest.files)
    return [fault for fault in checked if fault]


def restore(manifest: Manifest, objects: Objects, target: Path) -> None:
    """
    Make *target* hold the files, all of them or none; it must be empty or not exist.

    Raises ``AnswerIsNoError`` for a checkpoint that isn't whole.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInputError(f"{target} exists and isn't an empty folder: choose another")
    with _draft(target) as draft:
        for file in manifest.files:
            path = draft / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as opened:
                fault = _read(file, objects, write=opened.write)
            if fault:
                raise AnswerIsNoError(
                    f"the checkpoint of step {manifest.step} isn't whole: {fault}; nothing was "
                    "written (reprieve checkpoints ls shows the others)"
                )
        if target.exists():
            target.rmdir()
        draft.rename(target)


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Give a folder beside *target*, so that one rename makes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft.chmod(0o755)
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _read(file: FileEntry, objects: Objects, *, write: Callable[[bytes], object]) -> str:
    """Pass on the bytes of *file*; return what is wrong with them, or nothing."""
    chunks = objects.chunks(file.key)
    if chunks is None:
        return f"{file.path} is missing"
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        write(chunk)
    if size != file.size:
        return f"{file.path} has {size} bytes, not {file.size}"
    if digest.hexdigest() != file.sha256:
        return f"{file.path} has another SHA-256 than its manifest says"
    return ""


def _nowhere(_chunk: bytes) -> None:
    return
