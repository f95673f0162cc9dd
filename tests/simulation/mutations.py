"""Rules taken away, one at a time, by patching the product under the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from reprieve.adapters.memory import InMemoryHostLeases, InMemoryRows, Memory
from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.settlement import Facts
from reprieve.domain.silence import Sights, Silence
from reprieve.ports.leases import Claim
from reprieve.ports.rows import PutTry, Snapshot, Wanted, Write
from reprieve.protocol import Report
from reprieve.usecases.record_report import RecordReport
from reprieve.usecases.settle import Settle
from reprieve.usecases.sweep_view import Look, Swept, held_by
from tests.simulation.host import BucketView, QuickRestorer

Mutation = Callable[[], AbstractContextManager[object]]


def _the(
    owner: type[object], name: str, changed: Callable[..., Any]
) -> AbstractContextManager[object]:
    return patch.object(owner, name, changed)


@contextmanager
def no_seal() -> Iterator[None]:
    """Leave the lineage unwritten: each attempt starts from the newest manifest of any."""
    seal = InMemoryHostLeases.seal

    def unwritten(self: Any, key: LeaseKey, holder: Any, base: str | None) -> Lease:
        before = self._memory.lease_rows.get(key)
        row = seal(self, key, holder, base)
        kept = replace(row, sealed_attempt=before.sealed_attempt, base=before.base)
        self._memory.lease_rows[key] = kept
        return row

    def newest(self: Any, lease: Lease) -> Iterator[str]:
        store: BucketView = self.store
        for attempt in range(lease.key.attempt, 0, -1):
            yield from store.manifests(lease.key.job, attempt)

    with ExitStack() as stack:
        stack.enter_context(_the(InMemoryHostLeases, "seal", unwritten))
        stack.enter_context(_the(QuickRestorer, "_lineage", newest))
        yield


def no_strong_read() -> AbstractContextManager[object]:
    """Settle believes the job's row: a lease is held only if the row says so already."""
    facts_of = Settle._facts

    def believing(self: Settle, job_id: str, read: Snapshot, **asked: Any) -> Facts | None:
        facts = facts_of(self, job_id, read, **asked)
        waits = facts and facts.lease and facts.lease.state is LeaseState.HELD
        looked = asked["ask_ec2"] or asked["gone_beat"] is not None
        if facts and waits and facts.job.status == "QUEUED" and looked:
            lease = replace(facts.lease, state=LeaseState.FREE)  # type: ignore[type-var]
            return replace(facts, lease=lease)
        return facts

    return _the(Settle, "_facts", believing)


@contextmanager
def outcome_only_in_the_report() -> Iterator[None]:
    """Release without an outcome, which then comes with the report alone."""
    told: dict[LeaseKey, dict[str, Any]] = {}
    release, record = InMemoryHostLeases.release, RecordReport.__call__

    def silent(self: Any, key: LeaseKey, holder: Any, **said: Any) -> None:
        release(self, key, holder, **said)
        told[key] = {name: said[name] for name in ("outcome", "cause")}
        row = self._memory.lease_rows[key]
        if row.state is LeaseState.DONE:
            self._memory.lease_rows[key] = replace(
                row, outcome=Outcome.INTERRUPTED, cause=Cause.REQUEUE
            )

    def believing(self: RecordReport, report: Report, **more: Any) -> Any:
        memory: Memory = self.rows._memory  # type: ignore[attr-defined]
        row = memory.lease_rows.get(report.key) if report.key else None
        ends = report.kind in {"finished", "failed", "interrupted"}
        if row and ends and row.state is LeaseState.DONE:
            memory.lease_rows[row.key] = replace(row, **told[row.key])
        return record(self, report, **more)

    with ExitStack() as stack:
        stack.enter_context(_the(InMemoryHostLeases, "release", silent))
        stack.enter_context(_the(RecordReport, "__call__", believing))
        yield


def plan_not_stored() -> AbstractContextManager[object]:
    """Every delivery of an order plans anew."""

    def forget(self: Any, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutTry) and write.new:
                row = write.row
                self._memory.try_rows.pop((row.job, row.attempt, row.n), None)
        commit(self, writes)

    def blind(self: Any, wanted: Wanted) -> Snapshot:
        return read(self, replace(wanted, tries=frozenset()))

    commit, read = InMemoryRows.commit, InMemoryRows.read
    stack = ExitStack()
    stack.enter_context(_the(InMemoryRows, "read", blind))
    stack.enter_context(_the(InMemoryRows, "commit", forget))
    return stack


def silence_by_the_holders_clock() -> AbstractContextManager[object]:
    """Call a lease silent once the expiry that its holder wrote, by its own clock, is past."""

    def by_clock(self: Look, _sights: Sights, read: Snapshot, _swept: Swept) -> Silence:
        memory: Memory = self.jobs._memory  # type: ignore[attr-defined]
        world: Any = memory.before.__self__  # type: ignore[attr-defined]
        silent = set()
        for holder in held_by(read):
            agent = world.agents[holder]
            if agent.spoke_at + agent.skew + 60 < world.now_s:
                silent.add(holder)
        return Silence(proven=frozenset(silent))

    return _the(Look, "_judge", by_clock)


def claim_takes_over() -> AbstractContextManager[object]:
    """Let a ticket win also on a lease that was released."""
    claim = InMemoryHostLeases.claim

    def over(self: Any, key: LeaseKey, holder: Any) -> Claim:
        row = self._memory.lease_rows.get(key)
        if row and row.state is LeaseState.DONE:
            self._memory.lease_rows[key] = replace(row, state=LeaseState.FREE, holder=None)
        return claim(self, key, holder)

    return _the(InMemoryHostLeases, "claim", over)


MUTATIONS: dict[str, Mutation] = {
    "no seal": no_seal,
    "no strong read in settle": no_strong_read,
    "outcome only in the report": outcome_only_in_the_report,
    "plan not stored": plan_not_stored,
    "silence by the holder's clock": silence_by_the_holders_clock,
    "claim takes over a released lease": claim_takes_over,
}
