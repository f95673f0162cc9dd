"""
Every port in one process, with the conditions of the real ones.

`Memory` is the table, EC2, SSM and the queues together. Its `before` and `after` see
each operation by name, and may raise or write themselves: `before` stands for a call
that never arrived or a rival who came first, `after` for an answer that was lost.
The contract tests hold it to what the AWS adapters do.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, assert_never

from reprieve.adapters import keys, rules
from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import NOTHING_KNOWN, History
from reprieve.domain.errors import (
    LeaseLostError,
    NotAdoptedError,
    StaleError,
    UnknownOutcomeError,
)
from reprieve.domain.host import CapacityPool, Host, HostState, Instance, InstanceState, Market
from reprieve.domain.job import Attempt, Event, Job
from reprieve.domain.lease import (
    Cause,
    Holder,
    Holds,
    Lease,
    LeaseKey,
    LeaseState,
    Outcome,
    Phase,
)
from reprieve.domain.notice import Notice
from reprieve.domain.order import (
    ErrorClass,
    FleetAnswer,
    FleetError,
    Launched,
    Order,
    Plan,
    Try,
    classify,
)
from reprieve.domain.silence import Sights
from reprieve.ports.cloud import Signalled
from reprieve.ports.jobs import Live
from reprieve.ports.leases import Claim, Progress
from reprieve.ports.orders import LISTED_ORDERS, Listing
from reprieve.ports.rows import (
    AddEvents,
    Alive,
    Chill,
    CloseLease,
    DropHold,
    NoteAttempt,
    PutHolds,
    PutHost,
    PutJob,
    PutLease,
    PutOrder,
    PutQuotes,
    PutTry,
    Remember,
    Snapshot,
    Unchanged,
    Wanted,
    Write,
)
from reprieve.protocol import OrderMessage, Ticket

P = ParamSpec("P")
T = TypeVar("T")


class _Port(Protocol):
    _memory: Memory


PortT = TypeVar("PortT", bound=_Port)


def _operation(
    name: str,
) -> Callable[[Callable[Concatenate[PortT, P], T]], Callable[Concatenate[PortT, P], T]]:
    """Make a method one step of the world: alone, on record, and open to `before` and `after`."""

    def decorate(
        method: Callable[Concatenate[PortT, P], T],
    ) -> Callable[Concatenate[PortT, P], T]:
        @functools.wraps(method)
        def step(self: PortT, /, *args: P.args, **kwargs: P.kwargs) -> T:
            memory = self._memory
            with memory.lock:
                memory.calls.append(name)
                memory.before(name)
                result = method(self, *args, **kwargs)
                memory.after(name)
                return result

        return step

    return decorate


def _let_pass(_operation_name: str) -> None:
    return


class Memory:
    """The state that all adapters below share. `calls` names every operation so far."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        self.clock = clock or functools.partial(datetime.now, UTC)
        self.lock = threading.RLock()
        self.calls: list[str] = []
        self.before: Callable[[str], None] = _let_pass
        self.after: Callable[[str], None] = _let_pass

        self.job_rows: dict[str, Job] = {}
        self.lease_rows: dict[LeaseKey, Lease] = {}
        self.attempt_rows: dict[tuple[str, int], Attempt] = {}
        self.event_rows: dict[str, dict[str, Event]] = {}
        self.host_rows: dict[str, Host] = {}
        self.holds_rows: dict[str, Holds] = {}
        self.order_rows: dict[tuple[str, int], Order] = {}
        self.try_rows: dict[tuple[str, int, int], Try] = {}
        self.cold_rows: dict[tuple[str, CapacityPool], tuple[datetime, str]] = {}
        self.quotes_rows: dict[str, Quotes] = {}
        self.seen_rows: dict[tuple[str, str, str], History] = {}
        self.watch_rows: dict[str, Sights] = {}

        self.rows = InMemoryRows(self)
        self.jobs = InMemoryJobStore(self)
        self.hosts = InMemoryHostStore(self)
        self.orders = InMemoryOrderStore(self)
        self.leases = InMemoryHostLeases(self)
        self.watch = InMemoryWatch(self)
        self.fleet = InMemoryFleet(self)
        self.signals = InMemorySignals(self)
        self.mail = InMemoryMail(self)

    def put_job(self, job: Job) -> Job:
        """Store *job* as its next version, or raise ``StaleError``."""
        row = self.job_rows.get(job.id)
        if row is None or row.version != job.version:
            raise StaleError(f"job {job.id} is no longer at version {job.version}")
        stored = replace(job, version=job.version + 1)
        self.job_rows[job.id] = stored
        return stored

    def drop(self, instance_id: str, key: LeaseKey) -> None:
        """Take *key* out of the host's HOLDS."""
        row = self.holds_rows.get(instance_id)
        if row:
            self.holds_rows[instance_id] = replace(row, leases=row.leases - {key})

    def merge_attempt(self, attempt: Attempt) -> None:
        """Write the fields that *attempt* knows over those of its row."""
        at = (attempt.job, attempt.n)
        self.attempt_rows[at] = replace(
            self.attempt_rows.get(at, Attempt(*at)), **rules.known(attempt)
        )


