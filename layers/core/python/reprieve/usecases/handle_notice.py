"""Act on what EC2 announced: tell the host, replace it, and let its job know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import ReprieveError
from reprieve.domain.host import Host, HostState, InstanceState
from reprieve.domain.job import Event, Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.ports.cloud import Fleet, Mail, Signals
from reprieve.ports.hosts import HostStore, PoolMemory
from reprieve.ports.jobs import JobStore
from reprieve.ports.orders import OrderStore
from reprieve.usecases.settle import Settle, place_order


class Handling(StrEnum):
    """What became of one notice."""

    STRANGER = "not a host of ours"
    STALE = "its time has passed"
    BELL = "asked EC2"
    ADVICE = "advice: an extra checkpoint, no new work"
    DRAINING = "host draining"


@dataclass(frozen=True, slots=True)
class Handled:
    """One notice's result. *failure* is set when it must be tried again."""

    notice: Notice
    handling: Handling
    first: bool = False  # nobody had announced this before
    jobs: tuple[str, ...] = ()
    unreachable: str = ""  # why SSM couldn't tell the host
    failure: ReprieveError | None = None


@dataclass(frozen=True, slots=True)
class HandleNotice:
    """
    The use case. Its order: tell the hosts first, store after.

    If the process dies in between, the redelivery tells them again, which they take for
    the same request. The other order would find the hosts DRAINING and never ask.
    """

    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    memory: PoolMemory
    fleet: Fleet
    signals: Signals
    mail: Mail
    settle: Settle
    clock: NoticeClock
    now: Callable[[], datetime]
    max_age: timedelta = field(default=timedelta(minutes=10))

    def __call__(self, notices: Sequence[Notice]) -> list[Handled]:
        """Handle a batch: verdicts before advice, one read of the hosts, one signal per 50."""
        known = self.hosts.read({notice.instance_id for notice in notices})
        ours = [n for n in notices if n.instance_id in known]
        ours.sort(key=lambda notice: not notice.takes_the_host)
        strangers = [n for n in notices if n.instance_id not in known]
        unreachable = self._signal(ours)
        handled = [self._handle(n, known[n.instance_id], unreachable) for n in ours]
        return handled + [Handled(notice, Handling.STRANGER) for notice in strangers]

    def _signal(self, notices: Sequence[Notice]) -> dict[str, str]:
        """Tell the hosts that can't have told us: a notice from the metadata is theirs."""
        news = [
            notice
            for notice in notices
            if notice.channel is not Channel.METADATA
            and notice.kind is not NoticeKind.STATE_CHANGE
            and not self._stale(notice)
        ]
        return dict(self.signals.preempt(news).unreachable) if news else {}

    def _handle(self, notice: Notice, host: Host, unreachable: dict[str, str]) -> Handled:
        try:
            if notice.kind is NoticeKind.STATE_CHANGE:
                return self._bell(notice, host)
            if self._stale(notice):
                return self._stale_notice(notice, host)
            if not notice.takes_the_host:
                return self._advice(notice, host, unreachable)
            return self._drain(notice, host, unreachable)
        except ReprieveError as error:
            return Handled(notice, Handling.DRAINING, failure=error)

    def _bell(self, notice: Notice, host: Host) -> Handled:
        """Ask EC2 what is true; a host that is gone frees its jobs and leaves the pool."""
        settled = self._settle_held(host, ask_ec2=True)
        state = self.fleet.states([host.instance_id])[host.instance_id]
        if state is InstanceState.GONE:
            self.hosts.advance(host.instance_id, HostState.GONE, reason="EC2 says it is gone")
        return Handled(notice, Handling.BELL, jobs=settled)

    def _stale_notice(self, notice: Notice, host: Host) -> Handled:
        """Its deadline is no evidence, so only EC2's own word can end the attempt."""
        settled = self._settle_held(host, ask_ec2=True)
        return Handled(notice, Handling.STALE, jobs=settled)

    def _advice(self, notice: Notice, host: Host, unreachable: dict[str, str]) -> Handled:
        first = host.notice is None
        self.hosts.advance(
            host.instance_id, HostState.READY, reason="rebalance recommendation", notice=notice
        )
        self._chill(notice, host)
        held = self._held(host)
        for job, lease in held:
            self.jobs.add_events(job.id, [notice_event(notice, lease.key.attempt)])
        jobs = tuple(job.id for job, _ in held)
        return Handled(notice, Handling.ADVICE, first, jobs, unreachable.get(host.instance_id, ""))

    def _drain(self, notice: Notice, host: Host, unreachable: dict[str, str]) -> Handled:
        """DRAINING first, then what it holds: a claim in between is refused by the state."""
        first = host.notice is None or not host.notice.takes_the_host
        self.hosts.advance(
            host.instance_id, HostState.DRAINING, reason=str(notice.kind), notice=notice
        )
        self._chill(notice, host)
        jobs: list[str] = []
        for job, lease in self._held(host):
            self.jobs.add_events(job.id, [notice_event(notice, lease.key.attempt)])
            place_order(
                self.orders,
                self.mail,
                job,
                lease.key.attempt + 1,
                reason=f"{notice.kind} of {host.instance_id}",
                now=self.now(),
            )
            self.settle(job.id)
            jobs.append(job.id)
        return Handled(
            notice,
            Handling.DRAINING,
            first,
            tuple(jobs),
            unreachable.get(host.instance_id, ""),
        )

    def _settle_held(self, host: Host, *, ask_ec2: bool) -> tuple[str, ...]:
        jobs = tuple(job.id for job, _ in self._held(host))
        for job_id in jobs:
            self.settle(job_id, ask_ec2=ask_ec2)
        return jobs

    def _held(self, host: Host) -> list[tuple[Job, Lease]]:
        """Return the jobs whose current attempt this host holds, by its own row."""
        holds = self.hosts.holds([host.instance_id]).get(host.instance_id)
        if not holds or not holds.leases:
            return []
        held = []
        for key, lease in self.jobs.leases(holds.leases).items():
            job = self.jobs.read(key.job)
            if job and job.lease_key == key and lease.state is LeaseState.HELD:
                held.append((job, lease))
        return held

    def _chill(self, notice: Notice, host: Host) -> None:
        """Ask the pool for nothing while it is being taken back; maintenance is of one host."""
        if notice.kind is NoticeKind.MAINTENANCE:
            return
        until = max(self.now() + self.clock.cold, notice.reclaimed_at or notice.noticed_at)
        self.memory.chill(host.pool, host.capacity, until=until, why=f"{notice.kind} notice")

    def _stale(self, notice: Notice) -> bool:
        """Whether the announced time has passed; for advice, whether it is simply old."""
        due = notice.reclaimed_at or notice.noticed_at + self.clock.notice
        if notice.kind in {NoticeKind.REBALANCE, NoticeKind.STATE_CHANGE}:
            due = notice.noticed_at + self.max_age
        return self.now() > due


def notice_event(notice: Notice, attempt: int) -> Event:
    """Return the timeline's line about *notice*; whoever stores it, it is stored once."""
    return Event(
        notice.noticed_at,
        "notice",
        f"{notice.kind} notice for {notice.instance_id}, seen by {notice.channel}",
        attempt,
        {"kind": notice.kind, "channel": notice.channel, "host": notice.instance_id},
    )
