"""Act on what EC2 announced: tell the host, replace it, and let its job know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from reprieve.domain.capacity import Cold, Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.switches import Policy
from reprieve.domain.errors import ReprieveError, StaleError, UnknownOutcomeError
from reprieve.domain.host import Host, HostState, InstanceState, Market
from reprieve.domain.job import Event, Job
from reprieve.domain.lease import Holds, Lease, LeaseState
from reprieve.domain.notice import Act, Channel, Notice, NoticeKind, Reaction, escalate, react
from reprieve.domain.planning import lived
from reprieve.domain.settlement import Decision, Facts, Nothing, decide
from reprieve.ports.cloud import Fleet, Mail, Signals
from reprieve.ports.rows import (
    LAG,
    AddEvents,
    Chill,
    ColdKey,
    PutHost,
    Remember,
    Rows,
    Snapshot,
    Unchanged,
    Wanted,
    Write,
)
from reprieve.protocol import Scalar
from reprieve.usecases.effects import Effects, effects, ordered

TRIES = 5
LOOKS = frozenset({Act.BELL, Act.STALE})
UNHEEDED = frozenset({Act.RECORD, Act.STALE})


@dataclass(frozen=True, slots=True)
class Handled:
    """
    One notice's result; *reaction* is None for a stranger's.

    *first*: nobody had announced this before. *unreachable*: why SSM couldn't tell the
    host. *failure* is set when the notice must be tried again.
    """

    notice: Notice
    reaction: Reaction | None = None
    first: bool = False
    jobs: tuple[str, ...] = ()
    unreachable: str = ""
    failure: ReprieveError | None = None

    @property
    def stranger(self) -> bool:
        """Whether the notice is of no host of ours."""
        return self.reaction is None and self.failure is None


@dataclass(frozen=True, slots=True)
class _Told:
    """A notice of ours, what it asks for, and why SSM couldn't pass it on, if it couldn't."""

    notice: Notice
    reaction: Reaction
    unreachable: str = ""

    @property
    def host(self) -> str:
        return self.notice.instance_id


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read about the hosts of a batch, and what the batch itself chilled since."""

    seen: Snapshot
    states: Mapping[str, InstanceState]
    colds: dict[ColdKey, Cold] = field(default_factory=dict)

    def host(self, instance_id: str) -> Host:
        host = self.seen.host(instance_id)
        if host is None:
            raise StaleError(f"host {instance_id} has no row any more")
        return host

    def holds(self, instance_id: str) -> Holds:
        return self.seen.held(instance_id) or Holds(instance_id)

    def held(self, instance_id: str) -> Iterator[tuple[Job, Lease]]:
        """Yield the jobs whose current attempt this host holds, by its own row."""
        for key in sorted(self.holds(instance_id).leases, key=str):
            job, lease = self.seen.job(key.job), self.seen.lease(key)
            if job and job.lease_key == key and lease and lease.state is LeaseState.HELD:
                yield job, lease