class InMemoryRows:
    """``Rows``; `left` names what a read doesn't get to."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.left = Wanted()

    @_operation("rows.read")
    def read(self, wanted: Wanted) -> Snapshot:
        rows = self._memory
        tables: dict[str, Mapping[Any, Any]] = {
            "jobs": rows.job_rows,
            "leases": rows.lease_rows,
            "hosts": rows.host_rows,
            "holds": rows.holds_rows,
            "orders": rows.order_rows,
            "tries": rows.try_rows,
            "colds": {at: Cold(*row) for at, row in rows.cold_rows.items()},
        }
        read = wanted - self.left
        found = {
            kind: {name: table[name] for name in getattr(read, kind) if name in table}
            for kind, table in tables.items()
        }
        return Snapshot(**found, read=read, unread=wanted - read)

    @_operation("rows.commit")
    def commit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if not self._holds(write):
                raise StaleError(rules.not_as_read(write))
        for write in writes:
            self._write(write)

    def _holds(self, write: Write) -> bool:
        rows = self._memory
        match write:
            case PutJob(job, new):
                return _same(rows.job_rows.get(job.id), None if new else job.version)
            case PutHost(host, new):
                return _same(rows.host_rows.get(host.instance_id), None if new else host.version)
            case PutLease(lease):
                return lease.key not in rows.lease_rows
            case CloseLease(lease):
                row = rows.lease_rows.get(lease.key)
                return bool(row and row.beat == lease.beat and row.state is not LeaseState.CLOSED)
            case PutOrder(order, was):
                stands = rows.order_rows.get((order.job, order.attempt))
                return _state_and_try(stands) == _state_and_try(was)
            case PutTry(row, new):
                return new != ((row.job, row.attempt, row.n) in rows.try_rows)
            case Alive(job_id, attempt):
                alive = rows.job_rows.get(job_id)
                if alive is None or alive.terminal:
                    return False
                return alive.attempt in {attempt - 1, attempt}
            case Unchanged(row):
                return self._unchanged(row)
            case _:
                return True

    def _unchanged(self, row: Job | Host | Lease | Order | Holds) -> bool:
        rows = self._memory
        match row:
            case Job():
                return _same(rows.job_rows.get(row.id), row.version)
            case Host():
                return _same(rows.host_rows.get(row.instance_id), row.version)
            case Lease():
                lease = rows.lease_rows.get(row.key)
                return lease is not None and lease.beat == row.beat
            case Order():
                order = rows.order_rows.get((row.job, row.attempt))
                return _state_and_try(order) == _state_and_try(row)
            case Holds():
                held = rows.holds_rows.get(row.instance_id)
                return (held.leases if held else frozenset()) == row.leases
            case _:
                assert_never(row)

    def _write(self, write: Write) -> None:  # noqa: C901, PLR0912 - one line for each
        rows = self._memory
        match write:
            case PutJob(job, new):
                stored = job if new else replace(job, version=job.version + 1)
                rows.job_rows[job.id] = stored
            case PutLease(lease):
                rows.lease_rows[lease.key] = lease
            case CloseLease(lease):
                row = rows.lease_rows[lease.key]
                closed = replace(row, state=LeaseState.CLOSED, beat=row.beat + 1)
                rows.lease_rows[lease.key] = closed
            case DropHold(instance_id, key):
                rows.drop(instance_id, key)
            case PutHost(host, new):
                after = host if new else replace(host, version=host.version + 1)
                rows.host_rows[host.instance_id] = after
            case PutHolds(instance_id, terms):
                known = rows.holds_rows.get(instance_id, Holds(instance_id))
                rows.holds_rows[instance_id] = replace(known, terms=terms or known.terms)
            case PutOrder(order, _):
                rows.order_rows[order.job, order.attempt] = order
            case PutTry(tried, new):
                at = (tried.job, tried.attempt, tried.n)
                kept = tried if new else replace(rows.try_rows[at], answer=tried.answer)
                rows.try_rows[at] = kept
            case NoteAttempt(attempt):
                rows.merge_attempt(attempt)
            case AddEvents(job_id, events):
                timeline = rows.event_rows.setdefault(job_id, {})
                timeline.update({keys.event(job_id, event)[1]: event for event in events})
            case Chill(pool, capacity, cold):
                rows.cold_rows[pool, capacity] = (cold.until, cold.why)
            case Remember(pool, capacity, history):
                place = (pool, capacity.type, capacity.zone)
                seen = rows.seen_rows.get(place, NOTHING_KNOWN)
                rows.seen_rows[place] = seen + history
            case PutQuotes(pool, quotes):
                rows.quotes_rows[pool] = quotes
            case Unchanged() | Alive():
                return
            case _:
                assert_never(write)


def _same(row: Job | Host | None, version: int | None) -> bool:
    return (row.version if row else None) == version


def _state_and_try(order: Order | None) -> object:
    return (order.state, order.try_n) if order else None


class InMemoryJobStore:
    """``JobStore``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @_operation("jobs.read")
    def read(self, job_id: str) -> Job | None:
        return self._memory.job_rows.get(job_id)

    @_operation("jobs.lease")
    def lease(self, key: LeaseKey) -> Lease | None:
        return self._memory.lease_rows.get(key)

    @_operation("jobs.leases")
    def leases(self, keys: Iterable[LeaseKey]) -> dict[LeaseKey, Lease]:
        rows = self._memory.lease_rows
        return {key: rows[key] for key in keys if key in rows}

    @_operation("jobs.attempts")
    def attempts(self, job_id: str) -> Sequence[Attempt]:
        rows = self._memory.attempt_rows
        return [rows[at] for at in sorted(rows) if at[0] == job_id]

    @_operation("jobs.events")
    def events(self, job_id: str) -> Sequence[Event]:
        timeline = self._memory.event_rows.get(job_id, {})
        return sorted(timeline.values(), key=lambda event: event.at)

    @_operation("jobs.live")
    def live(self, pool: str) -> Live:
        rows = self._memory
        entries = [keys.live_job(job) for job in rows.job_rows.values() if job.pool == pool]
        entries += [keys.live_host(host) for host in rows.host_rows.values() if host.pool == pool]
        entries += [keys.live_order(o) for o in rows.order_rows.values() if o.pool == pool]
        return keys.read_live(sorted(entry for entry in entries if entry))


