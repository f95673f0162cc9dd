"""Fill an order: is a host needed at all, what to ask for, and what to make of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve.domain.capacity import Census, Cold, Pool, backoff
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Host
from reprieve.domain.job import Event, Job
from reprieve.domain.lease import LeaseState
from reprieve.domain.order import (
    ErrorClass,
    FleetAnswer,
    FleetError,
    Launched,
    Order,
    OrderState,
    Plan,
    classify,
)
from reprieve.domain.planning import Proposal, View, plan
from reprieve.ports.cloud import Fleet
from reprieve.ports.hosts import HostStore, PoolMemory
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.usecases.census import TakeCensus
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle

NEEDS_A_PERSON = frozenset({ErrorClass.CONFIGURATION, ErrorClass.PERMISSION, ErrorClass.OURS})


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of an order in this run."""

    order: Order | None
    reason: str
    launched: tuple[Launched, ...] = ()
    refused: tuple[FleetError, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplaceHost:
    """The use case; one order at a time."""

    stack: str
    pools: Mapping[str, Pool]
    subnets: Mapping[str, str]
    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    memory: PoolMemory
    fleet: Fleet
    census: TakeCensus
    settle: Settle
    retire: Retire
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, job_id: str, attempt: int) -> Filled:
        """
        Fill the order of (*job_id*, *attempt*) or say why not; safe to repeat at any point.

        Raises ``UnknownOutcomeError`` when EC2 didn't answer or throttled: the message
        comes back and the stored plan is sent again word for word.
        """
        order = self.orders.read(job_id, attempt)
        if order is None or order.state is not OrderState.OPEN:
            return Filled(order, f"order is {order.state}" if order else "no such order")
        refused: list[FleetError] = []
        while True:
            # Counted before the job is read: a host that claims it in between is seen by one
            # of the two, as idle or as its holder.
            census = self.census(order.pool)
            unwanted = self._unwanted(order)
            if unwanted:
                return self._close(order, OrderState.NOT_NEEDED, unwanted)
            planned = self._plan(order, census)
            if planned is None:
                return self._close(
                    order, OrderState.NOT_NEEDED, "idle or booting hosts cover the demand"
                )
            if isinstance(planned, Proposal):
                errors: tuple[FleetError, ...] = ()
                reason, final = planned.reason, planned.final
            else:
                answer = self._launch(planned)
                if answer.instances:
                    return self._landed(order, planned, answer)
                errors = answer.errors
                reason, final = answer.text(), _needs_a_person(errors)
            refused += errors
            if final or order.tier + 1 >= len(self.pools[order.pool].tiers):
                return self._unfilled(order, reason, refused)
            order = self._next_tier(order, reason)

    def _unwanted(self, order: Order) -> str | None:
        """Return why the attempt needs no host any more."""
        job = self.jobs.read(order.job)
        if job is None or job.terminal:
            return f"job is {job.status}" if job else "no such job"
        if order.pool not in self.pools:
            return f"pool {order.pool} isn't configured any more"
        if order.attempt < job.attempt:
            return f"the job is at attempt {job.attempt}"
        if order.attempt == job.attempt and self._taken(job):
            return "the attempt has a host"
        return None

    def _taken(self, job: Job) -> bool:
        lease = self.jobs.lease(job.lease_key)
        return lease is None or lease.state is not LeaseState.FREE

    def _plan(self, order: Order, census: Census) -> Plan | Proposal | None:
        """Return the stored plan of this try, or a new one; None if no launch is needed."""
        stored = [t.plan for t in self.orders.tries(order.job, order.attempt) if t.n == order.try_n]
        if stored:
            return stored[0]
        pool = self.pools[order.pool]
        now = self.now()
        if census.deficit(now=now, clock=self.clock, without=order) + pool.buffer <= 0:
            return None
        hosts = census.counted()
        market = pool.tier(order.tier, hosts).market
        cold = self.memory.cold(pool.name, now=now)
        view = View(
            subnets=self.subnets,
            hosts=census.hosts,
            cold={capacity: Cold(now + self.clock.cold, why) for capacity, why in cold.items()},
            usd={market: self.fleet.usd_per_hour(pool.types, market)},
        )
        proposal = plan(order.needs, pool, view, tier=order.tier, now=now, clock=self.clock)
        if not proposal.offers:
            return proposal
        return self.orders.store_plan(proposal.plan([order.member], pool, stack=self.stack))

    def _launch(self, plan: Plan) -> FleetAnswer:
        answer = self.fleet.launch(plan)
        self.orders.answer(plan, answer)
        throttled = [e for e in answer.errors if classify(e.code) is ErrorClass.THROTTLE]
        if throttled and not answer.instances:
            message = f"EC2 said {throttled[0].code}; the same plan goes out again"
            raise UnknownOutcomeError(message)
        self._remember(plan, answer)
        return answer

    def _remember(self, plan: Plan, answer: FleetAnswer) -> None:
        """Chill what was dry; a refusal that names no pool speaks of all that were asked."""
        until = self.now() + self.clock.cold
        for error in answer.errors:
            if classify(error.code) is not ErrorClass.CAPACITY:
                continue
            asked = [override.capacity for override in plan.overrides]
            dry = [error.capacity] if error.capacity else asked
            for capacity in dry:
                self.memory.chill(plan.pool, capacity, until=until, why=error.code)

    def _landed(self, order: Order, plan: Plan, answer: FleetAnswer) -> Filled:
        prices = self.fleet.usd_per_hour(
            sorted({i.capacity.type for i in answer.instances}), plan.market
        )
        for instance in answer.instances:
            self.hosts.adopt(self._host(instance, plan, prices))
        text = f"landed: {answer.text()}"
        closed = replace(order, state=OrderState.LANDED, outcome=text, updated_at=self.now())
        self.orders.update(closed, was=order)
        self._tell(order, "replacement", text)
        if self._unwanted(order):
            # Cancelled, or taken by another host, while EC2 was launching.
            for instance in answer.instances:
                self._spare(order, instance)
        return Filled(closed, text, answer.instances, answer.errors)

    def _spare(self, order: Order, instance: Launched) -> None:
        """Let it go if the pool has no use for it; an idle host that is needed may stay."""
        if self.census(order.pool).deficit(now=self.now(), clock=self.clock) < 0:
            self.retire(instance.instance_id, reason="launched for an attempt that is over")

    def _host(
        self, instance: Launched, plan: Plan, prices: Mapping[tuple[str, str], float]
    ) -> Host:
        capacity: CapacityPool = instance.capacity
        return Host(
            instance_id=instance.instance_id,
            pool=plan.pool,
            capacity=capacity,
            launched_at=self.now(),
            usd_per_hour=prices.get((capacity.type, capacity.zone)),
            reason=f"launched for {plan.tag}",
        )

    def _next_tier(self, order: Order, reason: str) -> Order:
        raised = replace(
            order,
            try_n=order.try_n + 1,
            tier=order.tier + 1,
            outcome=reason,
            updated_at=self.now(),
        )
        self.orders.update(raised, was=order)
        tier = self.pools[order.pool].tiers[raised.tier]
        self._tell(order, "capacity", f"{reason}; next tier: {tier}")
        return raised

    def _unfilled(self, order: Order, reason: str, refused: list[FleetError]) -> Filled:
        failures = order.failures + 1
        unfilled = replace(
            order,
            state=OrderState.UNFILLED,
            outcome=reason,
            failures=failures,
            needs_you=_needs_a_person(refused),
            next_try_at=self.now() + backoff(failures, self.clock),
            updated_at=self.now(),
        )
        self.orders.update(unfilled, was=order)
        self._tell(order, "capacity", f"no host: {reason}")
        self.settle(order.job)
        return Filled(unfilled, reason, refused=tuple(refused))

    def _close(self, order: Order, state: OrderState, reason: str) -> Filled:
        closed = replace(order, state=state, outcome=reason, updated_at=self.now())
        self.orders.update(closed, was=order)
        return Filled(closed, reason)

    def _tell(self, order: Order, kind: str, text: str) -> None:
        self.jobs.add_events(order.job, [Event(self.now(), kind, text, order.attempt)])


def _needs_a_person(errors: list[FleetError] | tuple[FleetError, ...]) -> bool:
    return any(classify(error.code) in NEEDS_A_PERSON for error in errors)
