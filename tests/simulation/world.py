"""
One virtual clock, one seeded order of events, and the real use cases over `Memory`.

Everything that happens is an event on one heap. A use case runs as one event, unless a
fault pauses it between two port calls: then other events run in the middle of it, other
use cases included. So races are real, and every run of a schedule is the same.
"""

from __future__ import annotations

import heapq
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from reprieve.adapters.memory import InMemoryFleet, InMemoryJobStore, InMemoryOrderStore, Memory
from reprieve.domain.capacity import Pool, Tier
from reprieve.domain.checkpoint import Manifest
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import ReprieveError, UnknownOutcomeError
from reprieve.domain.host import InstanceState
from reprieve.domain.job import Job
from reprieve.domain.lease import Holder, LeaseKey, LeaseState
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import FleetAnswer, FleetError, Plan
from reprieve.domain.retention import Retention
from reprieve.ports.jobs import Live
from reprieve.ports.orders import Listing
from reprieve.protocol import OrderMessage, Report, Ticket
from reprieve.usecases.reconcile import Reconcile
from reprieve.usecases.wiring import Deployment, Ports, UseCases
from tests.builders import NOON, a_spec
from tests.simulation.bucket import Bucket, Finder, Shelves
from tests.simulation.faults import (
    AT_A_CALL_OF_A_FUNCTION,
    AT_A_CALL_OF_A_HOST,
    Caller,
    Died,
    Ended,
    Fault,
    Kind,
    Schedule,
    Work,
)
from tests.simulation.host import Agent
from tests.simulation.promises import BrokenPromiseError, Promises
from tests.simulation.strikes import TYPES, ZONES, Strikes

T = TypeVar("T")

CLOCK = NoticeClock()
SWEEP = CLOCK.sweep.total_seconds()
NOTICE = CLOCK.notice.total_seconds()
HORIZON = 8 * 3600.0  # after the faults' end
TABLE = ("rows.", "jobs.", "hosts.", "orders.", "watch.", "leases.")
WRITES = frozenset({"rows.commit", "leases.claim", "leases.release"})
OWN = frozenset({"restore", "launch", "start", "commit"})  # a host's, and no port's
PEOPLE = frozenset({"cancel", "requeue"})
SENDING = ("mail.", "signals.", "fleet.")
# By their contracts these never raise: what couldn't be asked is simply not in the answer.
NEVER_RAISE = frozenset({"fleet.states", "fleet.usd_per_hour", "signals.preempt"})
RECEIVES = 10  # so often a message is taken
POLL = 0.2  # so long orders gather before they are taken together
ORDERS_AT_ONCE = 10
TIMEOUT = 10.0


NOBODY = Caller("test")


@dataclass(frozen=True, slots=True)
class Queue:
    """
    After how many seconds a message comes back, as the template and the handlers have it.

    *visibility* is for a function that died; a record that it names as failed comes back after
    2 s, then 4, 8 and so on to *hurried*.
    """

    visibility: float
    hurried: float

    def again(self, ended: Ended, receives: int) -> float:
        """Return when a message that was taken *receives* times comes back."""
        if ended is Ended.FAILED:
            return min(2.0**receives, self.hurried)
        return self.visibility


INTAKE = Queue(visibility=15.0, hurried=2.0)
ORDERS = Queue(visibility=90.0, hurried=60.0)
REPORTS = Queue(visibility=45.0, hurried=30.0)


@dataclass(slots=True)
class Queued:
    """A ticket on a work queue."""

    ticket: Ticket
    visible_at: float
    receives: int = 0


class LateJobs(InMemoryJobStore):
    """Shows the index as it was, while it lags."""

    world: World

    def live(self, pool: str) -> Live:
        return self.world.shown("jobs", pool, super().live(pool))


class LateOrders(InMemoryOrderStore):
    """Shows the index as it was, while it lags."""

    world: World

    def listing(self, pool: str) -> Listing:
        return self.world.shown("orders", pool, super().listing(pool))


class Seller(InMemoryFleet):
    """Gives less than was asked for, so many times as `short` says."""

    short = 0

    def _buy(self, plan: Plan) -> FleetAnswer:
        answer = super()._buy(plan)
        if not self.short or len(answer.instances) < 2:
            return answer
        self.short -= 1
        rest = FleetError("InsufficientInstanceCapacity", capacity=plan.overrides[0].capacity)
        return replace(answer, instances=answer.instances[:1], errors=(*answer.errors, rest))


