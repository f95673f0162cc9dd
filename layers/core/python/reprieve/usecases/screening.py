"""Which orders take a launch: by the listing where that is plain, by strong reads where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from reprieve.domain.capacity import ON_A_HOST, WAITING, Cold, Demand, Supply, to_launch
from reprieve.domain.errors import StaleError
from reprieve.domain.host import HostState
from reprieve.domain.lease import Holds, LeaseState
from reprieve.domain.order import Order, OrderState, Try
from reprieve.domain.planning import free_spare_slot
from reprieve.ports.rows import Chill, PutOrder, Snapshot, Wanted
from reprieve.usecases.census import census_of, named_by
from reprieve.usecases.known_pool import Filled, Known

SPARE_LASTS = timedelta(hours=1)  # in the churn budget


@dataclass(slots=True)
class Sifted:
    """Orders that take a launch, and tries whose plan is stored and has to be sent again."""

    launch: list[Order] = field(default_factory=list)
    replays: list[Try] = field(default_factory=list)

    def add(self, more: Sifted) -> None:
        """Take what else was sifted."""
        self.launch += more.launch
        self.replays += more.replays


@dataclass(frozen=True, slots=True)
class Screening:
    """The step; what needs no launch it closes."""

    known: Known

    def __call__(self, orders: Sequence[Order]) -> Sifted:
        """Sift by the listing; of whom it leaves in doubt, make sure."""
        listed = [order for order in orders if self._is_listed(order)]
        spares = [order for order in listed if self._is_spare(order)]
        missing = self._missing([order for order in listed if order not in spares])
        doubtful = [order for order in orders if order not in spares and order not in missing]
        sifted = self.strongly(doubtful) if doubtful else Sifted()
        sifted.launch[:0] = [order for order in spares if self._spends(order)] + missing
        return sifted

    def strongly(self, orders: Sequence[Order]) -> Sifted:
        """Read everything about *orders* strongly, close what takes no launch, sift the rest."""
        known, sifted = self.known, Sifted()
        read = self._read(orders)
        known.learn(read)
        wanted: list[Order] = []
        for order in orders:
            row = read.order(*order.key)
            if row is None or row.state is OrderState.UNFILLED:
                reason = f"order is {row.state}" if row else "no such order"
                known.done[order.key] = Filled(row, reason)
                continue
            unwanted = self._unwanted(row, read)
            tried = read.try_(row.job, row.attempt, row.try_n)
            if unwanted:
                sifted.add(self._close(row, unwanted))
            elif row.state is not OrderState.OPEN and not self._waits(row):
                known.done[row.key] = Filled(row, f"order is {row.state}")
            elif row.state is OrderState.OPEN and tried:
                sifted.replays.append(tried)
            else:
                wanted.append(row)
        spares = [order for order in wanted if self._is_spare(order)]
        sifted.launch += [order for order in spares if self._spends(order)]
        sifted.add(self._balance([o for o in wanted if o not in spares], read))
        return sifted

    def _close(self, order: Order, reason: str, *, while_: Sequence[Holds | Order] = ()) -> Sifted:
        """End *order*, unless that isn't true any more: then look at it again."""
        try:
            self.known.close(order, reason, while_=while_)
        except StaleError:
            self.known.again(order)
            return self.strongly([order])
        return Sifted()

    def _is_listed(self, order: Order) -> bool:
        job = self.known.jobs.get(order.job)
        return (
            order.state is OrderState.OPEN
            and job is not None
            and order.attempt in {job.attempt, job.attempt + 1}
        )

    def _is_spare(self, order: Order) -> bool:
        """Whether it is wanted on advice alone, while its job still runs."""
        job = self.known.jobs.get(order.job)
        if job is None or not order.spare:
            return False
        return job.status in ON_A_HOST and order.attempt == job.attempt + 1

    def _waits(self, order: Order) -> bool:
        job = self.known.jobs.get(order.job)
        return job is not None and job.status in WAITING

    def _missing(self, mine: Sequence[Order]) -> list[Order]:
        """
        Return those for whom the listing shows too few hosts, whatever those hosts do.

        Running jobs are demand here and every ready host is supply, so that nobody's lease
        has to be read; it errs on the side of too much supply, and who seems to be served
        is counted again.
        """
        known = self.known
        own_jobs, own = {order.job for order in mine}, {order.key for order in mine}
        others = [
            Demand(job.id, job.spec.needs)
            for job in known.jobs.values()
            if job.status in WAITING | ON_A_HOST and job.id not in own_jobs
        ]
        ready = [host for host in known.hosts.values() if host.state is HostState.READY]
        coming = [
            order
            for order in known.listing.orders.values()
            if order.state is OrderState.OPEN and order.key not in own
        ]
        supply = [Supply(type=host.capacity.type) for host in ready]
        supply += [Supply(job=order.job, needs=order.needs) for order in coming]
        return to_launch(mine, others, supply, buffer=known.pool.buffer)

    def _read(self, orders: Sequence[Order]) -> Snapshot:
        """Read the pool's rows and the orders' own; then those that only these name."""
        rows = self.known.means.rows
        read = rows.read(
            named_by(self.known.listing)
            | Wanted(
                jobs=frozenset(order.job for order in orders),
                orders=frozenset(order.key for order in orders),
                tries=frozenset((o.job, o.attempt, o.try_n) for o in orders),
            )
        )
        leases, tries = set(), set()
        for order in orders:
            row, job = read.orders.get(order.key), read.jobs.get(order.job)
            if job and job.attempt == order.attempt:
                leases.add(job.lease_key)
            if row and row.try_n != order.try_n:
                tries.add((row.job, row.attempt, row.try_n))
        more = Wanted(leases=frozenset(leases), tries=frozenset(tries))
        if more:
            read |= rows.read(more)
        brought = _brought(read)
        return read | rows.read(Wanted(hosts=brought, holds=brought)) if brought else read

    def _unwanted(self, order: Order, read: Snapshot) -> str | None:
        """Return why the attempt needs no host any more."""
        job = read.job(order.job)
        if job is None or job.terminal:
            return f"job is {job.status}" if job else "no such job"
        if order.attempt < job.attempt:
            return f"the job is at attempt {job.attempt}"
        if order.attempt == job.attempt:
            lease = read.lease(job.lease_key)
            if lease is None or lease.state is not LeaseState.FREE:
                return "the attempt has a host"
            self.known.leases[order.key] = lease
        return None

    def _balance(self, mine: Sequence[Order], read: Snapshot) -> Sifted:
        """Sift out those of *mine* for whom a census finds no host; close the others."""
        known, means = self.known, self.known.means
        census = census_of(read)
        own_jobs = {order.job for order in mine}
        others = [wish for wish in census.demand() if wish.job not in own_jobs]
        supply = census.supply(now=means.now(), clock=means.clock, without=mine)
        missing = to_launch(mine, others, supply, buffer=known.pool.buffer)
        own = {order.key for order in mine}
        coming = [order for order in census.orders if order.key not in own]
        free = census.free(now=means.now(), clock=means.clock)
        sifted = Sifted([self._reopened(order) for order in missing])
        for order in mine:
            if order not in missing:
                reason = "idle or booting hosts cover the demand"
                sifted.add(self._close(order, reason, while_=[*coming, *free]))
        return sifted

    def _reopened(self, order: Order) -> Order:
        """Return *order* open: a closed one that misses a host after all gets another try."""
        if order.state is OrderState.OPEN:
            return order
        again = order.reopened(now=self.known.means.now())
        self.known.means.rows.commit([PutOrder(again, was=order)])
        return again

    def _spends(self, order: Order) -> bool:
        """Spend a slot of the churn budget on a spare; close its order if there is none."""
        known, now = self.known, self.known.means.now()
        slot = free_spare_slot(known.pool, known.cold, now=now)
        if slot is None:
            known.close(order, "the pool's budget for hosts on advice is spent")
            return False
        cold = Cold(now + SPARE_LASTS, f"a spare for {order.job}")
        known.means.rows.commit([Chill(known.pool.name, slot, cold)])
        known.cold[slot] = cold
        return True


def _brought(read: Snapshot) -> frozenset[str]:
    """Return the hosts of landed tries that are newer than the listing, which doesn't name them."""
    answers = (tried.answer for tried in read.tries.values() if tried.answer)
    launched = {one.instance_id for answer in answers for one in answer.instances}
    return frozenset(launched - read.read.hosts)
