"""One run over the open orders of one pool: screen them, plan, ask EC2, and go on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from reprieve.domain.capacity import Pool, Tier
from reprieve.domain.economics.pools import History
from reprieve.domain.errors import ReprieveError, StaleError, UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Market
from reprieve.domain.job import Event
from reprieve.domain.lease import Lease
from reprieve.domain.order import (
    ErrorClass,
    FleetAnswer,
    Launched,
    Member,
    Order,
    OrderState,
    Plan,
    Try,
    classify,
)
from reprieve.domain.planning import Proposal, plan
from reprieve.domain.refusal import (
    Next,
    follow,
    leaving,
    next_tier,
    quota_frees_at,
    to_chill,
)
from reprieve.domain.steering import Steer
from reprieve.ports.orders import Listing
from reprieve.ports.rows import (
    AddEvents,
    Alive,
    Chill,
    OrderKey,
    PutOrder,
    PutTry,
    Remember,
    Unchanged,
    Wanted,
    Write,
)
from reprieve.usecases.known_pool import Filled, Known, Means
from reprieve.usecases.landing import Landing
from reprieve.usecases.screening import Screening, Sifted
from reprieve.usecases.steering import Steering

ROUNDS = 8  # of planning in one run: every tier, and a few tries of one
MEMORY_BATCH = 40  # capacity pools remembered in one commit, two writes each

# EC2 doesn't say how long it knows a client token; a plan this old is looked for by tag first.
TOKEN_TRUSTED = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Asked:
    """
    A plan that is on its way: whose orders it is for, and what the same plan got before.

    An order is None where its member needs nothing of it any more; its instance stays
    its own all the same, since a replayed answer has the same instances.
    """

    plan: Plan
    orders: tuple[Order | None, ...]
    before: FleetAnswer | None = None


class Filling:
    """The run; every step keeps up to date what is known of the pool."""

    def __init__(self, means: Means, pool: Pool, listing: Listing) -> None:
        self._means = means
        self._pool = pool
        self._known = Known.of(means, pool, listing)
        self._screen = Screening(self._known)
        self._land = Landing(self._known)
        self._steering = Steering(self._known)
        self._looked: set[OrderKey] = set()

    def run(self, orders: Sequence[Order]) -> dict[OrderKey, Filled]:
        """Return what became of each of *orders*."""
        done = self._known.done
        todo = self._guarded(orders, lambda: self._sifted(self._screen(orders)))
        for _ in range(ROUNDS):
            todo = [
                order
                for group in alike(self._steering.first(todo))
                for order in self._guarded(group, partial(self._round, group))
            ]
        for order in todo:
            busy = UnknownOutcomeError(f"order {order.member} isn't settled yet; it comes back")
            done[order.key] = Filled(order, str(busy), failure=busy)
        return done

    def _guarded(self, orders: Sequence[Order], step: Callable[[], list[Order]]) -> list[Order]:
        """Let an error cost only the orders that it is about."""
        try:
            return step()
        except ReprieveError as error:
            for order in orders:
                failed = Filled(order, str(error), failure=error)
                self._known.done.setdefault(order.key, failed)
            return []

    # Plan and ask

    def _sifted(self, sifted: Sifted) -> list[Order]:
        """Send stored plans again, each once; return whom to plan for."""
        again: list[Order] = []
        for tried in {tried.plan.client_token: tried for tried in sifted.replays}.values():
            again += self._replay(tried)
        return sifted.launch + again

    def _round(self, group: Sequence[Order]) -> list[Order]:
        """Ask one tier for *group*, who are alike; return whoever has to be asked for again."""
        first = group[0]
        proposal = plan(
            first.needs,
            self._pool,
            self._known.view(first.tier),
            tier=first.tier,
            now=self._means.now(),
            clock=self._means.clock,
            wanted=len(group),
        )
        if not proposal.offers or self._unwanted(first, proposal.tier):
            return self._nothing(group, proposal)
        members, later = group[: proposal.hosts], list(group[proposal.hosts :])
        planned = proposal.plan([m.member for m in members], self._pool, stack=self._means.stack)
        return later + self._guarded(members, partial(self._plan, planned, members))

    def _unwanted(self, order: Order, tier: Tier) -> bool:
        """Whether a host of *tier* is no use: a Spot host was to relieve a paid one."""
        return self._steering.switches(order) and tier.market is not Market.SPOT

    def _plan(self, planned: Plan, orders: Sequence[Order]) -> list[Order]:
        """Store the plan with every member, if each still needs it; then send it."""
        try:
            self._means.rows.commit(self._storing(planned, orders))
        except StaleError:
            return self._again(orders)
        return self._ask(Asked(planned, tuple(orders)))

    def _storing(self, planned: Plan, orders: Sequence[Order]) -> list[Write]:
        now = self._means.now()
        writes: list[Write] = []
        for order in orders:
            tried = Try(order.job, order.attempt, order.try_n, plan=planned, at=now)
            writes += [
                PutTry(tried, new=True),
                Unchanged(order),
                Alive(order.job, order.attempt),
            ]
            lease = self._free_lease(order)
            if lease:
                writes.append(Unchanged(lease))
            writes += self._steering.told(order)
        return writes

    def _free_lease(self, order: Order) -> Lease | None:
        """Return the lease that must still be free: nobody has claimed the attempt."""
        job = self._known.jobs.get(order.job)
        if job is None or job.attempt != order.attempt:
            return None
        armed = Lease(job.lease_key, job.pool, job.spec)
        return self._known.leases.get(order.key, armed)

    def _again(self, orders: Sequence[Order]) -> list[Order]:
        """Look again at orders of which something changed since they were listed."""
        again: list[Order] = []
        for order in orders:
            again += self._guarded([order], partial(self._look_again, order))
        return again

    def _look_again(self, order: Order) -> list[Order]:
        if order.key in self._known.done:  # landed by the replay of a plan that it shares
            return []
        self._known.again(order)
        return self._sifted(self._screen.strongly([order]))

    def _replay(self, tried: Try) -> list[Order]:
        """Send a stored plan word for word, for all of its members that still wait."""
        members = tried.plan.members
        read = self._means.rows.read(
            Wanted(
                orders=frozenset((m.job, m.attempt) for m in members),
                jobs=frozenset(m.job for m in members),
            )
        )
        self._known.learn(read)
        orders = tuple(_waiting(member, read.orders) for member in members)
        asked = Asked(tried.plan, orders, before=tried.answer)
        old = tried.answer is None and self._means.now() - tried.at > TOKEN_TRUSTED
        if old and (found := self._by_tag(tried.plan)):
            return self._answered(asked, found)
        return self._ask(asked)

    def _ask(self, asked: Asked) -> list[Order]:
        return self._answered(asked, self._means.fleet.launch(asked.plan))

    def _by_tag(self, planned: Plan) -> FleetAnswer | None:
        """Return what was launched for *planned*, if its answer was lost or not understood."""
        found = self._means.fleet.launched_for(planned.tag)
        instances = [
            Launched(i.instance_id, CapacityPool(i.type, i.zone, planned.market)) for i in found
        ]
        if not instances:
            return None
        return FleetAnswer(tuple(sorted(instances, key=lambda i: i.instance_id)))

    # What came of it

    def _answered(self, asked: Asked, answer: FleetAnswer) -> list[Order]:
        """Count the instances first; the errors only matter to those who got none."""
        refused = self._known.refused
        for order in asked.orders:
            if order:
                refused[order.key] = refused.get(order.key, ()) + answer.errors
        served = list(zip(asked.orders, answer.instances, strict=False))
        self._land(asked.plan, [(o, i) for o, i in served if o], answer.errors)
        self._remember(asked.plan, answer)
        told, again = replace(answer, instances=()), list[Order]()
        for order in asked.orders[len(served) :]:
            if order:
                again += self._guarded([order], partial(self._refuse, asked, order, told))
        return again

    def _remember(self, planned: Plan, answer: FleetAnswer) -> None:
        """Chill what was dry; without it the next order asks in vain once more, nothing worse."""
        now, pool = self._means.now(), self._pool.name
        chilled = to_chill(planned, answer.errors, now=now, clock=self._means.clock)
        self._known.cold |= chilled
        dry = {e.capacity for e in answer.errors if classify(e.code) is ErrorClass.CAPACITY}
        entries = list(chilled.items())
        for start in range(0, len(entries), MEMORY_BATCH):
            writes: list[Write] = []
            for capacity, cold in entries[start : start + MEMORY_BATCH]:
                writes.append(Chill(pool, capacity, cold))
                if capacity in dry and capacity.market is Market.SPOT:
                    writes.append(Remember(pool, capacity, History(launches_tried=1)))
            try:
                self._means.rows.commit(writes)
            except (StaleError, UnknownOutcomeError):
                return

    def _nothing(self, group: Sequence[Order], proposal: Proposal) -> list[Order]:
        """Go on for *group*, for whom this tier has nothing to ask for."""
        again: list[Order] = []
        for order in group:
            again += self._guarded([order], partial(self._pass_over, order, proposal))
        return again

    def _pass_over(self, order: Order, proposal: Proposal) -> list[Order]:
        index = None if proposal.final else next_tier(order, self._pool)
        if index is not None and not self._unwanted(order, self._pool.tiers[index]):
            return self._onward(order, proposal.reason, tier=index)
        self._unfilled(order, proposal.reason, at_cap=proposal.at_cap)
        return []

    def _onward(
        self, order: Order, reason: str, *, tier: int, tried: Try | None = None
    ) -> list[Order]:
        """Ask the next tier, unless the job would rather wait than pay for it."""
        waits = self._steering.waits(order, tier)
        if waits is None:
            return [self._raised(order, reason, tier=tier, tried=tried)]
        self._unfilled(order, f"{reason}; {waits.text}", tried=tried, waits=waits)
        return []

    def _refuse(self, asked: Asked, order: Order, answer: FleetAnswer) -> list[Order]:
        """Go on for *order*, for whom EC2 had no instance."""
        means, known = self._means, self._known
        old = leaving(list(known.hosts.values()))
        step = follow(answer, asked.before, order, old_host_leaves=bool(old))
        tried = Try(order.job, order.attempt, order.try_n, asked.plan, means.now(), answer)
        reason = answer.text()
        match step:
            case Next.SAME_PLAN:
                means.rows.commit([PutTry(tried)])
                message = f"EC2 said {reason}; the same plan goes out again"
                raise UnknownOutcomeError(message)
            case Next.LATER:
                self._raised(order, reason, tier=order.tier, tried=tried)
                message = f"EC2 said {reason}; another try comes later"
                raise UnknownOutcomeError(message)
            case Next.LOOK_BY_TAG:
                return self._look(asked, order, tried)
            case Next.SAME_TIER:
                return [self._raised(order, reason, tier=order.tier, tried=tried)]
            case Next.NEXT_TIER | Next.NEXT_MARKET:
                other = step is Next.NEXT_MARKET
                index = next_tier(order, self._pool, other_market=other)
                if index is not None and not self._unwanted(order, self._pool.tiers[index]):
                    return self._onward(order, reason, tier=index, tried=tried)
                self._unfilled(order, reason, tried=tried)
            case Next.WHEN_QUOTA_FREES:
                at = quota_frees_at(old, now=means.now(), clock=means.clock)
                self._unfilled(order, f"{reason}; {step}", tried=tried, quota_at=at)
            case Next.A_PERSON:
                self._unfilled(order, reason, tried=tried, needs_you=True)
            case _:
                assert_never(step)
        return []

    def _look(self, asked: Asked, order: Order, tried: Try) -> list[Order]:
        """Find what a defect of ours may have hidden; never launch beside it."""
        found = self._by_tag(asked.plan)
        if found:
            return self._answered(asked, found)
        reason = f"{tried.answer.text() if tried.answer else 'refused'}: a defect of ours"
        if order.key in self._looked:
            self._unfilled(order, reason, tried=tried, needs_you=True)
            return []
        self._looked.add(order.key)
        return [self._raised(order, reason, tier=order.tier, tried=tried)]

    def _raised(self, order: Order, reason: str, *, tier: int, tried: Try | None = None) -> Order:
        """Return *order* at its next try, after writing what became of this one."""
        now = self._means.now()
        raised = replace(order, try_n=order.try_n + 1, tier=tier, outcome=reason, updated_at=now)
        then = "another try" if tier == order.tier else f"next tier: {self._pool.tiers[tier]}"
        event = Event(now, "capacity", f"{reason}; {then}", order.attempt)
        self._write(order, raised, event, tried)
        return raised

    def _unfilled(
        self,
        order: Order,
        reason: str,
        *,
        tried: Try | None = None,
        at_cap: bool = False,
        needs_you: bool = False,
        quota_at: datetime | None = None,
        waits: Steer | None = None,
    ) -> None:
        """Let the order wait, visibly: with its reason and its next try."""
        if self._steering.switches(order):
            self._known.close(order, f"no Spot host beside the on-demand one: {reason}")
            return
        now = self._means.now()
        failures = order.failures if quota_at or waits else order.failures + 1
        # Asking in vain costs nothing but the call; waiting longer, a job stands still.
        next_try_at = quota_at or now + self._means.clock.cold
        if waits and waits.again_at:
            next_try_at = min(next_try_at, waits.again_at)
        told = Event(
            now, "capacity", f"no host: {reason}", order.attempt, waits.facts if waits else {}
        )
        unfilled = replace(
            order,
            state=OrderState.UNFILLED,
            outcome=reason,
            failures=failures,
            needs_you=needs_you,
            next_try_at=next_try_at,
            waited_for_quota=quota_at is not None,
            updated_at=now,
        )
        self._write(order, unfilled, told, tried)
        refused = self._known.refused.get(order.key, ())
        self._known.done[order.key] = Filled(unfilled, reason, refused=refused, at_cap=at_cap)
        self._means.settle(order.job)

    def _write(self, was: Order, order: Order, event: Event, tried: Try | None) -> None:
        writes: list[Write] = [PutTry(tried)] if tried else []
        writes += [PutOrder(order, was=was), AddEvents(order.job, (event,))]
        self._means.rows.commit(writes)


def alike(orders: Iterable[Order]) -> list[list[Order]]:
    """
    Return *orders* in groups that one request can serve, in their order.

    No two of a group are of one job: a commit may name its row once.
    """
    groups: dict[object, list[Order]] = {}
    for order in orders:
        like, nth = (order.tier, order.needs, order.switch), 0
        while any(o.job == order.job for o in groups.get((*like, nth), ())):
            nth += 1
        groups.setdefault((*like, nth), []).append(order)
    return list(groups.values())


def _waiting(member: Member, orders: Mapping[OrderKey, Order]) -> Order | None:
    order = orders.get((member.job, member.attempt))
    if order and order.state is OrderState.OPEN and order.member == member:
        return order
    return None
