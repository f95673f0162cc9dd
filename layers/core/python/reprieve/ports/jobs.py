"""Durable job state, as the functions and the CLI use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprieve.domain.host import HostState
from reprieve.domain.job import Attempt, Event, Job, JobStatus
from reprieve.domain.lease import Lease, LeaseKey


@dataclass(frozen=True, slots=True)
class Live:
    """
    What isn't over in one pool, from an eventually consistent index: for lists only.

    Every decision about an entry starts with a strong read of its row.
    """

    jobs: tuple[tuple[str, JobStatus], ...] = ()
    hosts: tuple[tuple[str, HostState], ...] = ()
    orders: tuple[tuple[str, int], ...] = ()


class JobStore(Protocol):
    """Jobs, their leases and their history, as people read them. Reads are strong."""

    def read(self, job_id: str) -> Job | None:
        """Return the job."""

    def lease(self, key: LeaseKey) -> Lease | None:
        """Return the lease of one attempt."""

    def leases(self, keys: Iterable[LeaseKey]) -> dict[LeaseKey, Lease]:
        """Return those leases that exist, in as few calls as possible."""

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        """Return all attempts, first one first."""

    def events(self, job_id: str) -> Sequence[Event]:
        """Return the timeline, oldest first."""

    def live(self, pool: str) -> Live:
        """Return the pool's entries of the index."""
