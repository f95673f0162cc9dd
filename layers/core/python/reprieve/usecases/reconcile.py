"""
The sweep: the table, EC2 and the queues agree again.

Third of three detectors, and the one that needs nobody's word: whatever message was
lost, whichever process died between two calls, the next sweeps find it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from reprieve.domain.capacity import Census, Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import ReprieveError, StaleError, UnknownOutcomeError
from reprieve.domain.host import (
    CapacityPool,
    Host,
    HostState,
    Instance,
    InstanceState,
    Market,
)
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import Order, OrderState
from reprieve.domain.settlement import NOT_FOUND_COUNTS_AFTER
from reprieve.domain.silence import Sights, Silence, judge
from reprieve.ports.cloud import Fleet, Mail
from reprieve.ports.hosts import HostStore, Watch
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.protocol import OrderMessage
from reprieve.usecases.census import TakeCensus
from reprieve.usecases.handle_notice import HandleNotice
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle

POOL_TAG = "reprieve:pool"


@dataclass(slots=True)
class Swept:
    """What one sweep found and did."""

    jobs: int = 0
    unannounced: list[str] = field(default_factory=list)
    silent: int = 0
    cannot_tell: int = 0
    retired: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    failures: list[ReprieveError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reconcile:
    """The use case; one failing job or host doesn't starve the others."""

    pools: Mapping[str, Pool]
    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    watch: Watch
    fleet: Fleet
    mail: Mail
    census: TakeCensus
    settle: Settle
    handle_notice: HandleNotice
    retire: Retire
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self) -> Swept:
        """Sweep every pool, then the instances that no row knows."""
        swept = Swept()
        for pool in self.pools.values():
            self._sweep_pool(pool, swept)
        self._strays(swept)
        return swept

    def _sweep_pool(self, pool: Pool, swept: Swept) -> None:
        live = self.jobs.live(pool.name)
        rows = [job for job_id, _ in live.jobs if (job := self.jobs.read(job_id))]
        leases = self.jobs.leases(job.lease_key for job in rows)
        holders = {
            lease.holder.instance_id: lease
            for lease in leases.values()
            if lease.state is LeaseState.HELD and lease.holder
        }
        states = self.fleet.states({*holders, *(instance_id for instance_id, _ in live.hosts)})
        silence = self._silent(
            self._listen(pool, holders, live.hosts), list(holders.values()), swept
        )
        silent = frozenset(str(holders[i].key) for i in silence.proven if i in holders)
        for job in rows:
            self._settle(job, leases.get(job.lease_key), states, silent, swept)
        census = self.census.of(live, silent=silence.proven - frozenset(holders))
        self._unannounced(census.hosts, states, swept)
        for host in census.hosts:
            self._tend(host, census, states, swept)
        self._balance(pool, rows, swept)

    def _silent(self, counts: Sights, held: Sequence[Lease], swept: Swept) -> Silence:
        """Return what the counts prove; nothing is proven while half a pool is silent."""
        holding = {lease.holder.instance_id for lease in held if lease.holder}
        silence = judge(
            {subject: sight.count for subject, sight in counts.by_subject.items()},
            holding=holding,
            clock=self.clock,
        )
        swept.silent += len(silence.proven)
        swept.cannot_tell += len(silence.doubtful & holding)
        return silence

    def _listen(
        self, pool: Pool, holders: Mapping[str, Lease], hosts: Sequence[tuple[str, HostState]]
    ) -> Sights:
        beats = {instance_id: f"{lease.key} {lease.beat}" for instance_id, lease in holders.items()}
        for instance_id, held in self.hosts.holds([i for i, _ in hosts]).items():
            if held.beat > 0 and not held.leases:
                beats.setdefault(instance_id, f"idle {held.beat}")
        sweep = self.clock.sweep
        return self.watch.observe(
            pool.name, beats, now=self.now(), min_gap=sweep / 2, max_gap=2 * sweep
        )

    def _settle(
        self,
        job: Job,
        lease: Lease | None,
        states: Mapping[str, InstanceState],
        silent: frozenset[str],
        swept: Swept,
    ) -> None:
        swept.jobs += 1
        holder = lease.holder if lease and lease.state is LeaseState.HELD else None
        state = states.get(holder.instance_id) if holder else None
        quiet = lease.beat if lease and str(lease.key) in silent else None
        try:
            self.settle(
                job.id,
                ask_ec2=state in {InstanceState.GONE, InstanceState.NOT_FOUND},
                silent_beat=quiet,
            )
        except ReprieveError as error:
            swept.failures.append(error)

    def _unannounced(
        self, hosts: Sequence[Host], states: Mapping[str, InstanceState], swept: Swept
    ) -> None:
        """
        Act on what only the Spot requests say: the third detector.

        It also serves a host whose notice came before its row did, and was dropped as a
        stranger's.
        """
        ready = [
            host.instance_id
            for host in hosts
            if host.state is HostState.READY
            and host.capacity.market is Market.SPOT
            and states.get(host.instance_id) is InstanceState.ALIVE
        ]
        marked = self.fleet.marked(ready)
        # A request says "terminated" too, and the host may have died since the sweep began: then
        # it is a loss, which nobody announced.
        alive = self.fleet.states(marked) if marked else {}
        now = self.now()
        found = [
            Notice(
                NoticeKind.INTERRUPTION, instance_id, now, Channel.SWEEP, now + self.clock.notice
            )
            for instance_id in sorted(marked)
            if alive.get(instance_id) is InstanceState.ALIVE
        ]
        handled = self.handle_notice(found) if found else []
        swept.unannounced += [result.notice.instance_id for result in handled]
        swept.failures += [result.failure for result in handled if result.failure]

    def _tend(
        self,
        host: Host,
        census: Census,
        states: Mapping[str, InstanceState],
        swept: Swept,
    ) -> None:
        age = self.now() - host.launched_at
        state = states.get(host.instance_id, InstanceState.UNKNOWN)
        lost = state is InstanceState.NOT_FOUND and age > NOT_FOUND_COUNTS_AFTER
        if state is InstanceState.GONE or lost:
            self.hosts.advance(host.instance_id, HostState.GONE, reason="EC2 says it is gone")
            return
        why = self._why_retire(host, census)
        if why:
            try:
                if self.retire(host.instance_id, reason=why):
                    swept.retired.append(host.instance_id)
            except ReprieveError as error:
                swept.failures.append(error)

    def _why_retire(self, host: Host, census: Census) -> str | None:
        now = self.now()
        holds = census.holds.get(host.instance_id)
        if holds and holds.leases and host.state is not HostState.RETIRING:
            return None
        if host.state is HostState.RETIRING:
            return host.reason
        if (not holds or holds.beat == 0) and now - host.launched_at > self.clock.boot:
            return "its agent never became ready"
        if host.instance_id in census.silent:
            return "its agent fell silent while idle"
        if host.state is HostState.DRAINING and host.notice:
            due = host.notice.reclaimed_at or host.notice.noticed_at + self.clock.notice
            if now > due + 2 * self.clock.overstay:
                return "EC2 didn't take it back"
        return None

    def _balance(self, pool: Pool, rows: Sequence[Job], swept: Swept) -> None:
        """Ring orders that nobody answered; raise the oldest one if hosts are missing."""
        census = self.census(pool.name)
        now = self.now()
        for order in census.orders:
            if now - order.updated_at > self.clock.resend:
                self._again(order, replace(order, updated_at=now), swept)
        if census.deficit(now=now, clock=self.clock) + pool.buffer <= 0:
            return
        waiting = sorted(
            (job for job in rows if job.status is JobStatus.QUEUED), key=lambda j: j.ticket_at
        )
        for job in waiting:
            stood = self.orders.read(job.id, job.attempt)
            if stood and stood.state in {OrderState.LANDED, OrderState.NOT_NEEDED}:
                raised = replace(
                    stood, state=OrderState.OPEN, try_n=stood.try_n + 1, tier=0, updated_at=now
                )
                self._again(stood, raised, swept)
                return

    def _again(self, was: Order, order: Order, swept: Swept) -> None:
        try:
            self.orders.update(order, was=was)
        except (StaleError, UnknownOutcomeError):
            return  # somebody is at it
        self.mail.order(OrderMessage(order.job, order.attempt, "rung again by the sweep"))
        swept.reordered.append(f"{order.job}#{order.attempt}")

    def _strays(self, swept: Swept) -> None:
        """Give every instance with our tag a row: what a lost answer launched must not leak."""
        try:
            instances = [i for i in self.fleet.ours() if i.state is InstanceState.ALIVE]
        except UnknownOutcomeError as error:
            swept.failures.append(error)
            return
        known = self.hosts.read(i.instance_id for i in instances)
        for instance in instances:
            old_enough = self.now() - instance.launched_at > self.clock.cold
            if instance.instance_id not in known and old_enough:
                self._adopt(instance, swept)

    def _adopt(self, instance: Instance, swept: Swept) -> None:
        swept.strays.append(instance.instance_id)
        pool = instance.tags.get(POOL_TAG, "")
        wanted = (
            pool in self.pools and self.census(pool).deficit(now=self.now(), clock=self.clock) > 0
        )
        host = Host(
            instance_id=instance.instance_id,
            pool=pool,
            capacity=CapacityPool(instance.type, instance.zone, instance.market),
            launched_at=instance.launched_at,
            state=HostState.READY if wanted else HostState.RETIRING,
            reason="found by the sweep",
        )
        self.hosts.adopt(host)
        if not wanted and self.retire(instance.instance_id, reason="a stray nobody needs"):
            swept.retired.append(instance.instance_id)
