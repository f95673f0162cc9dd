"""
The 26 rules taken away, one at a time, by patching the product under the search.

``python -m tests.simulation.mutations`` tells for each the first seed that misses it.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from reprieve.adapters.memory import InMemoryHostLeases, InMemoryRows, Memory
from reprieve.domain import settlement
from reprieve.domain.capacity import Census
from reprieve.domain.checkpoint import step_of
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import HostState, InstanceState
from reprieve.domain.job import CheckpointRef, JobStatus
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.retention import Retention
from reprieve.domain.settlement import Facts, Move, Nothing
from reprieve.domain.silence import Sights, Silence
from reprieve.ports.leases import Claim
from reprieve.ports.rows import Alive, PutOrder, PutTry, Snapshot, Unchanged, Wanted, Write
from reprieve.protocol import Report
from reprieve.usecases import effects, handle_notice, record_report, submit
from reprieve.usecases.handle_notice import HandleNotice
from reprieve.usecases.reconcile import Reconcile
from reprieve.usecases.record_report import RecordReport
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle
from reprieve.usecases.sweep_hosts import SweepHosts
from reprieve.usecases.sweep_orders import SweepOrders
from reprieve.usecases.sweep_view import Look, Swept, View, held_by
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent import moments, starting
from reprieve_agent.machine import Machine
from reprieve_agent.state import Stage, State
from tests.simulation.bucket import Bucket
from tests.simulation.faults import draw
from tests.simulation.host import Agent, QuickRestorer
from tests.simulation.search import play

Mutation = Callable[[], AbstractContextManager[object]]


def _the(
    owner: type[object] | ModuleType, name: str, changed: Any
) -> AbstractContextManager[object]:
    return patch.object(owner, name, changed)


def _both(*patches: AbstractContextManager[object]) -> AbstractContextManager[object]:
    stack = ExitStack()
    for each in patches:
        stack.enter_context(each)
    return stack


def _nothing(*_: Any, **__: Any) -> Any:
    return []


def _true(*_: Any, **__: Any) -> bool:
    return True


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
        store: Bucket = self.store
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


def start_unchecked() -> AbstractContextManager[object]:
    """Start however long ago the seal was written."""

    def heedless(_rules: Any, state: Any, tenure: Any, _sent: float, _now: Any) -> Any:
        base = (tenure.base, tenure.base_step)
        return state, (do.Launch(tenure.key, tenure.lease, *base, math.inf),)

    return _the(starting, "_start_job", heedless)


def cancel_leaves_the_lease() -> AbstractContextManager[object]:
    """Write CANCELLED and leave the lease to its holder."""
    return _the(submit, "closing", lambda _lease: ())


def a_bell_is_evidence() -> AbstractContextManager[object]:
    """Take a state change for the host's end, without asking EC2."""
    look = HandleNotice._look

    def believing(self: HandleNotice, told: Any, host: Any, known: Any) -> Any:
        return look(self, told, host, replace(known, states={told.host: InstanceState.GONE}))

    return _the(HandleNotice, "_look", believing)


def not_renewed_while_restoring() -> AbstractContextManager[object]:
    """Let the lease wait while the checkpoint is on its way."""
    follows = State.__dict__["follows"].fget

    def awaited(self: State) -> Any:
        busy = self.tenure and self.tenure.stage is Stage.PREPARING
        return None if busy else follows(self)

    return _the(State, "follows", property(awaited))


@contextmanager
def _conditions(without: Callable[[Write], bool]) -> Iterator[None]:
    holds = InMemoryRows._holds

    def loosely(self: Any, write: Write) -> bool:
        return without(write) or holds(self, write)

    with _the(InMemoryRows, "_holds", loosely):
        yield


def an_order_whatever_stands() -> AbstractContextManager[object]:
    """Let each bell place an order of its own."""
    ordered = effects.ordered

    def anew(job: Any, attempt: int, *, stands: Any, **more: Any) -> Any:
        del stands
        return ordered(job, attempt, stands=None, **more)

    return _both(
        _the(effects, "ordered", anew),
        _the(handle_notice, "ordered", anew),
        _conditions(lambda write: isinstance(write, PutOrder)),
    )


