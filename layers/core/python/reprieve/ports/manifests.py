"""The bucket as the sweep looks at it: what a job has committed beyond what its row knows."""

from __future__ import annotations

from typing import Protocol

from reprieve.domain.job import CheckpointRef


class Manifests(Protocol):
    """Commits in the bucket."""

    def newest(self, job: str, attempt: int, *, after: int | None) -> CheckpointRef | None:
        """
        Return the newest readable commit of one attempt beyond the step *after*, if any.

        Raises ``UnknownOutcomeError`` when the bucket didn't say.
        """
