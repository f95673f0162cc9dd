"""What a sweep sees of a pool, and what it keeps of what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Protocol

from reprieve.domain.capacity import Census, Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import Host, InstanceState
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.order import OrderState
from reprieve.domain.settlement import NOT_FOUND_COUNTS_AFTER
from reprieve.domain.silence import Sights, Silence, judge
from reprieve.ports.cloud import Fleet
from reprieve.ports.hosts import Watch
from reprieve.ports.jobs import JobStore, Live
from reprieve.ports.rows import Rows, Snapshot, Wanted
from reprieve.usecases.adopt_strays import Strays
from reprieve.usecases.find_commits import may_have_more


@dataclass(slots=True)
class Swept:
    """What one sweep found and did; *unfinished* counts what it had no time for."""

    jobs: int = 0
    hosts: int = 0
    unannounced: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)
    retired: dict[str, str] = field(default_factory=dict)
    strays: Strays = field(default_factory=Strays)
    rung: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)
    unfinished: int = 0
    failures: list[Exception] = field(default_factory=list)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what goes wrong with one piece, whatever it is: the others have their turn."""
        try:
            yield
        except ExceptionGroup as several:
            self.failures += several.exceptions
        except Exception as error:  # noqa: BLE001 - the handler raises it, after everything else
            self.failures.append(error)


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing to do; names sort by urgency, and stay the same from sweep to sweep."""

    name: str
    do: Callable[[], object]


class Part(Protocol):
    """One concern of the sweep."""

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return what has to be done in the pool; nothing is written yet."""


@dataclass(frozen=True, slots=True)
class View:
    """A pool as the sweep found it: its rows, then EC2's word, then what was heard."""

    pool: Pool
    live: Live
    hosts: tuple[str, ...]
    read: Snapshot
    states: Mapping[str, InstanceState]
    sights: Sights
    silence: Silence
    at: datetime

    def jobs(self) -> list[Job]:
        """Return the pool's jobs that aren't over, oldest ticket first."""
        named = {job_id for job_id, _ in self.live.jobs}
        found = [job for job_id in named if (job := self.read.jobs.get(job_id))]
        return sorted((job for job in found if not job.terminal), key=lambda job: job.ticket_at)

    def lease(self, job: Job) -> Lease | None:
        """Return the lease of the job's current attempt."""
        return self.read.leases.get(job.lease_key)

    def unclaimed(self, job: Job) -> bool:
        """Whether nobody has claimed its current attempt, whatever its own row says."""
        lease = self.lease(job)
        return lease is not None and lease.state is LeaseState.FREE

    def known_hosts(self) -> list[Host]:
        """Return the rows of the pool's hosts."""
        return [host for i in self.hosts if (host := self.read.hosts.get(i))]

    def busy(self) -> frozenset[str]:
        """Return the holders of leases, by the leases' own rows."""
        return frozenset(holders(self.read.leases.values()))

    def gone(self, instance_id: str) -> bool:
        """Whether EC2, asked after the leases were read, says that the instance is gone."""
        state, host = self.states.get(instance_id), self.read.hosts.get(instance_id)
        if state is not InstanceState.NOT_FOUND:
            return state is InstanceState.GONE
        # EC2's lists are eventually consistent: a young instance may not show yet.
        return host is not None and self.at - host.launched_at > NOT_FOUND_COUNTS_AFTER

    def census(self) -> Census:
        """Return the pool's demand and supply; silent hosts supply nothing."""
        orders = [order for key in self.live.orders if (order := self.read.orders.get(key))]
        jobs = [
            job for job in self.jobs() if job.status is not JobStatus.QUEUED or self.unclaimed(job)
        ]
        return Census(
            jobs=[(job.id, job.status) for job in jobs],
            hosts=self.known_hosts(),
            holds=self.read.holds,
            silent=self.silence.proven | self.silence.doubtful,
            orders=[order for order in orders if order.state is OrderState.OPEN],
            needs={job.id: job.spec.needs for job in jobs},
        )