@dataclass(frozen=True, slots=True)
class _Step:
    """What one notice comes to: a commit and what follows it, and the decisions in it."""

    effects: Effects
    jobs: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class HandleNotice:
    """
    The use case. Its order: tell the hosts first, store after.

    If the process dies in between, the redelivery tells them again, which they take for
    the same request. The other order would find the hosts DRAINING and never ask.

    What is stored about one host is one commit: the host DRAINING, provided that it holds
    what was read; its jobs DRAINING; their replacements ordered. So whoever finds a host
    DRAINING knows that all of this was done.
    """

    pools: Mapping[str, Pool]
    rows: Rows
    fleet: Fleet
    signals: Signals
    mail: Mail
    clock: NoticeClock
    now: Callable[[], datetime]
    token: Callable[[], str]
    told: Callable[[Decision], None]

    def __call__(self, notices: Sequence[Notice], *, seen: Snapshot | None = None) -> list[Handled]:
        """
        Handle a batch: verdicts before advice, one read of the hosts, one signal per 50.

        *seen*: rows that were just read, the hosts and what they hold among them. What goes
        wrong about one host is tried again after the others, and keeps nobody waiting.
        """
        if seen is None:
            try:
                seen = self.rows.read(_hosts(notice.instance_id for notice in notices))
            except UnknownOutcomeError as error:
                return [Handled(notice, failure=error) for notice in notices]
        ours: list[_Told] = []
        others: list[Handled] = []
        for notice in notices:
            try:
                known = seen.host(notice.instance_id) is not None
            except UnknownOutcomeError as error:
                others.append(Handled(notice, failure=error))
                continue
            if known:
                ours.append(_Told(notice, react(notice, now=self.now(), clock=self.clock)))
            else:
                others.append(Handled(notice))
        ours.sort(key=lambda told: not told.notice.takes_the_host)
        return self._work(self._signal(ours, seen), seen) + others

    def _signal(self, ours: Sequence[_Told], seen: Snapshot) -> Sequence[_Told]:
        """Tell the hosts that don't know yet: what one saw by itself, it told us."""
        news = [
            told.notice
            for told in ours
            if told.reaction.signals and not _knows(seen.hosts[told.host], told.notice)
        ]
        if not news:
            return ours
        deaf = self.signals.preempt(alike(news, within=self.clock.margin / 3)).unreachable
        return [replace(told, unreachable=deaf.get(told.host, "")) for told in ours]

    def _work(self, waiting: Sequence[_Told], seen: Snapshot) -> list[Handled]:
        """Carry out what each notice asks for; who came too late reads again, after the others."""
        done: list[Handled] = []
        for remaining in reversed(range(TRIES)):
            if not waiting:
                break
            try:
                known = self._know(waiting, seen)
            except UnknownOutcomeError as error:
                return done + [Handled(t.notice, t.reaction, failure=error) for t in waiting]
            results = [(told, self._handle(told, known)) for told in waiting]
            done += [result for _, result in results if not (remaining and _late(result))]
            waiting = [told for told, result in results if remaining and _late(result)]
            seen = Snapshot()
        return done

    def _know(self, waiting: Sequence[_Told], seen: Snapshot) -> _Known:
        """Read what the notices need and wasn't read yet; ask EC2 about those it must speak of."""
        missing = _hosts(told.host for told in waiting) - seen.read
        if missing:
            seen |= self.rows.read(missing)
        missing = Wanted()
        for told in waiting:
            missing |= self._needed(told, seen)
        missing -= seen.read
        if missing:
            seen |= self.rows.read(missing | _colds(waiting, seen))
        asked = [told.host for told in waiting if _must_look(told, seen)]
        states = self.fleet.states(asked) if asked else {}
        return _Known(seen, states, dict(seen.colds))

    def _needed(self, told: _Told, seen: Snapshot) -> Wanted:
        """Return the rows of the jobs on a host, if the notice is about them."""
        host, holds = seen.hosts.get(told.host), seen.holds.get(told.host)
        if host is None or holds is None:
            return Wanted()
        act = told.reaction.act
        orders = act is Act.DRAIN and not _announced(host, told.notice)
        orders = orders or (act is Act.ADVISE and self._buys_spare(told.notice, host))
        if not orders and act not in LOOKS:
            return Wanted()
        keys, attempts = holds.leases, (1,) if orders else (0, 1)
        return Wanted(
            jobs=frozenset(key.job for key in keys),
            leases=keys,
            orders=frozenset((key.job, key.attempt + n) for key in keys for n in attempts),
        )

    def _handle(self, told: _Told, known: _Known) -> Handled:
        try:
            host = known.host(told.host)
            step = self._step(told, host, known)
            self.rows.commit(step.effects.writes)
            for decision in step.decisions:
                self.told(decision)
            for write in step.effects.writes:
                if isinstance(write, Chill):
                    known.colds[write.pool, write.capacity] = write.cold
            step.effects.send(self.mail)
        except ReprieveError as error:
            return Handled(told.notice, told.reaction, failure=error)
        return Handled(
            told.notice,
            told.reaction,
            first=host.notice is None or not host.notice.takes_the_host,
            jobs=step.jobs,
            unreachable=told.unreachable,
        )

    def _step(self, told: _Told, host: Host, known: _Known) -> _Step:
        match told.reaction.act:
            case Act.RECORD:
                return self._record(told, host, host.relieved(told.notice), known)
            case Act.BELL | Act.STALE:
                return self._look(told, host, known)
            case Act.ADVISE:
                return self._advise(told, host, known)
            case Act.DRAIN:
                return self._drain(told, host, known)
            case _:
                assert_never(told.reaction.act)

    def _record(self, told: _Told, host: Host, after: Host, known: _Known) -> _Step:
        """Note what was said, and change no job."""
        keys = sorted(known.holds(told.host).leases, key=str)
        lines = [AddEvents(key.job, (self._line(told, key.attempt),)) for key in keys]
        chill = self._chill(told.notice, host, known) if after != host else ()
        return _Step(
            Effects((*_moved(host, after), *chill, *lines)),
            jobs=tuple(key.job for key in keys),
        )

    def _advise(self, told: _Told, host: Host, known: _Known) -> _Step:
        """Keep new work off the host; its jobs go on, with a spare host if the pool has them."""
        notice = told.notice
        advised = host.advanced(HostState.READY, reason=str(notice.kind), notice=notice)
        step = self._record(told, host, advised, known)
        if not self._buys_spare(notice, host):
            return step
        spares = Effects()
        for job, lease in known.held(told.host):
            spares += self._replacement(notice, job, lease, known, spare=True)
        return replace(step, effects=step.effects + spares)

    def _look(self, told: _Told, host: Host, known: _Known) -> _Step:
        """Go by what EC2 says; a host that is gone frees its jobs and leaves the pool."""
        state = known.states.get(told.host, InstanceState.UNKNOWN)
        gone = state is InstanceState.GONE
        after = host.advanced(HostState.GONE, reason="EC2 says it is gone") if gone else host
        work, decisions, jobs = Effects((*_moved(host, after), *self._life(host, after))), [], []
        for job, lease in known.held(told.host):
            order = known.seen.order(job.id, job.attempt)
            facts = Facts(job, lease, host, instance=state, order=order)
            decision, decided = self._settled(facts, known)
            lines = (self._line(told, lease.key.attempt),) if told.reaction.act is Act.STALE else ()
            work += decided + Effects((AddEvents(job.id, lines),) if lines else ())
            decisions.append(decision)
            jobs.append(job.id)
        return _Step(work, tuple(jobs), tuple(decisions))

    def _life(self, host: Host, after: Host) -> tuple[Write, ...]:
        """Return what the life of a host that is gone now says of its capacity pool."""
        if after == host or host.capacity.market is not Market.SPOT:
            return ()
        return (Remember(host.pool, host.capacity, lived(host, self.now())),)

    def _drain(self, told: _Told, host: Host, known: _Known) -> _Step:
        """
        Drain the host and its jobs, and order their replacements.

        A claim in between makes the commit fail; a lease that is held by the host's own row
        is held, since no write changes one without the other.
        """
        notice = told.notice
        after = host.advanced(HostState.DRAINING, reason=str(notice.kind), notice=notice)
        if _announced(host, notice):
            return self._record(told, host, after, known)
        unclaimed = (Unchanged(known.holds(told.host)),) if after != host else ()
        work = Effects((*_moved(host, after), *unclaimed, *self._chill(notice, host, known)))
        decisions, jobs = [], []
        for job, lease in known.held(told.host):
            attempt = lease.key.attempt
            decision, decided = self._settled(Facts(job, lease, after), known)
            replacement = self._replacement(notice, job, lease, known)
            line = Effects((AddEvents(job.id, (self._line(told, attempt),)),))
            work += decided + replacement + line
            decisions.append(decision)
            jobs.append(job.id)
        return _Step(work, tuple(jobs), tuple(decisions))

    def _line(self, told: _Told, attempt: int) -> Event:
        unheeded = told.reaction.reason if told.reaction.act in UNHEEDED else ""
        return notice_event(told.notice, attempt, now=self.now(), unheeded=unheeded)

    def _replacement(
        self, notice: Notice, job: Job, lease: Lease, known: _Known, *, spare: bool = False
    ) -> Effects:
        attempt = lease.key.attempt + 1
        return ordered(
            job,
            attempt,
            stands=known.seen.order(job.id, attempt),
            reason=f"{notice.kind} of {notice.instance_id}",
            now=self.now(),
            at_risk=max(0, (lease.step or 0) - (lease.durable_step or 0)),
            spare=spare,
            ring_again=not spare,
        )

    def _buys_spare(self, notice: Notice, host: Host) -> bool:
        pool = self.pools.get(host.pool)
        advice = notice.kind is NoticeKind.REBALANCE
        return advice and pool is not None and pool.spares_per_hour > 0

    def _settled(self, facts: Facts, known: _Known) -> tuple[Decision, Effects]:
        decision = decide(facts, now=self.now(), clock=self.clock, token=self.token())
        waiting = facts.job if isinstance(decision, Nothing) else decision.job
        stands = known.seen.order(waiting.id, waiting.attempt)
        return decision, effects(decision, facts, stands=stands, now=self.now())

    def _chill(self, notice: Notice, host: Host, known: _Known) -> tuple[Write, ...]:
        """Ask the pool for nothing while it is being taken back, unless that is known."""
        if not notice.tells_of_capacity:
            return ()
        pool = self.pools.get(host.pool)
        if notice.kind is NoticeKind.REBALANCE and pool and not pool.follows(Policy.SUSPECTS):
            return ()
        until = max(self.now() + self.clock.cold, notice.reclaimed_at or notice.noticed_at)
        stands = known.colds.get((host.pool, host.capacity))
        if stands and stands.until > until - self.clock.margin:
            return ()
        return (Chill(host.pool, host.capacity, Cold(until, f"{notice.kind} notice")),)


