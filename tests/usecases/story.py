"""A whole Reprieve in memory, told as a timeline: hosts are moved by hand, time by a hand too."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve.adapters.memory import Memory
from reprieve.domain.capacity import Pool, Tier
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, InstanceState
from reprieve.domain.job import Job
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, Outcome, Phase
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.ports.leases import Claim, Progress
from reprieve.protocol import Ticket
from reprieve.usecases.known_pool import Filled
from reprieve.usecases.wiring import Deployment, Ports, UseCases
from tests.builders import NOON, POOL, a_spec

CLOCK = NoticeClock()


def a_pool(**changes: object) -> Pool:
    """Return a pool of two types over two zones, spot first."""
    settings: dict[str, object] = {
        "name": POOL,
        "types": ("g5.xlarge", "g6.xlarge"),
        "tiers": (Tier.SPOT, Tier.ON_DEMAND),
        "launch_template": "lt-0aaaaaaaaaaaaaaaa",
        "launch_template_version": "1",
        "work_queue_url": "https://queue/work",
    }
    return Pool(**(settings | changes))  # type: ignore[arg-type]


@dataclass
class Story:
    """The cast: use cases over one memory, and the clock that the test moves."""

    pool: Pool = field(default_factory=a_pool)
    time: datetime = NOON

    def __post_init__(self) -> None:
        self.memory = Memory(self.now)
        memory = self.memory
        self.ports = Ports(
            rows=memory.rows,
            jobs=memory.jobs,
            hosts=memory.hosts,
            orders=memory.orders,
            watch=memory.watch,
            fleet=memory.fleet,
            signals=memory.signals,
            mail=memory.mail,
        )
        deployment = Deployment(
            stack="Reprieve",
            pools={self.pool.name: self.pool},
            subnets={"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"},
            clock=CLOCK,
        )
        self.uses = UseCases(self.ports, deployment, self.now)

    def now(self) -> datetime:
        return self.time

    def later(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def submit(self, **spec: object) -> str:
        return self.uses.submit(name="train", pool=self.pool.name, spec=a_spec(**spec)).id

    def job(self, job_id: str) -> Job:
        job = self.memory.jobs.read(job_id)
        assert job is not None
        return job

    def lease(self, job_id: str) -> Lease:
        lease = self.memory.jobs.lease(self.job(job_id).lease_key)
        assert lease is not None
        return lease

    def fill_orders(self) -> list[Filled]:
        """Work through the orders queue; what EC2 didn't answer stays on it."""
        filled, self.memory.mail.orders = list(self.memory.mail.orders), []
        results = []
        for message in filled:
            try:
                results.append(self.uses.replace_host(message.job, message.attempt))
            except UnknownOutcomeError:
                self.memory.mail.orders.append(message)
        return results

    def launch(self) -> Host:
        """Fill the orders, and let the one instance that comes become ready."""
        launched = [i for filled in self.fill_orders() for i in filled.launched]
        assert len(launched) == 1
        host = Host(self, launched[0].instance_id)
        host.idle()
        return host

    def take_ticket(self) -> Ticket:
        _, ticket = self.memory.mail.tickets.pop(0)
        return ticket

    def notice(
        self, host: Host, kind: NoticeKind = NoticeKind.INTERRUPTION, seconds: float = 120
    ) -> None:
        """Let EC2's event about *host* arrive."""
        reclaimed = self.time + timedelta(seconds=seconds)
        timed = kind in {NoticeKind.INTERRUPTION, NoticeKind.MAINTENANCE}
        notice = Notice(
            kind, host.instance_id, self.time, Channel.EVENT, reclaimed if timed else None
        )
        for handled in self.uses.handle_notice([notice]):
            if handled.failure:
                raise handled.failure

    def gone(self, host: Host) -> None:
        self.memory.fleet.set_state(host.instance_id, InstanceState.GONE)

    def sweep(self, times: int = 1) -> None:
        """Sweep, one period apart."""
        for _ in range(times):
            self.later(CLOCK.sweep.total_seconds())
            swept = self.uses.reconcile()
            assert not swept.failures


@dataclass
class Host:
    """A host's agent, moved by hand through the same port as the real one."""

    story: Story
    instance_id: str
    boot: str = "boot-1"
    key: LeaseKey | None = None

    @property
    def holder(self) -> Holder:
        return Holder(self.instance_id, self.boot)

    @property
    def capacity(self) -> CapacityPool:
        return self.story.memory.host_rows[self.instance_id].capacity

    def idle(self) -> None:
        self.story.memory.leases.idle(self.instance_id)

    def claim(self, ticket: Ticket | None = None) -> Claim:
        ticket = ticket or self.story.take_ticket()
        claim = self.story.memory.leases.claim(ticket.key, self.holder)
        if claim is Claim.WON:
            self.key = ticket.key
        return claim

    def run(self, *, base: str | None = None, restored: int | None = None) -> None:
        """Claim, seal and start."""
        assert self.claim() is Claim.WON
        assert self.key
        self.story.memory.leases.seal(self.key, self.holder, base)
        self.step(restored or 0, restored_step=restored)

    def step(self, step: int, **told: object) -> Lease:
        assert self.key
        progress = Progress(Phase.RUNNING, step=step, **told)  # type: ignore[arg-type]
        return self.story.memory.leases.renew(self.key, self.holder, progress)

    def commit(self, step: int) -> str:
        assert self.key
        manifest = f"jobs/{self.key.job}/manifests/{self.key.attempt:06d}-{step:012d}.json"
        self.step(step, committed_step=step, committed_manifest=manifest)
        return manifest

    def release(
        self,
        outcome: Outcome = Outcome.INTERRUPTED,
        cause: Cause = Cause.NOTICE,
        exit_code: int | None = 75,
    ) -> None:
        assert self.key
        self.story.memory.leases.release(
            self.key,
            self.holder,
            outcome=outcome,
            cause=cause,
            exit_code=exit_code,
            progress=Progress(Phase.RUNNING),
        )
