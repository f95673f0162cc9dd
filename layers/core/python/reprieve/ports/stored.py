"""The bucket as collection sees it: all that one job has stored, and what it takes to delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from reprieve.domain.checkpoint import Manifest


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the bucket; *at* is the bucket's own clock."""

    size: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Listing:
    """What one job has in the bucket, by key; *marks* are the manifests that were set aside."""

    manifests: Mapping[str, Object] = field(default_factory=dict)
    data: Mapping[str, Object] = field(default_factory=dict)
    marks: frozenset[str] = frozenset()


class Stored(Protocol):
    """Every method raises ``UnknownOutcomeError`` when the bucket didn't say."""

    def listing(self, job: str) -> Listing:
        """Return everything that *job* has in the bucket."""

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest, None if it isn't there or is none."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete; what isn't there is as good as deleted."""