@dataclass(slots=True)
class World:
    """The whole of it."""

    schedule: Schedule
    now_s: float = 0.0
    trace: list[str] = field(default_factory=list)
    memory: Memory = field(init=False)
    fleet: Seller = field(init=False)
    uses: UseCases = field(init=False)
    strikes: Strikes = field(init=False)
    promises: Promises = field(init=False)
    rng: Random = field(init=False)
    _reconcile: Reconcile = field(init=False)
    agents: dict[str, Agent] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)  # hosts with a live process
    works: dict[str, Work] = field(default_factory=dict)
    bucket: Bucket = field(init=False)
    torn: set[str] = field(default_factory=set)
    tickets: dict[str, dict[str, Queued]] = field(default_factory=lambda: defaultdict(dict))
    pollers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    crashes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    done: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    armed: list[Fault] = field(default_factory=list)
    deaf_until: float = 0.0
    swept_at: float = 0.0  # the beginning of the last sweep that nothing kept from anything
    hindered_until: float = 0.0  # until then the functions couldn't do their work
    outage_until: float = 0.0
    mail_bad_until: float = 0.0
    no_sweep_until: float = 0.0
    throttled_until: float = 0.0
    lag_until: float = 0.0
    steps: int = 0
    under_way: int = 0
    batch: list[tuple[OrderMessage, int]] = field(default_factory=list)
    function_calls: int = 0
    host_calls: int = 0
    reports: int = 0
    _heap: list[tuple[float, float, int, Callable[[], None]]] = field(default_factory=list)
    _callers: list[Caller] = field(default_factory=list)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _held: dict[LeaseKey, Holder | None] = field(default_factory=dict)
    _shown: dict[tuple[str, str], Any] = field(default_factory=dict)
    _sent: int = 0
    _settled: bool = False

    def __post_init__(self) -> None:
        self.rng = Random(f"noise {self.schedule.seed}")
        self.memory = memory = Memory(self.now)
        memory.before, memory.after = self._before, self._after
        memory.jobs, memory.orders = LateJobs(memory), LateOrders(memory)
        self.fleet = memory.fleet = Seller(memory)
        memory.jobs.world = memory.orders.world = self
        self.strikes = Strikes(self)
        self.promises = Promises(self)
        self.bucket = Bucket(self.now)
        ports = Ports(
            rows=memory.rows,
            jobs=memory.jobs,
            hosts=memory.hosts,
            orders=memory.orders,
            watch=memory.watch,
            fleet=memory.fleet,
            signals=memory.signals,
            mail=memory.mail,
            manifests=Finder(self.bucket, self.port),
            stored=Shelves(self.bucket, self.promises.collected, self.port),
        )
        names = [f"pool-{nth}" for nth in range(self.schedule.pools)]
        pools = {name: a_pool(name, self.schedule.max_hosts) for name in names}
        retention = Retention(keep=self.schedule.keep)
        deployment = Deployment("Reprieve", pools, ZONES, CLOCK, retention)
        self.uses = UseCases(ports, deployment, self.now)
        self._reconcile = self.uses.reconcile

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.now_s)

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now_s:8.2f}  {text}")

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.steps += 1
        heapq.heappush(self._heap, (self.now_s + seconds, 0.0, self.steps, call))

    # The run ---------------------------------------------------------------------------

    def play(self) -> None:
        """Play the schedule until everything is quiet; raise ``BrokenPromiseError``."""
        rng = Random(f"tokens {self.schedule.seed}")

        def token_hex(size: int = 8) -> str:
            return f"{rng.getrandbits(8 * size):0{2 * size}x}"

        with patch.object(secrets, "token_hex", token_hex):
            self._play()

    def _play(self) -> None:
        for nth, work in enumerate(self.schedule.works):
            self.later(work.at, partial(self._submit, nth, work))
        for fault in self.schedule.faults:
            self.later(fault.at, partial(self.strike, fault))
        self.later(SWEEP, self._sweep_regularly)
        while self._heap and not self._quiet():
            self._next()
        unmet = self.promises.unmet()
        if unmet:
            raise BrokenPromiseError("; ".join(unmet))

    def _next(self) -> None:
        at, _, _, call = heapq.heappop(self._heap)
        self.now_s = max(self.now_s, at)
        call()
        self.promises.look()

    def _quiet(self) -> bool:
        ends = self.schedule.ends
        if self.now_s < ends or self.under_way or len(self._jobs) < len(self.schedule.works):
            return False
        return self._settled or self.now_s > ends + HORIZON

    def _sweep_regularly(self) -> None:
        self.later(SWEEP, self._sweep_regularly)
        if self.now_s >= self.no_sweep_until:
            self.sweep()
            self.promises.swept()
            begun = len(self._jobs) == len(self.schedule.works)
            over = begun and self.now_s > self.schedule.ends
            self._settled = over and not self.promises.unmet()

    def sweep(self) -> None:
        """Let reconcile run once; what fails is left to the next one."""
        self.invoke("reconcile", self._sweep)

    def _sweep(self) -> None:
        began, faults = self.now_s, self.hindered_until
        swept = self._reconcile()
        for failure in swept.failures:
            if not isinstance(failure, ReprieveError):
                raise BrokenPromiseError(f"the sweep fails: {failure!r}") from failure
        if not swept.failures and faults <= began:
            self.swept_at = began

    def _submit(self, nth: int, work: Work) -> None:
        every = timedelta(seconds=work.save_every) if work.save_every else None
        known = set(self.memory.job_rows)

        def submit() -> None:
            self.uses.submit(
                name=f"job{nth}", pool=f"pool-{work.pool}", spec=a_spec(save_every=every)
            )

        self.invoke("submit", submit)
        new = set(self.memory.job_rows) - known - set(self.works)
        for job in sorted(new):
            if job.startswith(f"job{nth}-"):
                self.works[job] = work
        if not any(job.startswith(f"job{nth}-") for job in self.memory.job_rows):
            self.later(30, lambda: self._submit(nth, work))

    # Functions --------------------------------------------------------------------------

    def invoke(self, name: str, call: Callable[[], object]) -> Ended:
        """Run a use case as a function would; tell how it ended."""
        self._callers.append(Caller(name))
        self.under_way += 1
        try:
            call()
        except Died:
            self.say(f"{name} died")
            return Ended.DIED
        except ReprieveError as error:
            self.say(f"{name} failed: {type(error).__name__} {error}")
            return Ended.FAILED
        finally:
            self._callers.pop()
            self.under_way -= 1
        return Ended.WELL

    def host_call(self, agent: Agent, name: str, call: Callable[[], object]) -> object:
        """Let a host call a port or do what faults may follow."""
        self.host_calls += 1
        self._strike_now(AT_A_CALL_OF_A_HOST, self.host_calls, name)
        self._callers.append(agent.caller)
        try:
            if name in OWN:
                result = call()
                self._after(name)
                return result
            return call()
        finally:
            self._callers.pop()

    def port(self, name: str, call: Callable[[], T]) -> T:
        """Make the call of a port that isn't in `Memory`."""
        self._before(name)
        result = call()
        self._after(name)
        return result

    @property
    def person_at_work(self) -> bool:
        """Whether the call under way is a person's."""
        return self._callers[-1].name in PEOPLE

    def _before(self, name: str) -> None:
        by = self._callers[-1] if self._callers else NOBODY
        if name.startswith(TABLE) and self.now_s < self.outage_until:
            raise UnknownOutcomeError("table outage")
        if by.host:
            self._before_host(name, by.host)
            return
        self.function_calls += 1
        if name.startswith(TABLE) and self.now_s < self.throttled_until and self.function_calls % 2:
            raise UnknownOutcomeError("throttled")
        self._strike_now(AT_A_CALL_OF_A_FUNCTION, self.function_calls, name)
        for fault in self._due(name, by):
            if fault in self.armed:  # else what ran during a pause met it first
                self._strike_before(fault, name, by.name)

    def _strike_now(self, kinds: Sequence[Kind], nth: int, call: str) -> None:
        """Arm what is to strike at the *nth* call of functions, or of hosts."""
        for kind, at in self.schedule.strikes:
            if at == nth and kind in kinds:
                self.armed.append(Fault(self.now_s, kind, amount=5.0, call=call))

    def _strike_before(self, fault: Fault, name: str, caller: str) -> None:
        match fault.kind:
            case Kind.DIES_BEFORE:
                self._use(fault, f"{caller} dies before {name}")
                raise Died
            case Kind.REFUSED if name not in NEVER_RAISE:
                self._use(fault, f"{caller}: {name} fails")
                raise UnknownOutcomeError("injected before")
            case Kind.PAUSED:
                self._use(fault, f"{caller} pauses {fault.amount:.1f} s before {name}")
                self._pause(fault.amount)
                self.say(f"{caller} goes on with {name}")
            case _:
                pass

    def _before_host(self, name: str, host: Agent) -> None:
        if self.now_s < host.cut_until:
            raise UnknownOutcomeError("network cut")
        for fault in self._due(name, host.caller):
            if fault.kind is Kind.AGENT_DIES_BEFORE:
                self._use(fault, f"{host.instance_id}: {fault.kind} {name}")
                host.restart_agent()
                raise Died

    def shown(self, index: str, pool: str, fresh: T) -> T:
        """Return what an index shows: *fresh*, unless it lags behind the rows."""
        if self.now_s >= self.lag_until or (index, pool) not in self._shown:
            self._shown[index, pool] = fresh
        shown: T = self._shown[index, pool]
        return shown

    def _after(self, name: str) -> None:
        by = self._callers[-1] if self._callers else NOBODY
        caller, host = by.name, by.host
        if name.startswith(SENDING):
            self._drain()
        if name in WRITES:
            self._compare(name, caller)
        for fault in self._due(name, by):
            if fault.kind is Kind.AGENT_DIES_BEFORE:
                continue
            if host:
                self._strike_host_after(fault, host, name)
            elif fault.kind is Kind.DIES_AFTER:
                self._use(fault, f"{caller} dies after {name}")
                raise Died
            elif fault.kind is Kind.ANSWER_LOST and name not in NEVER_RAISE:
                self._use(fault, f"{caller}: the answer to {name} is lost")
                raise UnknownOutcomeError("injected after")

    def _strike_host_after(self, fault: Fault, host: Agent, name: str) -> None:
        self._use(fault, f"{host.instance_id}: {fault.kind} {name}")
        match fault.kind:
            case Kind.HOST_FREEZES_AFTER:
                host.freeze(fault.amount)
            case Kind.REQUEUED_AFTER:
                job = host.job
                if job:
                    self.later(fault.amount, lambda: self.strikes.job(Kind.REQUEUE, job))
            case Kind.HOST_DIES_AFTER:
                self.die(host, told=False)
                raise Died
            case Kind.HOST_REBOOTS_AFTER:
                host.reboot()
                raise Died
            case Kind.AGENT_DIES_AFTER:
                host.restart_agent()
                raise Died
            case Kind.HOST_ANSWER_LOST if name.startswith("leases."):
                raise UnknownOutcomeError("injected after")
            case _:
                pass

    def _due(self, name: str, by: Caller) -> Sequence[Fault]:
        if not self.armed:
            return ()
        kinds = AT_A_CALL_OF_A_HOST if by.host else AT_A_CALL_OF_A_FUNCTION
        return [fault for fault in self.armed if fault.call == name and fault.kind in kinds]

    def _use(self, fault: Fault, text: str) -> None:
        self.armed.remove(fault)
        self.say(f"FAULT {text}")

    def _pause(self, seconds: float) -> None:
        """Let the world go on while the caller stands still between two calls."""
        until = self.now_s + seconds
        callers, self._callers = self._callers, []
        while self._heap and self._heap[0][0] <= until:
            self._next()
        self._callers = callers
        self.now_s = max(self.now_s, until)

    def _compare(self, name: str, caller: str) -> None:
        """Show the promises what this call changed."""
        if name == "rows.commit":
            for job_id, row in self.memory.job_rows.items():
                was = self._jobs.get(job_id)
                if row is not was:
                    self._jobs[job_id] = row
                    if was is None or (row.status, row.attempt) != (was.status, was.attempt):
                        self.say(
                            f"{caller}: {job_id} attempt {row.attempt} {row.status} ({row.reason})"
                        )
                    self.promises.stored(row, was)
        rows = self.memory.lease_rows
        held = {k: r.holder for k, r in rows.items() if r.state is LeaseState.HELD}
        for key, holder in self._held.items():
            if key not in held and name == "rows.commit":
                self.promises.ended(key, holder.instance_id if holder else None)
        self._held = held

    # Messages ----------------------------------------------------------------------------

    def _drain(self) -> None:
        """Take what a call put on the queues, sent to SSM or launched."""
        mail, signals = self.memory.mail, self.memory.signals
        while mail.tickets:
            pool, ticket = mail.tickets.pop(0)
            for delay in self._deliveries():
                self.later(delay, partial(self._put_ticket, pool, ticket))
        while mail.orders:
            message = mail.orders.pop(0)
            for delay in self._deliveries():
                self.under_way += 1
                self.later(delay, partial(self._order, message, 1))
        for notice in signals.sent[self._sent :]:
            self.later(self.rng.uniform(0.5, 5), partial(self._signal, notice))
        self._sent = len(signals.sent)
        self._follow_instances()

    def _follow_instances(self) -> None:
        """Boot what was launched, and end what is shutting down after a few seconds more."""
        instances = self.fleet.instances
        if len(instances) != len(self.agents):
            for instance_id in [i for i in instances if i not in self.agents]:
                self._boot(instance_id)
        for agent in self.agents.values():
            if agent.alive and instances[agent.instance_id].state is InstanceState.GONE:
                self.say(f"{agent.instance_id} is being terminated")
                self.promises.terminating(agent.instance_id)
                agent.alive = False
                agent.gone_at = self.now_s
                self.later(self.rng.uniform(0, 8), agent.die)

    def _deliveries(self) -> list[float]:
        """Return after how long each copy of a message arrives."""
        rng = self.rng
        if self.now_s >= self.mail_bad_until:
            return [rng.uniform(0.05, 1)]
        return [rng.choice((0.1, 5.0, 60.0, 200.0)) for _ in range(rng.choice((0, 1, 2)))]

    def _put_ticket(self, pool: str, ticket: Ticket) -> None:
        self.steps += 1
        self.tickets[pool][str(self.steps)] = Queued(ticket, self.now_s)
        self.ring(pool)

    def ring(self, pool: str) -> None:
        """Wake the hosts that wait for a ticket: one may be visible now."""
        for instance_id in sorted(self.pollers.pop(pool, ())):
            self.agents[instance_id].poll_soon()

    def _order(self, message: OrderMessage, receives: int) -> None:
        """Let orders that come close together be taken as one batch, as Lambda's poller does."""
        self.batch.append((message, receives))
        if len(self.batch) == 1:
            self.later(POLL, self._fill)

    def _fill(self) -> None:
        batch, self.batch = self.batch[:ORDERS_AT_ONCE], self.batch[ORDERS_AT_ONCE:]
        if self.batch:
            self.later(POLL, self._fill)
        self.under_way -= len(batch)
        self._fill_together(batch)

    def _fill_together(self, batch: list[tuple[OrderMessage, int]]) -> None:
        """Fill them as the handler does: if they fail together, each alone."""
        failed: list[tuple[OrderMessage, int]] = []

        def fill() -> None:
            filled = self.uses.replace_host.fill([message for message, _ in batch])
            failed.extend(one for one, result in zip(batch, filled, strict=True) if result.failure)

        ended = self.invoke("replace_host", fill)
        if ended is Ended.FAILED and len(batch) > 1:
            for one in batch:
                self._fill_together([one])
            return
        if ended is Ended.WELL:
            ended, batch = Ended.FAILED, failed
        for message, receives in batch:
            if receives < RECEIVES:
                self.under_way += 1
                again = ORDERS.again(ended, receives)
                self.later(again, partial(self._order, message, receives + 1))

    def report(self, report: Report) -> None:
        """Send a host's report."""
        self.reports += 1
        if self.reports == self.schedule.lost:
            self.say(f"FAULT lost: {report.kind} of {report.instance_id}")
            return
        for delay in self._deliveries():
            self.later(delay, lambda: self._record(report, 1))

    def _record(self, report: Report, receives: int) -> None:
        record = self.uses.record_report
        ended = self.invoke("record_report", lambda: record(report, sender=report.instance_id))
        if ended is not Ended.WELL and receives < RECEIVES:
            again = REPORTS.again(ended, receives)
            self.later(again, lambda: self._record(report, receives + 1))

    def event(self, notice: Notice) -> None:
        for delay in self._deliveries():
            self.later(delay, lambda: self._handle(notice, 1))

    def _handle(self, notice: Notice, receives: int) -> None:
        failed: list[ReprieveError] = []

        def handle() -> None:
            handled = self.uses.handle_notice([notice])
            failed.extend(one.failure for one in handled if one.failure)

        ended = self.invoke("handle_notice", handle)
        if failed:
            self.say(f"handle_notice gives it back: {failed[0]}")
        if (failed or ended is not Ended.WELL) and receives < RECEIVES:
            # What handle_notice raises, nothing catches: its function dies of it.
            again = INTAKE.again(Ended.FAILED if failed else Ended.DIED, receives)
            self.later(again, lambda: self._handle(notice, receives + 1))

    def _signal(self, notice: Notice) -> None:
        agent = self.agents[notice.instance_id]
        if self.now_s >= agent.cut_until:
            agent.notice(replace(notice, channel=Channel.SSM))

    # EC2 -----------------------------------------------------------------------------------

    def _boot(self, instance_id: str) -> None:
        skew = self.schedule.skews[len(self.agents) % len(self.schedule.skews)]
        instance = self.fleet.instances[instance_id]
        agent = Agent(self, instance_id, instance.tags["reprieve:pool"], skew)
        self.agents[instance_id] = agent
        self.say(f"{instance_id} launched for {instance.tags['reprieve:order']}")
        self.promises.launched(instance)
        self.later(self.rng.uniform(*self.schedule.boots), agent.boot)

    def die(self, agent: Agent, *, told: bool) -> None:
        """Let EC2 take the instance at once."""
        if not agent.alive:
            return
        self.say(f"{agent.instance_id} is gone")
        self.promises.reclaimed(agent)
        self.fleet.set_state(agent.instance_id, InstanceState.GONE)
        agent.alive = False
        agent.gone_at = self.now_s
        agent.die()
        if told:
            self.event(
                Notice(NoticeKind.STATE_CHANGE, agent.instance_id, self.now(), Channel.EVENT)
            )

    def reclaim(self, agent: Agent, *channels: Channel) -> None:
        ends = self.now() + timedelta(seconds=NOTICE)
        notice = Notice(NoticeKind.INTERRUPTION, agent.instance_id, self.now(), Channel.EVENT, ends)
        self.fleet.reclaimed.add(agent.instance_id)
        agent.reclaimed_at = self.now_s
        if Channel.EVENT in channels:
            self.event(notice)
        if Channel.METADATA in channels:
            agent.metadata = replace(notice, channel=Channel.METADATA)
            self.later(self.rng.uniform(0, 5), agent.read_metadata)
        self.later(NOTICE, lambda: self.die(agent, told=True))

    def strike(self, fault: Fault) -> None:
        """Let a fault happen now, or at the next call that it names."""
        if fault.call:
            self.armed.append(fault)
        else:
            self.strikes(fault)

    @property
    def manifests(self) -> dict[str, Manifest]:
        """What was ever committed."""
        return self.bucket.ever

    @property
    def bad(self) -> dict[str, float]:
        """What went bad, and since when."""
        return self.bucket.bad

    # The bucket ------------------------------------------------------------------------------

    def ancestry(self, base: str | None) -> set[str | None]:
        """Return *base* and what it came from, back to the beginning."""
        found: set[str | None] = {base}
        while base:
            base = self.manifests[base].parent
            found.add(base)
        return found


def a_pool(name: str, max_hosts: int) -> Pool:
    """Return a pool of two types over two zones, spot first."""
    return Pool(
        name=name,
        types=TYPES,
        tiers=(Tier.SPOT, Tier.ON_DEMAND),
        launch_template="lt-0aaaaaaaaaaaaaaaa",
        launch_template_version="1",
        work_queue_url="https://queue/work",
        max_hosts=max_hosts,
    )