class InMemoryHostStore:
    """``HostStore``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @_operation("hosts.adopt")
    def adopt(self, host: Host) -> bool:
        rows = self._memory
        if host.instance_id in rows.host_rows:
            return False
        rows.host_rows[host.instance_id] = host
        rows.holds_rows.setdefault(host.instance_id, Holds(host.instance_id))
        return True

    @_operation("hosts.read")
    def read(self, instance_ids: Iterable[str]) -> dict[str, Host]:
        rows = self._memory.host_rows
        return {i: rows[i] for i in instance_ids if i in rows}

    @_operation("hosts.advance")
    def advance(
        self, instance_id: str, state: HostState, *, reason: str, notice: Notice | None = None
    ) -> Host | None:
        row = self._memory.host_rows.get(instance_id)
        if row is None:
            return None
        after = row.advanced(state, reason=reason, notice=notice)
        self._memory.host_rows[instance_id] = replace(after, version=row.version + 1)
        return after

    @_operation("hosts.holds")
    def holds(self, instance_ids: Iterable[str]) -> dict[str, Holds]:
        rows = self._memory.holds_rows
        return {i: rows[i] for i in instance_ids if i in rows}


class InMemoryOrderStore:
    """``OrderStore``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @_operation("orders.read")
    def read(self, job: str, attempt: int) -> Order | None:
        return self._memory.order_rows.get((job, attempt))

    @_operation("orders.tries")
    def tries(self, job: str, attempt: int) -> Sequence[Try]:
        rows = self._memory.try_rows
        return [rows[at] for at in sorted(rows) if at[:2] == (job, attempt)]

    @_operation("orders.listing")
    def listing(self, pool: str) -> Listing:
        rows = self._memory
        jobs = [job for job in rows.job_rows.values() if job.pool == pool and not job.terminal]
        hosts = [host for host in rows.host_rows.values() if host.pool == pool]
        orders = [order for order in rows.order_rows.values() if order.pool == pool]
        return Listing(
            jobs={job.id: job for job in jobs},
            hosts={h.instance_id: h for h in hosts if h.state is not HostState.GONE},
            orders={order.key: order for order in orders if order.state in LISTED_ORDERS},
            cold={at: Cold(*row) for (name, at), row in rows.cold_rows.items() if name == pool},
            history={place[1:]: seen for place, seen in rows.seen_rows.items() if place[0] == pool},
            quotes=rows.quotes_rows.get(pool),
        )


