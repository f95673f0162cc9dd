"""The bucket: manifests, their bytes and the marks, for hosts, for the sweep and for collection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from reprieve.domain.checkpoint import (
    FileEntry,
    Manifest,
    data_key,
    mark_key,
    own_manifests,
    step_of,
)
from reprieve.domain.job import CheckpointRef
from reprieve.ports.checkpoints import BadObjectError
from reprieve.ports.stored import Listing, Object

T = TypeVar("T")

SIZE = 1


@dataclass(slots=True)
class Bucket:
    """*bad* says since when, in seconds, a manifest's bytes aren't what it says."""

    clock: Callable[[], datetime]
    manifests_there: dict[str, Manifest] = field(default_factory=dict)
    written: dict[str, datetime] = field(default_factory=dict)
    data: dict[str, Object] = field(default_factory=dict)
    aside: dict[str, str] = field(default_factory=dict)
    bad: dict[str, float] = field(default_factory=dict)
    ever: dict[str, Manifest] = field(default_factory=dict)

    # As a host sees it -------------------------------------------------------------------------

    def files(self, job: str, attempt: int, save_id: str) -> tuple[FileEntry, ...]:
        """Upload the one file of a save; without a manifest it is half a checkpoint."""
        key = data_key(job, attempt, save_id, "weights")
        self.data[key] = Object(SIZE, self.clock())
        return (FileEntry("weights", key, SIZE, "0" * 64),)

    def commit(self, manifest: Manifest) -> Manifest:
        """Store the manifest if its key is new; return the one that stands."""
        if manifest.key not in self.manifests_there:
            self.manifests_there[manifest.key] = self.ever[manifest.key] = manifest
            self.written[manifest.key] = self.clock()
        return self.manifests_there[manifest.key]

    def manifests(self, job: str, attempt: int) -> Sequence[str]:
        """Return one attempt's, newest step first."""
        mine = [key for key in self.manifests_there if key.startswith(f"jobs/{job}/")]
        return own_manifests(mine, attempt)

    def manifest(self, key: str) -> Manifest:
        """Read and check one, its bytes included."""
        found = self.manifests_there.get(key)
        if found is None or key in self.bad or any(f.key not in self.data for f in found.files):
            raise BadObjectError(f"{key} is missing, or has the wrong digest")
        return found

    def marks(self, job: str) -> Mapping[str, str]:
        """Return what was set aside."""
        return {key: why for key, why in self.aside.items() if key.startswith(f"jobs/{job}/")}

    def set_aside(self, manifest: str, reason: str, *, by: str) -> None:
        """Note that one is of no use; the first word stands."""
        self.aside.setdefault(manifest, f"{reason} ({by})")

    # As the sweep sees it ----------------------------------------------------------------------

    def newest(self, job: str, attempt: int, *, after: int | None) -> CheckpointRef | None:
        """Return the newest commit of one attempt beyond *after*."""
        for key in self.manifests(job, attempt):
            place = step_of(key)
            if place and (after is None or place[1] > after):
                return CheckpointRef(place[1], key)
        return None


class Port(Protocol):
    """Makes a call by name, so that it can fail like any other."""

    def __call__(self, name: str, call: Callable[[], T], /) -> T:
        """Return what the call returned."""


@dataclass(frozen=True, slots=True)
class Finder:
    """The same bucket as the search for late commits sees it."""

    bucket: Bucket
    port: Port

    def newest(self, job: str, attempt: int, *, after: int | None) -> CheckpointRef | None:
        """Return the newest commit of one attempt beyond *after*."""
        return self.port("manifests.newest", lambda: self.bucket.newest(job, attempt, after=after))


@dataclass(frozen=True, slots=True)
class Shelves:
    """The same bucket as collection sees it."""

    bucket: Bucket
    deleting: Callable[[Sequence[str]], None]
    port: Port

    def listing(self, job: str) -> Listing:
        """Return all that *job* has stored."""
        return self.port("stored.listing", lambda: self._listing(job))

    def _listing(self, job: str) -> Listing:
        bucket, mine = self.bucket, f"jobs/{job}/"
        there = [key for key in bucket.manifests_there if key.startswith(mine)]
        return Listing(
            manifests={key: Object(SIZE, bucket.written[key]) for key in there},
            data={key: one for key, one in bucket.data.items() if key.startswith(mine)},
            marks=frozenset(key for key in bucket.aside if key.startswith(mine)),
        )

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest itself; what it names may be bad all the same."""
        return self.port("stored.manifest", lambda: self.bucket.manifests_there.get(key))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete manifests, marks and bytes."""
        self.port("stored.delete", lambda: self._delete(keys))

    def _delete(self, keys: Sequence[str]) -> None:
        self.deleting(keys)
        bucket = self.bucket
        marks = {mark_key(key): key for key in bucket.aside}
        for key in keys:
            bucket.manifests_there.pop(key, None)
            bucket.data.pop(key, None)
            bucket.aside.pop(marks.get(key, ""), None)
