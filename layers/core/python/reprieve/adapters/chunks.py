"""Long lists in pieces that an API takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def chunks(entries: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield *entries* in order, at most *size* at a time."""
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