class InMemoryHostLeases:
    """``HostLeases``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @_operation("leases.claim")
    def claim(self, key: LeaseKey, holder: Holder) -> Claim:
        rows = self._memory
        row = rows.lease_rows.get(key)
        if row is None:
            return Claim.MISSING
        if row.state is not LeaseState.FREE:
            mine = row.state is LeaseState.HELD and row.holder == holder
            return Claim.WON if mine else Claim.TAKEN
        host = rows.host_rows.get(holder.instance_id)
        held = rows.holds_rows.get(holder.instance_id)
        if host is None or host.state is not HostState.READY or held is None or held.leases:
            return Claim.NOT_READY
        rows.lease_rows[key] = replace(
            row, state=LeaseState.HELD, holder=holder, phase=Phase.CLAIMED, beat=row.beat + 1
        )
        rows.holds_rows[holder.instance_id] = replace(held, leases=frozenset({key}))
        return Claim.WON

    @_operation("leases.renew")
    def renew(self, key: LeaseKey, holder: Holder, progress: Progress) -> Lease:
        row = self._held(key, holder)
        return self._write(row, **rules.told(progress))

    @_operation("leases.seal")
    def seal(self, key: LeaseKey, holder: Holder, base: str | None) -> Lease:
        row = self._held(key, holder)
        if row.sealed and row.base != base:
            return row
        return self._write(row, sealed_attempt=key.attempt, base=base, phase=Phase.SEALED)

    @_operation("leases.release")
    def release(
        self,
        key: LeaseKey,
        holder: Holder,
        *,
        outcome: Outcome,
        cause: Cause,
        exit_code: int | None,
        progress: Progress,
        detail: str = "",
    ) -> None:
        row = self._memory.lease_rows.get(key)
        if row is None or not rules.may_release(holder, row.holder, outcome):
            raise LeaseLostError(f"lease {key} isn't held by {holder}")
        if rules.released(row):
            return
        if row.state is not LeaseState.HELD:
            raise LeaseLostError(f"lease {key} isn't held by {holder}")
        self._write(
            row,
            state=LeaseState.DONE,
            outcome=outcome,
            cause=cause,
            exit_code=exit_code,
            detail=detail,
            **rules.told(progress),
        )
        self._memory.drop(holder.instance_id, key)

    @_operation("leases.idle")
    def idle(self, instance_id: str) -> Holds:
        row = self._memory.holds_rows.get(instance_id)
        if row is None:
            raise NotAdoptedError(f"host {instance_id} isn't adopted")
        after = replace(row, beat=row.beat + 1)
        self._memory.holds_rows[instance_id] = after
        return after

    @_operation("leases.drop_hold")
    def drop_hold(self, instance_id: str, key: LeaseKey) -> None:
        self._memory.drop(instance_id, key)

    def _held(self, key: LeaseKey, holder: Holder) -> Lease:
        row = self._memory.lease_rows.get(key)
        if row is None or row.state is not LeaseState.HELD or row.holder != holder:
            raise LeaseLostError(f"lease {key} isn't held by {holder}")
        return row

    def _write(self, row: Lease, **changes: Any) -> Lease:
        after = replace(row, beat=row.beat + 1, **changes)
        self._memory.lease_rows[row.key] = after
        return after


class InMemoryWatch:
    """``Watch``."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @_operation("watch.observe")
    def observe(
        self,
        pool: str,
        beats: Mapping[str, str],
        *,
        now: datetime,
        min_gap: timedelta,
        max_gap: timedelta,
    ) -> Sights:
        known = self._memory.watch_rows.get(pool, Sights())
        after = known.seeing(beats, now=now, min_gap=min_gap, max_gap=max_gap)
        self._memory.watch_rows[pool] = after
        return replace(after, left_off=known.left_off)

    @_operation("watch.leave_off")
    def leave_off(self, pool: str, at: str) -> None:
        known = self._memory.watch_rows.get(pool, Sights())
        self._memory.watch_rows[pool] = replace(known, left_off=at)

    @_operation("watch.sights")
    def sights(self, pool: str) -> Sights:
        return self._memory.watch_rows.get(pool, Sights())


