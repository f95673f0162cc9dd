"""Where use cases meet ports: the one place that knows which needs which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from reprieve.domain.capacity import Pool
from reprieve.domain.clock import NoticeClock
from reprieve.domain.retention import Retention
from reprieve.domain.settlement import Decision
from reprieve.ports.cloud import Fleet, Mail, Signals
from reprieve.ports.hosts import HostStore, Watch
from reprieve.ports.jobs import JobStore
from reprieve.ports.manifests import Manifests
from reprieve.ports.orders import OrderStore
from reprieve.ports.rows import Rows
from reprieve.ports.stored import Stored
from reprieve.usecases.adopt_strays import AdoptStrays
from reprieve.usecases.census import TakeCensus
from reprieve.usecases.collect_checkpoints import CollectCheckpoints, SweepCheckpoints
from reprieve.usecases.end_reservation import EndReservation
from reprieve.usecases.find_commits import FindCommits
from reprieve.usecases.handle_notice import HandleNotice
from reprieve.usecases.known_pool import Means
from reprieve.usecases.reconcile import Reconcile
from reprieve.usecases.record_report import RecordReport
from reprieve.usecases.replace_host import ReplaceHost
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle, new_token
from reprieve.usecases.submit import Cancel, Submit
from reprieve.usecases.sweep_deadlines import SweepDeadlines
from reprieve.usecases.sweep_hosts import SweepHosts
from reprieve.usecases.sweep_jobs import SweepCommits, SweepJobs, TellDoubts, TellStandDowns
from reprieve.usecases.sweep_orders import SweepOrders
from reprieve.usecases.sweep_view import Look, Part


def utc_now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside world, real or in memory."""

    rows: Rows
    jobs: JobStore
    hosts: HostStore
    orders: OrderStore
    watch: Watch
    fleet: Fleet
    signals: Signals
    mail: Mail
    manifests: Manifests | None = None
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the template decided: the stack's name, its pools, its zones and its clock."""

    stack: str
    pools: Mapping[str, Pool]
    subnets: Mapping[str, str]
    clock: NoticeClock
    retention: Retention = Retention()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True, slots=True)
class UseCases:
    """Everything Reprieve does, over one set of ports."""

    ports: Ports
    deployment: Deployment
    now: Callable[[], datetime] = utc_now
    told: Callable[[Decision], None] = lambda _: None

    @property
    def retire(self) -> Retire:
        """Terminate a host in two steps."""
        return Retire(self.ports.jobs, self.ports.hosts, self.ports.fleet)

    @property
    def settle(self) -> Settle:
        """Bring a job in line with its lease."""
        ports = self.ports
        return Settle(
            rows=ports.rows,
            fleet=ports.fleet,
            mail=ports.mail,
            retire=self.retire,
            clock=self.deployment.clock,
            now=self.now,
            told=self.told,
        )

    @property
    def census(self) -> TakeCensus:
        """Count a pool."""
        return TakeCensus(self.ports.rows, self.ports.orders)

    @property
    def handle_notice(self) -> HandleNotice:
        """Act on what EC2 announced."""
        ports = self.ports
        return HandleNotice(
            pools=self.deployment.pools,
            rows=ports.rows,
            fleet=ports.fleet,
            signals=ports.signals,
            mail=ports.mail,
            clock=self.deployment.clock,
            now=self.now,
            token=new_token,
            told=self.told,
        )

    @property
    def end_reservation(self) -> EndReservation:
        """Drain what is in a reservation that ends."""
        return EndReservation(self.ports.fleet, self.handle_notice)

    @property
    def record_report(self) -> RecordReport:
        """Take a host's report."""
        return RecordReport(
            rows=self.ports.rows,
            hosts=self.ports.hosts,
            settle=self.settle,
            handle_notice=self.handle_notice,
        )

    @property
    def replace_host(self) -> ReplaceHost:
        """Fill an order."""
        ports, deployment = self.ports, self.deployment
        means = Means(
            stack=deployment.stack,
            subnets=deployment.subnets,
            rows=ports.rows,
            orders=ports.orders,
            fleet=ports.fleet,
            settle=self.settle,
            retire=self.retire,
            clock=deployment.clock,
            now=self.now,
        )
        return ReplaceHost(means, deployment.pools)

    @property
    def adopt_strays(self) -> AdoptStrays:
        """Give every instance of ours a row."""
        return AdoptStrays(
            pools=self.deployment.pools,
            hosts=self.ports.hosts,
            fleet=self.ports.fleet,
            census=self.census,
            retire=self.retire,
            clock=self.deployment.clock,
            now=self.now,
        )

    @property
    def reconcile(self) -> Reconcile:
        """Sweep."""
        ports, clock = self.ports, self.deployment.clock
        look = Look(ports.rows, ports.jobs, ports.watch, ports.fleet, clock, self.now)
        parts: list[Part] = [
            SweepJobs(look, self.settle, clock, self.now),
            SweepOrders(ports.rows, ports.mail, clock, self.now),
            SweepHosts(ports.rows, self.settle, self.retire, clock),
            SweepDeadlines(ports.rows, ports.mail, self.handle_notice, clock, self.now),
            TellDoubts(ports.rows, clock, self.now),
            TellStandDowns(ports.rows, clock),
        ]
        if ports.manifests:
            find = FindCommits(ports.rows, ports.jobs, ports.manifests, self.now)
            parts.append(SweepCommits(find))
        if ports.stored:
            collect = CollectCheckpoints(
                ports.rows,
                ports.stored,
                self.deployment.retention,
                grace=2 * clock.notice,
                now=self.now,
            )
            parts.append(SweepCheckpoints(collect, clock))
        return Reconcile(
            pools=self.deployment.pools,
            look=look,
            adopt_strays=self.adopt_strays,
            handle_notice=self.handle_notice,
            parts=parts,
            watch=ports.watch,
            fleet=ports.fleet,
            clock=clock,
            now=self.now,
        )

    @property
    def submit(self) -> Submit:
        """Take a job."""
        return Submit(self.ports.rows, self.ports.mail, self.now)

    @property
    def cancel(self) -> Cancel:
        """Close a job."""
        return Cancel(self.ports.rows, self.now)
