"""The bucket: checkpoints, code and logs, as hosts and people use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


class Ledger(Protocol):
    """
    Which parts of one file are in the bucket already.

    Who uploads the file again under the same key, with its ledger, sends only what is
    missing. One that outlives the process lets its next life go on there.
    """

    @property
    def upload_id(self) -> str | None:
        """The upload under way, None before it began."""

    @property
    def part_bytes(self) -> int | None:
        """How long its parts are, but for the last."""

    @property
    def parts(self) -> Mapping[int, str]:
        """The tags of the parts that were stored, by number."""

    def begin(self, upload_id: str, part_bytes: int) -> None:
        """Note that an upload began."""

    def sent(self, number: int, tag: str) -> None:
        """Note that a part was stored; called from several threads."""

    def forget(self) -> None:
        """Note that the bucket knows nothing of it any more."""


@dataclass(slots=True)
class MemoryLedger:
    """A ``Ledger`` that lives as long as the process."""

    upload_id: str | None = None
    part_bytes: int | None = None
    parts: dict[int, str] = field(default_factory=dict)

    def begin(self, upload_id: str, part_bytes: int) -> None:
        """Start with no part."""
        self.upload_id, self.part_bytes, self.parts = upload_id, part_bytes, {}

    def sent(self, number: int, tag: str) -> None:
        """Add a part."""
        self.parts[number] = tag

    def forget(self) -> None:
        """Start over."""
        self.upload_id, self.part_bytes, self.parts = None, None, {}


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

    def put_file(
        self,
        key: str,
        source: Path,
        *,
        ledger: Ledger | None = None,
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Store the bytes of *source* under *key*, a new name; abort cleanly when *stopped*."""

    def commit(self, manifest: Manifest) -> Manifest:
        """
        Store the manifest if its key is new, and return the one that now stands there.

        That is another one if this step was already committed: the first commit counts.
        """

    def marks(self, job: str) -> Mapping[str, str]:
        """Return the manifests that were set aside, each with the reason why."""

    def set_aside(self, manifest: str, reason: str, *, by: str) -> None:
        """Write down, once and for all, that *manifest* is of no use; the first word stands."""

    def fetch_code(self, sha256: str, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Write the zip of a job's code to *target* and check its digest."""

    def put_log(self, job: str, attempt: int, body: bytes) -> None:
        """Replace the stored log of one attempt."""
