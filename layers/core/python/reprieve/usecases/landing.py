"""Land what EC2 gave: the host's rows, the order and the timeline in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprieve.domain.economics.hosting import Terms, terms
from reprieve.domain.errors import StaleError
from reprieve.domain.host import Host, Market
from reprieve.domain.job import Event
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Order, OrderState, Plan, Try
from reprieve.ports.rows import (
    AddEvents,
    Alive,
    PutHolds,
    PutHost,
    PutOrder,
    PutTry,
    Wanted,
    Write,
)
from reprieve.usecases.census import census_of, named_by
from reprieve.usecases.known_pool import REREADS, Filled, Known, landed

Errors = tuple[FleetError, ...]


@dataclass(frozen=True, slots=True)
class Landing:
    """The step. Whatever became of the job meanwhile, an instance that is there gets its row."""

    known: Known

    def __call__(self, plan: Plan, pairs: Sequence[tuple[Order, Launched]], errors: Errors) -> None:
        """Give each order its instance, all in one commit if nothing changed meanwhile."""
        if not pairs:
            return
        writes: list[Write] = []
        for order, instance in pairs:
            writes += self._writes(plan, order, instance, errors)
            writes.append(Alive(order.job, order.attempt))
        try:
            self.known.means.rows.commit(writes)
        except StaleError:
            for order, instance in pairs:
                self._again(plan, order, instance, errors)
            return
        for order, instance in pairs:
            self._landed(plan, order, instance, errors)

    def _writes(self, plan: Plan, order: Order, instance: Launched, errors: Errors) -> list[Write]:
        answer, now = FleetAnswer((instance,), errors), self.known.means.now()
        event = Event(now, "replacement", f"landed: {answer.text()}", order.attempt)
        return [
            PutTry(Try(order.job, order.attempt, order.try_n, plan, now, answer)),
            PutOrder(landed(order, answer, now=now), was=order),
            *self._adopting(plan, order, instance),
            AddEvents(order.job, (event,)),
        ]

    def _adopting(self, plan: Plan, order: Order, instance: Launched) -> list[Write]:
        host = self._host(plan, order, instance)
        return [PutHost(host, new=True), PutHolds(instance.instance_id, self._terms(host))]

    def _terms(self, host: Host) -> Terms:
        """Return what the host is to know of its capacity pool, and decides by."""
        known = self.known
        at = (host.capacity.type, host.capacity.zone)
        return terms(
            known.listing.history,
            at if host.capacity.market is Market.SPOT else None,
            launched_at=host.launched_at,
            off=known.pool.off,
        )

    def _again(self, plan: Plan, order: Order, instance: Launched, errors: Errors) -> None:
        """Land one whose rows changed: adopted already, filled already, or its job is over."""
        means = self.known.means
        for _ in range(REREADS):
            read = means.rows.read(
                Wanted(orders=frozenset({order.key}), hosts=frozenset({instance.instance_id}))
            )
            row = read.order(*order.key)
            if row and row.state is OrderState.OPEN and row.member == order.member:
                writes = self._writes(plan, row, instance, errors)
            else:
                writes = self._adopting(plan, order, instance)
            if read.host(instance.instance_id):
                writes = [write for write in writes if not isinstance(write, PutHost | PutHolds)]
            try:
                means.rows.commit(writes)
            except StaleError:
                continue
            self._landed(plan, order, instance, errors)
            self._let_go_if_idle(instance)
            return
        message = f"order {order.member} keeps changing while {instance.instance_id} lands"
        raise StaleError(message)

    def _landed(self, plan: Plan, order: Order, instance: Launched, errors: Errors) -> None:
        known = self.known
        over = landed(order, FleetAnswer((instance,), errors), now=known.means.now())
        known.hosts[instance.instance_id] = self._host(plan, order, instance)
        refused = known.refused.get(order.key, errors)
        known.done[order.key] = Filled(over, over.outcome, (instance,), refused)

    def _let_go_if_idle(self, instance: Launched) -> None:
        """Retire what was launched for an attempt that is over, if the pool has no use for it."""
        means = self.known.means
        listing = means.orders.listing(self.known.pool.name)
        census = census_of(means.rows.read(named_by(listing)))
        if census.deficit(now=means.now(), clock=means.clock) < 0:
            means.retire(instance.instance_id, reason="launched for an attempt that is over")

    def _host(self, plan: Plan, order: Order, instance: Launched) -> Host:
        capacity = instance.capacity
        return Host(
            instance_id=instance.instance_id,
            pool=self.known.pool.name,
            capacity=capacity,
            launched_at=self.known.means.now(),
            usd_per_hour=self.known.prices(plan.market).get((capacity.type, capacity.zone)),
            reason=f"launched for {order.member}",
        )