def alike(notices: Iterable[Notice], *, within: timedelta) -> list[Notice]:
    """
    Give hosts that go at nearly the same moment the earliest of their times.

    One command then tells them all; *within* is how far their times may lie apart.
    """
    found: list[Notice] = []
    starts: dict[NoticeKind, datetime] = {}
    for notice in sorted(notices, key=lambda one: one.reclaimed_at or one.noticed_at):
        at = notice.reclaimed_at
        if at is not None:
            start = starts.get(notice.kind)
            if start is None or at - start > within:
                starts[notice.kind] = start = at
            at = start
        found.append(replace(notice, reclaimed_at=at))
    return found


def notice_event(notice: Notice, attempt: int, *, now: datetime, unheeded: str = "") -> Event:
    """
    Return the timeline's line about *notice*; whoever stores it, it is stored once.

    Its lag is how long after it was made it is handled, *now*; the newest handling counts.
    *unheeded* is why nothing was done about it.
    """
    seen = f"seen by {notice.channel}"
    words = f"{notice.kind} notice for {notice.instance_id}, {seen}"
    data: dict[str, Scalar] = {
        "kind": notice.kind,
        "channel": notice.channel,
        "host": notice.instance_id,
        LAG: round((now - notice.noticed_at).total_seconds(), 3),
    }
    if notice.detail:
        data["detail"] = notice.detail
    if unheeded:
        data["reason"] = unheeded
        words = f"{unheeded}, {seen}"
    return Event(notice.noticed_at, "notice", words, attempt, data)


