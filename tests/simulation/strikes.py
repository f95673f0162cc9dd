"""How each fault that strikes at a moment is done to the world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from reprieve.domain.host import CapacityPool, Market
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import FleetAnswer, FleetError
from reprieve.ports.rows import Wanted
from tests.simulation.faults import Ended, Fault, Kind
from tests.simulation.promises import BrokenPromiseError

if TYPE_CHECKING:
    from tests.simulation.host import Agent
    from tests.simulation.world import World

TYPES = ("g5.xlarge", "g6.xlarge")
ZONES = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
LONGEST_LAG = 70.0  # of an index behind its table
SPOKEN = 15.0  # after an outage, until every host was heard once
CANCELLED_IN_THE_END = 30  # so often a person tries
# Of these the functions suffer: what they find, they find later.
HINDERING = frozenset(
    {Kind.OUTAGE, Kind.BLIND, Kind.NO_SWEEP, Kind.THROTTLE, Kind.UNREAD, Kind.LAG, Kind.BAD_MAIL}
)
REFUSALS = (
    "RequestLimitExceeded",
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "InternalError",
    "InsufficientInstanceCapacity",
)
RECLAIMED_BY = {
    Kind.RECLAIM: (Channel.EVENT, Channel.METADATA),
    Kind.RECLAIM_EVENT: (Channel.EVENT,),
    Kind.RECLAIM_METADATA: (Channel.METADATA,),
    Kind.RECLAIM_UNTOLD: (),
}


@dataclass(frozen=True, slots=True)
class Strikes:
    """The hand of fate."""

    world: World

    def __call__(self, fault: Fault) -> None:
        """Do it, to the host and the job that it picks."""
        world = self.world
        alive = [a for a in world.agents.values() if a.alive]
        agent = alive[int(fault.pick * len(alive))] if alive else None
        jobs = sorted(world.works)
        job = jobs[int(fault.pick * len(jobs))] if jobs else None
        world.say(f"FAULT {fault} {agent.instance_id if agent else ''} {job or ''}")
        if fault.kind in HINDERING:
            world.hindered_until = max(world.hindered_until, world.now_s + fault.amount)
        self._table(fault)
        self._market(fault)
        if job:
            self.job(fault.kind, job)
        if agent:
            self._notices(fault, agent)
            self._machine(fault, agent)

    # What all share ---------------------------------------------------------------------------

    def _table(self, fault: Fault) -> None:
        world = self.world
        until = world.now_s + fault.amount
        match fault.kind:
            case Kind.OUTAGE:
                world.outage_until = max(world.outage_until, until)
                world.deaf_until = max(world.deaf_until, until + SPOKEN)
            case Kind.THROTTLE:
                world.throttled_until = max(world.throttled_until, until)
            case Kind.LAG:
                world.lag_until = max(world.lag_until, min(until, world.now_s + LONGEST_LAG))
            case Kind.UNREAD:
                self._leave_unread(fault)
            case Kind.BAD_MAIL:
                world.mail_bad_until = max(world.mail_bad_until, until)
            case Kind.NO_SWEEP:
                world.no_sweep_until = max(world.no_sweep_until, until)
            case Kind.EXTRA_SWEEP:
                world.sweep()
            case _:
                pass

    def _leave_unread(self, fault: Fault) -> None:
        """Let reads come back without the rows of one kind, as batches that are too large do."""
        memory = self.world.memory
        kinds = (
            Wanted(jobs=frozenset(memory.job_rows)),
            Wanted(leases=frozenset(memory.lease_rows)),
            Wanted(hosts=frozenset(memory.host_rows), holds=frozenset(memory.holds_rows)),
            Wanted(orders=frozenset(memory.order_rows)),
        )
        memory.rows.left = kinds[int(fault.pick * len(kinds))]

        def read() -> None:
            memory.rows.left = Wanted()

        self.world.later(fault.amount, read)

    def _market(self, fault: Fault) -> None:
        fleet, later = self.world.fleet, self.world.later
        match fault.kind:
            case Kind.BLIND:
                fleet.blind = True
                later(fault.amount, self._see)
            case Kind.DRY | Kind.DRY_ALL:
                markets = [Market.SPOT] if fault.kind is Kind.DRY else list(Market)
                dry = {CapacityPool(t, z, m) for t in TYPES for z in ZONES for m in markets}
                fleet.empty |= dry
                later(fault.amount, lambda: fleet.empty.difference_update(dry))
            case Kind.FLEET_ERROR:
                code = REFUSALS[int(fault.pick * len(REFUSALS))]
                fleet.script.append(FleetAnswer(errors=(FleetError(code),)))
            case Kind.PARTIAL:
                fleet.short += 1
            case _:
                pass

    def _see(self) -> None:
        self.world.fleet.blind = False

    # A job ------------------------------------------------------------------------------------

    def job(self, kind: Kind, job: str) -> None:
        """Do it to a job."""
        world = self.world
        match kind:
            case Kind.CANCEL:
                self._cancel(job, 1)
            case Kind.REQUEUE:
                settle = world.uses.settle
                world.invoke("requeue", lambda: settle(job, requeued=True))
            case Kind.BAD_CHECKPOINT:
                keys = [key for key in world.manifests if key.startswith(f"jobs/{job}/")]
                if keys:
                    world.bad.setdefault(max(keys), world.now_s)
            case Kind.TORN:
                world.torn.add(job)
            case Kind.CRASH:
                for agent in world.agents.values():
                    agent.crash_job(job)
            case _:
                pass

    def _cancel(self, job: str, tries: int) -> None:
        world = self.world
        world.cancelled.add(job)
        if world.invoke("cancel", lambda: world.uses.cancel(job)) is Ended.WELL:
            return
        if tries > CANCELLED_IN_THE_END:
            raise BrokenPromiseError(f"job {job} can't be cancelled")
        world.later(60, lambda: self._cancel(job, tries + 1))

    # A host -----------------------------------------------------------------------------------

    def _notices(self, fault: Fault, agent: Agent) -> None:
        world, now = self.world, self.world.now()
        match fault.kind:
            case Kind.RECLAIM | Kind.RECLAIM_EVENT | Kind.RECLAIM_METADATA | Kind.RECLAIM_UNTOLD:
                world.reclaim(agent, *RECLAIMED_BY[fault.kind])
            case Kind.ADVISE:
                self._say(Notice(NoticeKind.REBALANCE, agent.instance_id, now, Channel.EVENT))
            case Kind.FALSE_NOTICE:
                self._say(_of(NoticeKind.INTERRUPTION, agent, world, seconds=120))
            case Kind.MAINTENANCE:
                ahead = fault.amount + 100
                self._say(_of(NoticeKind.MAINTENANCE, agent, world, seconds=ahead))
            case Kind.DRAIN:
                drain = _of(NoticeKind.DRAIN, agent, world, seconds=fault.amount)
                world.event(replace(drain, channel=Channel.OPERATOR))
            case Kind.BELL:
                world.event(Notice(NoticeKind.STATE_CHANGE, agent.instance_id, now, Channel.EVENT))
            case _:
                pass

    def _say(self, notice: Notice) -> None:
        """Announce it by event and in the host's metadata."""
        self.world.event(notice)
        agent = self.world.agents[notice.instance_id]
        agent.notice(replace(notice, channel=Channel.METADATA))

    def _machine(self, fault: Fault, agent: Agent) -> None:
        world = self.world
        match fault.kind:
            case Kind.STOP:
                agent.stop()
            case Kind.DIE:
                world.die(agent, told=True)
            case Kind.DIE_UNTOLD if fault.pick * 7 % 1 < 0.5:
                agent.die()  # a broken machine that EC2 still calls running
            case Kind.DIE_UNTOLD:
                world.die(agent, told=False)
            case Kind.FREEZE:
                agent.freeze(fault.amount)
            case Kind.REBOOT:
                agent.reboot()
            case Kind.AGENT_DIES:
                agent.restart_agent()
            case Kind.CUT:
                agent.cut_until = max(agent.cut_until, world.now_s + fault.amount)
                world.deaf_until = max(world.deaf_until, agent.cut_until + SPOKEN)
            case _:
                pass


def _of(kind: NoticeKind, agent: Agent, world: World, *, seconds: float) -> Notice:
    ends = world.now() + timedelta(seconds=seconds)
    return Notice(kind, agent.instance_id, world.now(), Channel.EVENT, ends)
