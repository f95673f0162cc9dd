"""A folder of code as one zip whose name is its content: the same files give the same bytes."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from reprieve_cli.errors import BadInputError
from reprieve_cli.ignore import IGNORE_FILE, Ignore, kept

MOST_FILES = 10_000
MOST_BYTES = 256 * 2**20  # unpacked; data belongs in a bucket, not in every start of a job
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say

MIB = 2**20
LONGEST_TEXT = 2**20


@dataclass(frozen=True, slots=True)
class Bundle:
    """
    A packed folder.

    ``texts`` are the files that a person may have written, by path.
    """

    path: Path
    sha256: str
    size: int
    files: frozenset[str]
    texts: dict[str, bytes]


def pack(folder: Path, *, to: Path) -> Bundle:
    """
    Zip what *folder* holds beyond the ignored into the file *to*.

    Raises ``BadInputError``: no such folder, nothing in it, too much in it, or something
    that a zip can't carry.
    """
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "doesn't exist"
        raise BadInputError(f"--code {folder} {what}: give the folder that holds the job's code")
    files = _files(folder)
    texts = {}
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file in files:
            body = _read(file)
            if len(body) <= LONGEST_TEXT and b"\0" not in body:
                texts[file.relative_to(folder).as_posix()] = body
            archive.writestr(_entry(file, folder), body)
    digest = hashlib.sha256()
    with to.open("rb") as packed:
        while block := packed.read(MIB):
            digest.update(block)
    return Bundle(
        path=to,
        sha256=digest.hexdigest(),
        size=to.stat().st_size,
        files=frozenset(file.relative_to(folder).as_posix() for file in files),
        texts=texts,
    )


def _files(folder: Path) -> list[Path]:
    try:
        files = list(kept(folder, Ignore.of_folder(folder)))
    except OSError as error:
        raise BadInputError(f"--code: cannot read {error.filename}: {error.strerror}") from error
    if not files:
        raise BadInputError(
            f"--code {folder} is empty once {IGNORE_FILE} and the defaults are applied: "
            "give the folder that holds the job's code"
        )
    if len(files) > MOST_FILES:
        raise BadInputError(
            _too_much(folder, Counter(_top(file, folder) for file in files), "files")
        )
    sizes: Counter[str] = Counter()
    for file in files:
        _refuse_what_no_zip_carries(file)
        sizes[_top(file, folder)] += file.stat().st_size
    if sizes.total() > MOST_BYTES:
        raise BadInputError(_too_much(folder, sizes, "MiB"))
    return files


def _top(file: Path, folder: Path) -> str:
    return file.relative_to(folder).parts[0]


def _too_much(folder: Path, tally: Counter[str], unit: str) -> str:
    ((largest, most),) = tally.most_common(1)
    total, limit = tally.total(), MOST_FILES
    if unit == "MiB":
        total, most, limit = total // MIB, most // MIB, MOST_BYTES // MIB
    return (
        f"--code {folder} holds {total:,} {unit}, the limit is {limit:,}: "
        f"name what the job doesn't need in {IGNORE_FILE} ({largest} alone is {most:,} {unit})"
    )


def _refuse_what_no_zip_carries(file: Path) -> None:
    if file.is_file():
        return
    what = "is neither a file nor a folder"
    if file.is_symlink():
        what = "is a link to a folder" if file.is_dir() else "is a broken link"
    raise BadInputError(f"--code: {file} {what}: replace it, or name it in {IGNORE_FILE}")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInputError(f"--code: cannot read {file}: {error.strerror}") from error


def _entry(file: Path, folder: Path) -> zipfile.ZipInfo:
    """Return the entry without what differs from machine to machine: time, owner, umask."""
    entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), date_time=EPOCH)
    executable = file.stat().st_mode & stat.S_IXUSR
    entry.create_system = 3  # Unix, so that the mode below means something
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