def _late(result: Handled) -> bool:
    return isinstance(result.failure, StaleError | UnknownOutcomeError)


def _hosts(instance_ids: Iterable[str]) -> Wanted:
    ids = frozenset(instance_ids)
    return Wanted(hosts=ids, holds=ids)


def _colds(waiting: Iterable[_Told], seen: Snapshot) -> Wanted:
    """Return what is remembered of the capacity pools that would be chilled."""
    hosts = [seen.hosts[t.host] for t in waiting if t.notice.tells_of_capacity]
    return Wanted(colds=frozenset((host.pool, host.capacity) for host in hosts))


def _moved(host: Host, after: Host) -> tuple[Write, ...]:
    return (PutHost(after),) if after != host else ()


def _knows(host: Host, notice: Notice) -> bool:
    """Whether the host itself told us of this, now or before."""
    known = host.notice
    return notice.channel in {Channel.METADATA, Channel.SSM} or (
        known is not None
        and known.channel is Channel.METADATA
        and escalate(known, notice).kind is known.kind
    )


def _announced(host: Host, notice: Notice) -> bool:
    """
    Whether the host drains already, as somebody else announced.

    What the same channel says again may be a redelivery: whoever took it first may have
    died before all of it was done.
    """
    known = host.notice
    return (
        host.state is HostState.DRAINING
        and known is not None
        and known.takes_the_host
        and known.channel is not notice.channel
    )


def _must_look(told: _Told, seen: Snapshot) -> bool:
    """Whether EC2 has to be asked: of a host that is gone and holds nothing, all is known."""
    host, holds = seen.hosts.get(told.host), seen.holds.get(told.host)
    over = host is not None and host.state is HostState.GONE and not (holds and holds.leases)
    return told.reaction.act in LOOKS and not over
