"""
Deleting what a job no longer needs in the bucket. Only functions may: a host can't delete.

Nothing goes while anybody could still choose it: only of a job whose current attempt is
sealed, held and has committed, and whose newest commit is all there; never its base, never
the newest of the lineage, never what was written a moment ago. Manifests go first, so that
none ever names bytes that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from zlib import crc32

from reprieve.domain.checkpoint import Manifest, data_attempt, mark_key, own_manifests, step_of
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError
from reprieve.domain.job import Event, Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.retention import Retention
from reprieve.ports.rows import AddEvents, Alive, Rows, Wanted
from reprieve.ports.stored import Listing, Object, Stored
from reprieve.usecases.sweep_view import Piece, Swept, View

TURNS = 10


def may_collect(job: Job, lease: Lease | None) -> bool:
    """Whether anything of *job* may be superfluous, as far as rows can say."""
    return (
        lease is not None
        and not job.terminal
        and lease.key == job.lease_key
        and lease.state is LeaseState.HELD
        and lease.sealed
        and lease.committed_manifest is not None
    )


@dataclass(frozen=True, slots=True)
class Collection:
    """What is to go, in this order, and how many bytes that frees."""

    manifests: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    bytes: int = 0
    marks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.manifests or self.data)


@dataclass(frozen=True, slots=True)
class CollectCheckpoints:
    """The use case. *grace* is how long a thing is left alone after it was written."""

    rows: Rows
    stored: Stored
    retention: Retention
    grace: timedelta
    now: Callable[[], datetime]

    def __call__(self, job_id: str) -> Collection:
        """Delete what is superfluous, and return it."""
        read = self.rows.read(Wanted(jobs=frozenset({job_id})))
        job = read.job(job_id)
        if job is None:
            return Collection()
        read = self.rows.read(Wanted(leases=frozenset({job.lease_key})))
        lease = read.lease(job.lease_key)
        if lease is None or not may_collect(job, lease):
            return Collection()
        found = self.plan(lease)
        if found:
            for keys in (found.manifests, found.marks, found.data):
                self.stored.delete(keys)
            self._tell(job, found)
        return found

    def plan(self, lease: Lease) -> Collection:
        """Say what is superfluous; nothing, if the newest commit isn't proved to be whole."""
        listing = self.stored.listing(lease.key.job)
        look = _Look(self.stored, listing, lease)
        newest = look.newest_whole()
        if newest is None:
            return Collection()
        lineage = list(look.lineage())
        until = self.now() - self.grace
        young = {key for key, one in listing.manifests.items() if one.at > until}
        kept = self.retention.kept(lineage, bad=listing.marks, young=young, base=lease.base)
        # Nothing may depend on a commit whose host can still be writing the next.
        kept |= young | {newest.key}
        gone = [key for key in listing.manifests if key not in kept and step_of(key)]
        if not look.complete and len(kept & set(lineage)) < self.retention.least:
            gone = [key for key in gone if key in lineage]
        named = look.files(kept)
        if named is None:
            return Collection()
        data = look.superfluous(gone, named, until=until)
        return Collection(
            manifests=tuple(sorted(gone)),
            data=tuple(sorted(data)),
            bytes=sum(listing.data[key].size for key in data),
            marks=tuple(mark_key(key) for key in sorted(gone) if key in listing.marks),
        )

    def _tell(self, job: Job, found: Collection) -> None:
        text = f"collected {len(found.manifests)} superseded checkpoints, {found.bytes} bytes"
        data = {"checkpoints": len(found.manifests), "bytes": found.bytes}
        event = Event(self.now(), "collected", text, job.attempt, dict(data))
        try:
            self.rows.commit([AddEvents(job.id, (event,)), Alive(job.id, job.attempt)])
        except StaleError:
            return  # it moved on; what was collected was superfluous all the same


@dataclass(frozen=True, slots=True)
class SweepCheckpoints:
    """The sweep's part: each job's bucket is looked through in every tenth sweep or so."""

    collect: CollectCheckpoints
    clock: NoticeClock

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return the collections."""
        nth = int(view.at.timestamp() / self.clock.sweep.total_seconds())
        return [
            Piece(f"7 collect {job.id}", partial(self._collect, job.id, swept))
            for job in view.jobs()
            if (nth + crc32(job.id.encode())) % TURNS == 0 and may_collect(job, view.lease(job))
        ]

    def _collect(self, job_id: str, swept: Swept) -> None:
        if self.collect(job_id):
            swept.collected.append(job_id)


@dataclass(slots=True)
class _Look:
    """One job's checkpoints, read as far as it takes."""

    stored: Stored
    listing: Listing
    lease: Lease
    complete: bool = False
    _read: dict[str, Manifest | None] = field(default_factory=dict)

    def newest_whole(self) -> Manifest | None:
        """Return the newest commit of the current attempt, if all of its bytes are there."""
        own = own_manifests(self.listing.manifests, self.lease.key.attempt)
        newest = self._manifest(own[0]) if own and own[0] not in self.listing.marks else None
        if newest is None:
            return None
        there = self.listing.data
        whole = all(f.key in there and there[f.key].size == f.size for f in newest.files)
        return newest if whole else None

    def lineage(self) -> Iterator[str]:
        """
        Yield the manifests of the lineage, newest first, as a restore walks them.

        ``complete`` tells afterwards whether its beginning was reached: a job may have
        ancestors that nobody can name any more.
        """
        seen: set[str] = set()
        attempt, below = self.lease.key.attempt, None
        base = self.lease.base
        while True:
            own = own_manifests(self.listing.manifests, attempt)
            chain = [key for key in own if below is None or (step_of(key) or (0, 0))[1] <= below]
            chain = [key for key in chain if key not in seen]
            seen.update(chain)
            yield from chain
            if attempt != self.lease.key.attempt:
                oldest = self._manifest(chain[-1]) if chain else None
                if oldest is None:
                    return
                base = oldest.parent
            place = step_of(base) if base else None
            if place is None:
                self.complete = base is None
                return
            if place[0] == attempt:  # its beginning was collected before
                return
            attempt, below = place

    def files(self, manifests: frozenset[str]) -> set[str] | None:
        """Return the data that *manifests* name; None if one of them can't be read."""
        named: set[str] = set()
        for key in manifests & self.listing.manifests.keys():
            manifest = self._manifest(key)
            if manifest is None:
                return None
            named |= {file.key for file in manifest.files}
        return named

    def superfluous(self, gone: list[str], named: set[str], *, until: datetime) -> set[str]:
        """
        Return the data that nobody names any more.

        Of the current attempt only what the *gone* ones name: the rest may belong to a save
        that is just being sent. Of those before it all, once it has lain for a while.
        """
        theirs: set[str] = set()
        for key in gone:
            manifest = self._manifest(key)
            theirs |= {file.key for file in manifest.files} if manifest else set()

        def ours(key: str, one: Object) -> bool:
            attempt = data_attempt(key)
            earlier = attempt is not None and attempt < self.lease.key.attempt
            return key in theirs or (earlier and one.at <= until)

        return {
            key for key, one in self.listing.data.items() if key not in named and ours(key, one)
        }

    def _manifest(self, key: str) -> Manifest | None:
        if key not in self._read:
            self._read[key] = self.stored.manifest(key)
        return self._read[key]
