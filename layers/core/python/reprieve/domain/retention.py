"""Which checkpoints of a job are superfluous: a decision on names and numbers alone."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from reprieve.domain.checkpoint import step_of


@dataclass(frozen=True, slots=True)
class Retention:
    """
    What is kept of a job's lineage.

    The newest *keep* of it, at least one, and of every *every* steps the first; 0 keeps
    nothing beyond the newest. Two are the least for a job that should survive a damaged
    checkpoint: the newest, and the one before it.
    """

    keep: int = 3
    every: int = 0

    @property
    def least(self) -> int:
        """How many of the newest stay; to keep none is no choice."""
        return max(self.keep, 1)

    def kept(
        self,
        lineage: Sequence[str],
        *,
        bad: Container[str],
        young: Container[str],
        base: str | None,
    ) -> frozenset[str]:
        """
        Return those of *lineage*, manifests from the newest to the oldest, that stay.

        What was set aside (*bad*) doesn't count as one of the newest, and stays until there
        are enough others: it may have been the host's fault. What is *young* stays and
        doesn't count either: somebody may just be deciding on it. *base* always stays.
        """
        counted = [key for key in lineage if key not in bad and key not in young]
        stay = {key for key in lineage if key in young or key == base}
        stay |= set(counted[: self.least])
        if len(counted) < self.least:
            stay |= {key for key in lineage if key in bad}
        return frozenset(stay | self._landmarks(counted))

    def _landmarks(self, counted: Sequence[str]) -> set[str]:
        """Return the first of every so many steps: the same ones whatever is collected later."""
        if not self.every:
            return set()
        first: dict[int, str] = {}
        for key in counted:  # from the newest on: the oldest of each stretch is written last
            place = step_of(key)
            if place:
                first[place[1] // self.every] = key
        return set(first.values())