def tries_raised_blindly() -> AbstractContextManager[object]:
    """Write an order over whatever stands."""
    return _conditions(lambda write: isinstance(write, PutOrder))


def a_landed_order_is_service() -> AbstractContextManager[object]:
    """Order no other host for an attempt whose order has landed."""
    return _the(SweepOrders, "_raised", _nothing)


def the_silent_count_as_supply() -> AbstractContextManager[object]:
    """Count idle hosts whether their beat moves or not, and leave them alone."""
    census = View.census

    def hopeful(self: View) -> Census:
        return replace(census(self), silent=frozenset())

    def patient(self: Look, sights: Any, read: Snapshot, swept: Swept) -> Silence:
        found = judge(self, sights, read, swept)
        return replace(found, proven=found.proven & held_by(read).keys())

    judge = Look._judge
    return _both(_the(View, "census", hopeful), _the(Look, "_judge", patient))


def claims_on_a_host_that_goes() -> AbstractContextManager[object]:
    """Let a host claim whatever its own row says."""
    claim = InMemoryHostLeases.claim

    def heedless(self: Any, key: LeaseKey, holder: Holder) -> Claim:
        rows = self._memory.host_rows
        row = rows.get(holder.instance_id)
        if row is None:
            return claim(self, key, holder)
        rows[holder.instance_id] = replace(row, state=HostState.READY)
        try:
            return claim(self, key, holder)
        finally:
            rows[holder.instance_id] = row

    return _the(InMemoryHostLeases, "claim", heedless)


def terminated_in_one_step() -> AbstractContextManager[object]:
    """Terminate without a look at what is held."""
    return _the(Retire, "_busy", lambda _self, _ids: set())


def the_job_unread_at_a_launch() -> AbstractContextManager[object]:
    """Store plans and land hosts whatever became of the job."""
    return _conditions(lambda write: isinstance(write, Alive | Unchanged))


def one_holder_whatever_boot() -> AbstractContextManager[object]:
    """Call the instance the holder, also after it booted anew."""
    return _the(Agent, "holder", property(lambda self: Holder(self.instance_id, "boot")))


def a_lost_answer_is_a_lost_claim() -> AbstractContextManager[object]:
    """Take silence for a no, and never ask what one holds."""
    host = Machine._host

    def once(self: Agent, call: Callable[[], Any], _pause: float = 0.3) -> Any:
        try:
            return call()
        except UnknownOutcomeError:
            tenure = self.state.tenure
            if tenure and tenure.stage is Stage.CLAIMING:
                self.emit(on.ClaimAnswered(tenure.key, Claim.TAKEN))
                return None
            return repeated(self, call, _pause)

    def forgetful(self: Machine, state: State, event: Any, now: Any) -> Any:
        if isinstance(event, on.HoldsRead):
            return replace(state, adopted=True), ()
        return host(self, state, event, now)

    repeated = Agent._repeated
    return _both(_the(Agent, "_repeated", once), _the(Machine, "_host", forgetful))


def a_ticket_is_sent_once() -> AbstractContextManager[object]:
    """Send no ticket again."""
    return _the(settlement, "_resent", lambda _job, why, **_: Nothing(why))


def charged_at_the_notice() -> AbstractContextManager[object]:
    """Charge an interruption when it is announced, and once more when the attempt ends."""
    decide = settlement.decide

    def charging(facts: Facts, **more: Any) -> Any:
        decision = decide(facts, **more)
        if isinstance(decision, Move) and decision.job.status is JobStatus.DRAINING:
            counters = decision.job.counters
            more_of_it = replace(counters, interruptions=counters.interruptions + 1)
            return replace(decision, job=replace(decision.job, counters=more_of_it))
        return decision

    return _the(handle_notice, "decide", charging)


def the_pointer_takes_any_commit() -> AbstractContextManager[object]:
    """Point at the newest commit in the bucket, whoever made it."""

    def newest(self: Bucket, job: str, _attempt: int, *, after: int | None) -> Any:
        mine = [k for k in self.manifests_there if k.startswith(f"jobs/{job}/")]
        steps = {k: place[1] for k in mine if (place := step_of(k))}
        best = max(steps, key=lambda key: steps[key], default=None)
        found = best is not None and (after is None or steps[best] > after)
        return CheckpointRef(steps[best], best) if best and found else None

    return _the(Bucket, "newest", newest)


