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
    """
    Jobs, their leases and their history.

    Reads are strong. Conditional writes raise ``StaleError`` when somebody else wrote
    first, and ``UnknownOutcomeError`` when the service didn't say.
    """

    def submit(self, job: Job, lease: Lease) -> None:
        """Store a new job together with the FREE lease of its first attempt, or neither."""

    def read(self, job_id: str) -> Job | None:
        """Return the job."""

    def lease(self, key: LeaseKey) -> Lease | None:
        """Return the lease of one attempt."""

    def leases(self, keys: Iterable[LeaseKey]) -> dict[LeaseKey, Lease]:
        """Return those leases that exist, in as few calls as possible."""

    def update(self, job: Job) -> Job:
        """Store *job* if its row still has ``job.version``; return it with the next version."""

    def end_attempt(
        self, job: Job, lease: Lease, *, successor: Lease | None, ended: Attempt
    ) -> Job:
        """
        Close *lease* and store *job* in one transaction.

        Conditions: the job row has ``job.version`` and the lease row has ``lease.beat``
        and isn't CLOSED. With *successor* the lease of the next attempt is armed in the
        same transaction. A HELD lease is also taken from its holder's HOLDS. *ended* is
        merged into the attempt's row.
        """

    def arm(self, job: Job, lease: Lease) -> Job:
        """
        Store *job* and the FREE lease of its next attempt in one transaction.

        For a job whose last lease is closed already: it was parked and needed a person.
        """

    def note_attempt(self, attempt: Attempt) -> None:
        """Merge the fields that *attempt* knows into its row."""

    def attempts(self, job_id: str) -> Sequence[Attempt]:
        """Return all attempts, first one first."""

    def add_events(self, job_id: str, events: Sequence[Event]) -> None:
        """Append to the timeline; the same event said twice is stored once."""

    def events(self, job_id: str) -> Sequence[Event]:
        """Return the timeline, oldest first."""

    def live(self, pool: str) -> Live:
        """Return the pool's entries of the index."""
