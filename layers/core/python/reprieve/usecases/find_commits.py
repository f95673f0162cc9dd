"""Checkpoints that are in the bucket although nobody heard of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve.domain.job import Attempt, CheckpointRef, Event, Job, JobStatus
from reprieve.domain.lease import Lease, LeaseState
from reprieve.ports.jobs import JobStore
from reprieve.ports.manifests import Manifests
from reprieve.ports.rows import AddEvents, NoteAttempt, PutJob, Rows

WAITING = frozenset({JobStatus.QUEUED, JobStatus.PARKED})


def may_have_more(job: Job, lease: Lease | None) -> bool:
    """
    Whether the last attempt of a waiting job may have committed more than it could tell.

    A host that dies right after its commit can't. The next attempt finds it all the same,
    since it asks the bucket; but people, the budgets and the lost steps would be told wrong.
    """
    return (
        lease is not None
        and job.status in WAITING
        and lease.state in {LeaseState.FREE, LeaseState.CLOSED}
        and lease.sealed_attempt > 0
    )


@dataclass(frozen=True, slots=True)
class FindCommits:
    """The use case: raise a job's pointer to the newest commit of its sealed lineage."""

    rows: Rows
    jobs: JobStore
    manifests: Manifests
    now: Callable[[], datetime]

    def __call__(self, job: Job, lease: Lease) -> CheckpointRef | None:
        """
        Return what was found beyond the pointer, which then stands in the job's row.

        Only commits of the last attempt that sealed count: a host of an earlier one may
        have come to life since, and what it commits is outside the lineage. Raises
        ``StaleError`` if the job moved on meanwhile.
        """
        after = job.checkpoint.step if job.checkpoint else None
        found = self.manifests.newest(job.id, lease.sealed_attempt, after=after)
        if found is None:
            return None
        ended = self._attempt(job, lease.sealed_attempt)
        kept = _kept(ended, found)
        text = f"found the checkpoint of step {found.step} in the bucket; its report was lost"
        raised = replace(
            job,
            checkpoint=found,
            counters=replace(job.counters, no_progress=0),
            steps_lost=max(0, job.steps_lost - kept),
        )
        data: dict[str, str | int | float | bool | None] = {
            "manifest": found.manifest,
            "step": found.step,
            "not_lost": kept,
        }
        event = Event(self.now(), "found", text, lease.sealed_attempt, data)
        noted = Attempt(job.id, lease.sealed_attempt, committed_step=found.step)
        self.rows.commit([PutJob(raised), NoteAttempt(noted), AddEvents(job.id, (event,))])
        return found

    def _attempt(self, job: Job, n: int) -> Attempt:
        rows = [row for row in self.jobs.attempts(job.id) if row.n == n]
        return rows[0] if rows else Attempt(job.id, n)


def _kept(ended: Attempt, found: CheckpointRef) -> int:
    """Return how many steps were called lost and are not."""
    known = ended.committed_step or ended.restored_step or 0
    return min(ended.steps_lost, max(0, found.step - known))