def reports_of_anybody() -> AbstractContextManager[object]:
    """Believe a report whoever holds the lease."""
    return _the(record_report, "_holds", _true)


def requests_unread() -> AbstractContextManager[object]:
    """Don't ask what the Spot requests say."""
    return _the(Reconcile, "_marked", _nothing)


def drained_for_ever() -> AbstractContextManager[object]:
    """Let a drained host wait for EC2 however long."""

    def patient(state: State, periods: Any) -> float | None:
        waits = state.standing is not None and state.standing.reclaim is not None
        return None if waits else leave_at(state, periods)

    leave_at = moments.leave_at
    return _both(
        _the(moments, "leave_at", patient),
        _the(SweepHosts, "_why_leave", lambda _self, _notice, _view: None),
    )


def only_the_newest_is_kept() -> AbstractContextManager[object]:
    """Collect what an attempt began from as soon as it has a commit of its own."""

    def young_only(_self: Retention, _lineage: Sequence[str], **more: Any) -> frozenset[str]:
        return frozenset(more["young"])

    return _the(Retention, "kept", young_only)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, how it is taken away, and where the search is aimed: from *first* on, so many."""

    n: int
    without: Mutation
    first: int = 0
    within: int = 400


RULES = {
    "a claim takes over a released lease": Rule(1, claim_takes_over),
    "settle believes the job's row": Rule(2, no_strong_read),
    "the outcome is only in the report": Rule(3, outcome_only_in_the_report),
    "the lineage isn't sealed": Rule(4, no_seal),
    "a start isn't checked": Rule(5, start_unchecked),
    "a cancel leaves the lease": Rule(6, cancel_leaves_the_lease),
    "a bell is evidence": Rule(7, a_bell_is_evidence),
    "silence is told by the holder's clock": Rule(8, silence_by_the_holders_clock),
    "a restoring host doesn't renew": Rule(9, not_renewed_while_restoring),
    "each bell places an order": Rule(10, an_order_whatever_stands),
    "plans aren't stored": Rule(11, plan_not_stored),
    "tries are raised blindly": Rule(12, tries_raised_blindly),
    "a landed order is service": Rule(13, a_landed_order_is_service),
    "silent hosts are supply": Rule(13, the_silent_count_as_supply),
    "a host that goes may claim": Rule(14, claims_on_a_host_that_goes),
    "hosts are terminated in one step": Rule(15, terminated_in_one_step),
    "the job isn't read at a launch": Rule(16, the_job_unread_at_a_launch),
    "every boot is one holder": Rule(17, one_holder_whatever_boot),
    "a lost answer is a lost claim": Rule(19, a_lost_answer_is_a_lost_claim),
    "a ticket is sent once": Rule(20, a_ticket_is_sent_once),
    "a notice is charged": Rule(21, charged_at_the_notice),
    "the pointer takes any commit": Rule(22, the_pointer_takes_any_commit),
    "anybody's report counts": Rule(22, reports_of_anybody),
    "only the newest is kept": Rule(24, only_the_newest_is_kept),
    "Spot requests aren't read": Rule(25, requests_unread),
    "a drained host waits for ever": Rule(26, drained_for_ever),
}


def first_miss(rule: Rule, seeds: range) -> tuple[int, str] | None:
    """Return the first of *seeds* that misses *rule*, and the promise that breaks there."""
    with rule.without():
        for seed in seeds:
            found = play(draw(seed))
            if found:
                return seed, found.promise
    return None


def main() -> int:
    """Tell of each rule where it is missed first."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("--upto", type=int, default=400, help="seeds for each rule")
    parser.add_argument("--only", default="", help="a part of the name")
    parser.add_argument("--after", type=int, default=0, help="the number of a rule")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for name, rule in RULES.items():
        if options.only not in name or rule.n <= options.after:
            continue
        began = time.process_time()
        found = first_miss(rule, range(options.upto))
        seconds = time.process_time() - began
        said = f"seed {found[0]}: {found[1][:90]}" if found else "not missed"
        sys.stdout.write(f"{rule.n:2d}  {name:40s} {seconds:6.1f} s  {said}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