class InMemoryFleet:
    """
    ``Fleet``: gives the first override's type unless told otherwise.

    `script` holds answers or errors for the next launches; `empty` pools answer with
    InsufficientInstanceCapacity; `blind` is an EC2 that can't be asked; `reclaimed` are
    marked for termination; `reservations` maps a capacity reservation to instances in it. A
    repeated client token gets its first answer, as at EC2.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.script: deque[FleetAnswer | Exception] = deque()
        self.empty: set[CapacityPool] = set()
        self.blind = False
        self.reclaimed: set[str] = set()
        self.reservations: dict[str, set[str]] = {}
        self.instances: dict[str, Instance] = {}
        self.prices: dict[tuple[Market, str, str], float] = {}
        self.launched: list[Plan] = []
        self.terminated: list[str] = []
        self._answers: dict[str, FleetAnswer] = {}

    @_operation("fleet.launch")
    def launch(self, plan: Plan) -> FleetAnswer:
        self.launched.append(plan)
        known = self._answers.get(plan.client_token)
        if known:
            return self._replay(known)
        answer = self.script.popleft() if self.script else self._buy(plan)
        if isinstance(answer, Exception):
            raise answer
        throttled = any(classify(error.code) is ErrorClass.THROTTLE for error in answer.errors)
        if not throttled and not answer.refused:  # EC2 remembers no request that it didn't take
            self._answers[plan.client_token] = answer
        for launched in answer.instances:
            self.start(launched, plan)
        return answer

    def start(self, launched: Launched, plan: Plan) -> None:
        """Make *launched* exist, with the tags of *plan*."""
        self.instances[launched.instance_id] = Instance(
            instance_id=launched.instance_id,
            type=launched.capacity.type,
            zone=launched.capacity.zone,
            market=plan.market,
            state=InstanceState.ALIVE,
            launched_at=self._memory.clock(),
            tags={
                "reprieve:stack": plan.stack,
                "reprieve:pool": plan.pool,
                "reprieve:order": plan.tag,
            },
        )

    def set_state(self, instance_id: str, state: InstanceState) -> None:
        """Let EC2 change an instance's state."""
        self.instances[instance_id] = replace(self.instances[instance_id], state=state)

    @_operation("fleet.states")
    def states(self, instance_ids: Iterable[str]) -> dict[str, InstanceState]:
        return {i: self._state(i) for i in instance_ids}

    @_operation("fleet.ours")
    def ours(self) -> Sequence[Instance]:
        if self.blind:
            raise UnknownOutcomeError("EC2 can't be asked")
        return [i for i in self.instances.values() if i.state is InstanceState.ALIVE]

    @_operation("fleet.in_reservation")
    def in_reservation(self, reservation_id: str) -> frozenset[str]:
        if self.blind:
            raise UnknownOutcomeError("EC2 can't be asked")
        inside = self.reservations.get(reservation_id, set())
        return frozenset(i for i in inside if self.instances[i].state is InstanceState.ALIVE)

    @_operation("fleet.launched_for")
    def launched_for(self, tag: str) -> Sequence[Instance]:
        return [i for i in self.ours() if i.tags.get("reprieve:order") == tag]

    @_operation("fleet.marked")
    def marked(self, instance_ids: Iterable[str]) -> frozenset[str]:
        if self.blind:
            raise UnknownOutcomeError("EC2 can't be asked")
        return frozenset(instance_ids) & self.reclaimed

    @_operation("fleet.terminate")
    def terminate(self, instance_ids: Sequence[str]) -> None:
        self.terminated.extend(instance_ids)
        for instance_id in instance_ids:
            if instance_id in self.instances:
                self.set_state(instance_id, InstanceState.GONE)

    @_operation("fleet.usd_per_hour")
    def usd_per_hour(self, types: Sequence[str], market: Market) -> dict[tuple[str, str], float]:
        return {
            (kind, zone): price
            for (sold, kind, zone), price in self.prices.items()
            if sold is market and kind in types
        }

    def _state(self, instance_id: str) -> InstanceState:
        if self.blind:
            return InstanceState.UNKNOWN
        instance = self.instances.get(instance_id)
        return instance.state if instance else InstanceState.NOT_FOUND

    def _replay(self, known: FleetAnswer) -> FleetAnswer:
        dead = [i for i in known.instances if self._state(i.instance_id) is InstanceState.GONE]
        if dead:
            return FleetAnswer(errors=(FleetError("IdempotentInstanceTerminated"),))
        return known

    def _buy(self, plan: Plan) -> FleetAnswer:
        errors: list[FleetError] = []
        first = len(self.instances) + 1
        for override in plan.overrides:
            if override.capacity not in self.empty:
                launched = [
                    Launched(f"i-{first + n:017x}", override.capacity)
                    for n in range(len(plan.members))
                ]
                return FleetAnswer(tuple(launched), tuple(errors))
            errors.append(FleetError("InsufficientInstanceCapacity", capacity=override.capacity))
        return FleetAnswer(errors=tuple(errors))


@dataclass(slots=True)
class InMemorySignals:
    """``Signals``: records what was sent; `unreachable` names hosts that SSM refuses, and why."""

    _memory: Memory
    sent: list[Notice] = field(default_factory=list)
    unreachable: dict[str, str] = field(default_factory=dict)

    @_operation("signals.preempt")
    def preempt(self, notices: Sequence[Notice]) -> Signalled:
        reached = [n for n in notices if n.instance_id not in self.unreachable]
        self.sent.extend(reached)
        return Signalled(
            reached=tuple(n.instance_id for n in reached),
            unreachable={
                n.instance_id: self.unreachable[n.instance_id]
                for n in notices
                if n.instance_id in self.unreachable
            },
        )


@dataclass(slots=True)
class InMemoryMail:
    """``Mail``: what lies on the queues."""

    _memory: Memory
    tickets: list[tuple[str, Ticket]] = field(default_factory=list)
    orders: list[OrderMessage] = field(default_factory=list)

    @_operation("mail.ticket")
    def ticket(self, pool: str, ticket: Ticket) -> None:
        self.tickets.append((pool, ticket))

    @_operation("mail.order")
    def order(self, message: OrderMessage) -> None:
        self.orders.append(message)
