"""The bucket: checkpoints, code and logs, as hosts and people use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from reprieve.domain.checkpoint import FileEntry, Manifest
from reprieve.domain.errors import ReprieveError


class BadObjectError(ReprieveError):
    """An object that is missing, or whose size, digest or content is wrong: no retry mends it."""


class AbortedError(ReprieveError):
    """The caller's *stopped* said so; whatever was half done is left out of the bucket."""


def never() -> bool:
    """Answer ``stopped`` for a transfer that nobody will call off."""
    return False


class Checkpoints(Protocol):
    """
    Objects, checked.

    Who calls what: a save sends its files (``put_file``), then ``commit``; a restore lists
    (``manifests``), reads (``manifest``) and fetches each file (``fetch``). Every method
    raises ``UnknownOutcomeError`` for a passing trouble (try again: it says nothing about
    the object) and ``BadObjectError`` for a bad object, so that only the second condemns one.
    """

    def manifests(self, job: str, attempt: int) -> Sequence[str]:
        """Return the keys of one attempt's manifests, newest step first."""

    def manifest(self, key: str) -> Manifest:
        """Read and check the manifest at *key*."""

    def fetch(self, entry: FileEntry, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Write the file to *target*, which must be new, and check its size and digest."""

    def put_file(self, key: str, source: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Store the bytes of *source* under *key*, a new name; abort cleanly when *stopped*."""

    def commit(self, manifest: Manifest) -> Manifest:
        """
        Store the manifest if its key is new, and return the one that now stands there.

        That is another one if this step was already committed: the first commit counts.
        """

    def fetch_code(self, sha256: str, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Write the zip of a job's code to *target* and check its digest."""

    def put_log(self, job: str, attempt: int, body: bytes) -> None:
        """Replace the stored log of one attempt."""