@dataclass(frozen=True, slots=True)
class Look:
    """
    Reads a pool: so many calls for a hundred rows, and none for a single one.

    Rows first, then EC2, then the counting: what EC2 says of a holder is evidence if its
    lease has since kept the beat that was read before.
    """

    rows: Rows
    jobs: JobStore
    watch: Watch
    fleet: Fleet
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, pool: Pool, swept: Swept) -> View:
        """Return the pool; rows that couldn't be read are told as failures."""
        live = self.jobs.live(pool.name)
        named = (*(i for i, _ in live.hosts), *swept.strays.adopted.get(pool.name, ()))
        hosts = tuple(dict.fromkeys(named))
        read = self._rows(live, hosts, swept)
        states = self.fleet.states({*holders(read.leases.values()), *hosts})
        sights = self._listen(pool, read, hosts)
        return View(
            pool=pool,
            live=live,
            hosts=hosts,
            read=read,
            states=states,
            sights=sights,
            silence=self._judge(sights, read, swept),
            at=self.now(),
        )

    def again(self, wanted: Wanted, swept: Swept) -> Snapshot:
        """Read; a row that couldn't be read, or makes no sense, is told and hides no other."""
        if not wanted:
            return Snapshot()
        read = self.rows.read(wanted)
        for kind in fields(read.unread):
            for name in getattr(read.unread, kind.name):
                failure = UnknownOutcomeError(f"{kind.name}: {name} couldn't be read")
                swept.failures.append(failure)
        return read

    def _rows(self, live: Live, hosts: tuple[str, ...], swept: Swept) -> Snapshot:
        """Read what the index names, then what those rows name."""
        read = self.again(
            Wanted(
                jobs=frozenset(job for job, _ in (*live.jobs, *live.orders)),
                hosts=frozenset(hosts),
                holds=frozenset(hosts),
                orders=frozenset(live.orders),
            ),
            swept,
        )
        waiting = [job for job in read.jobs.values() if not job.terminal]
        held = {key for holds in read.holds.values() for key in holds.leases}
        orders = {(job.id, job.attempt) for job in waiting}
        orders |= {(job.id, job.attempt + 1) for job in waiting}
        leases = frozenset({job.lease_key for job in waiting} | held)
        read |= self.again(Wanted(leases=leases, orders=frozenset(orders)) - read.read, swept)
        of_leases = frozenset(
            lease.holder.instance_id for lease in read.leases.values() if lease.holder
        )
        return read | self.again(Wanted(hosts=of_leases) - read.read, swept)

    def _listen(self, pool: Pool, read: Snapshot, hosts: Iterable[str]) -> Sights:
        """Count the beats: of a lease while it is held, and else of an idle host."""
        busy = frozenset(holders(read.leases.values()))
        beats = {i: f"{lease.key} {lease.beat}" for i, lease in held_by(read).items()}
        for instance_id in hosts:
            holds = read.holds.get(instance_id)
            if holds is None or instance_id in busy:
                continue
            if holds.beat:
                beats[instance_id] = f"idle {holds.beat}"
            beats[waiting(instance_id, heard=bool(holds.beat))] = "still"
        for job in read.jobs.values():
            if may_have_more(job, read.leases.get(job.lease_key)):
                beats[looking(job)] = "still"
        sweep = self.clock.sweep
        return self.watch.observe(
            pool.name, beats, now=self.now(), min_gap=sweep / 2, max_gap=2 * sweep
        )

    def _judge(self, sights: Sights, read: Snapshot, swept: Swept) -> Silence:
        """Say what the silence of hosts proves; see `reprieve.domain.silence.judge`."""
        holding = held_by(read)
        spoken = {*holding, *(i for i in read.holds if i in sights.by_subject)}
        silence = judge({i: sights.count(i) for i in spoken}, holding=holding, clock=self.clock)
        swept.silent += sorted(silence.proven)
        swept.unheard += sorted(silence.unheard)
        swept.cannot_tell += sorted(silence.doubtful & holding.keys())
        return silence


def held_by(read: Snapshot) -> dict[str, Lease]:
    """Return the held leases of current attempts by holder."""
    current = {job.lease_key for job in read.jobs.values() if not job.terminal}
    return {
        lease.holder.instance_id: lease
        for lease in read.leases.values()
        if lease.key in current and lease.state is LeaseState.HELD and lease.holder
    }


def holders(leases: Iterable[Lease]) -> Iterator[str]:
    """Return who holds those of *leases* that are held."""
    return (
        lease.holder.instance_id
        for lease in leases
        if lease.state is LeaseState.HELD and lease.holder
    )


def waiting(instance_id: str, *, heard: bool) -> str:
    """Name the subject that counts sweeps in which a host was idle, or booting."""
    return f"{'idle' if heard else 'boot'} {instance_id}"


def looking(job: Job) -> str:
    """Name the subject that counts sweeps in which an attempt was waiting."""
    return f"commits {job.id}#{job.attempt}"
