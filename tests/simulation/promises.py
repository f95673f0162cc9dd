"""The promises, as checks on what the world shows: while it runs, and once it is quiet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprieve.domain.checkpoint import step_of
from reprieve.domain.host import HostState, Instance, InstanceState
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import LeaseKey, LeaseState
from reprieve.domain.order import Member

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE_AND_SWEEP = 120.0  # seconds
SILENCE = 240.0  # seconds; six sweeps, one of which may have been doubled


class BrokenPromiseError(AssertionError):
    """A promise of the design doesn't hold."""


@dataclass(slots=True)
class Start:
    """A job's process that was started: from which manifest, and when it stopped running."""

    key: LeaseKey
    host: str
    base: str | None
    step: int


@dataclass(slots=True)
class Promises:
    """What was seen so far, and the sentences about it."""

    world: World
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    finished: set[str] = field(default_factory=set)
    together: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    charged: set[tuple[str, int]] = field(default_factory=set)
    beyond: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    bought: dict[str, int] = field(default_factory=dict)
    planned: dict[Member, str] = field(default_factory=dict)
    looked_at: float = 0.0

    # While it runs -----------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """No finished job runs again; a resume comes only from the sealed lineage."""
        job = start.key.job
        if job in self.finished:
            self._broken("a finished job ran again", start)
        before = self.starts[job]
        self.starts[job].append(start)
        previous = max(
            (s for s in before if s.key.attempt < start.key.attempt),
            key=lambda s: s.key.attempt,
            default=None,
        )
        if previous is None:
            if start.base is not None:
                self._broken("the first start resumed from something", start)
            return
        if not self._in_lineage(start.base, previous):
            self._broken(f"resumed outside the lineage of attempt {previous.key.attempt}", start)
        if self.world.bad:
            return  # then an earlier one of the lineage is right
        row = self.world.memory.lease_rows[previous.key]
        durable = row.committed_step or previous.step
        if start.step < durable:
            self._broken(f"resumed at {start.step}, though {durable} was committed", start)

    def _in_lineage(self, base: str | None, previous: Start) -> bool:
        place = step_of(base) if base else None
        if place and place[0] == previous.key.attempt:
            return True
        return base in self.world.ancestry(previous.base)

    def stored(self, job: Job, was: Job | None) -> None:
        """Check that an attempt is charged at most once, and that what is over stays over."""
        if was is None:
            return
        if was.terminal and job != was:
            self._broken("a job that was over changed", job.id)
        old, new = was.counters, job.counters
        charges = sum(
            max(0, getattr(new, name) - getattr(old, name)) for name in ("interruptions", "crashes")
        )
        attempt = (job.id, was.attempt)
        if charges > 1 or (charges and attempt in self.charged):
            self._broken("an attempt was charged more than once", attempt)
        if charges:
            self.charged.add(attempt)
        if job.status is JobStatus.SUCCEEDED:
            self.finished.add(job.id)
        if job.checkpoint and job.checkpoint != was.checkpoint:
            self._pointed(job.id, job.checkpoint.manifest)

    def _pointed(self, job: str, manifest: str) -> None:
        """Check that a job points only into the lineage of its last attempt that sealed."""
        rows = self.world.memory.lease_rows.values()
        sealed = [row for row in rows if row.key.job == job and row.sealed]
        last = max(sealed, key=lambda row: row.key.attempt)
        place = step_of(manifest)
        own = place is not None and place[0] == last.key.attempt
        if not own and manifest not in self.world.ancestry(last.base):
            self._broken("points outside its lineage", (job, manifest))

    def ended(self, key: LeaseKey, instance_id: str | None) -> None:
        """Check that no live lease is ended without evidence (people may always end one)."""
        world = self.world
        agent = world.agents.get(instance_id or "")
        if agent is None or world.person_at_work or not agent.alive:
            return
        state = world.memory.fleet.instances[agent.instance_id].state
        if state is not InstanceState.ALIVE or agent.spoke_at is None:
            return
        if world.now_s - agent.spoke_at < SILENCE:
            self._broken("a live lease was ended without evidence", key)

    def launched(self, instance: Instance) -> None:
        """One try of one order is in one plan, and buys one instance."""
        tag = instance.tags["reprieve:order"]
        plans = [plan for plan in self.world.memory.fleet.launched if plan.tag == tag]
        self.bought[tag] = self.bought.get(tag, 0) + 1
        if self.bought[tag] > len(plans[0].members):
            self._broken("a second instance was bought for one try", tag)
        for member in plans[-1].members:
            token = plans[-1].client_token
            if self.planned.setdefault(member, token) != token:
                self._broken("a second instance was bought for one try", member)

    def look(self) -> None:
        """Never two live runs for longer than one renewal; cancelled means stopped."""
        world, now = self.world, self.world.now_s
        elapsed, self.looked_at = now - self.looked_at, now
        running: dict[str, list[LeaseKey]] = {}
        for agent in world.agents.values():
            if agent.run is not None and not agent.run.over and not agent.frozen:
                running.setdefault(agent.run.key.job, []).append(agent.run.key)
        deaf = now < world.deaf_until  # a host that can't reach the table can't be told
        for job in [job for job in self.together if job not in running]:
            del self.together[job]
        for job, keys in running.items():
            if len(keys) < 2 or deaf:
                self.together[job] = 0.0
            else:
                self.together[job] += elapsed
            if self.together[job] > 20:
                self._broken("two runs at once", keys)
            row = world.memory.job_rows[job]
            if not row.terminal:
                continue
            self.beyond[job] = 0.0 if deaf else self.beyond[job] + elapsed
            if self.beyond[job] > LEASE_AND_SWEEP:
                self._broken(f"{row.status} but running", keys)

    # Once it is quiet ----------------------------------------------------------------------

    def unmet(self) -> list[str]:
        """Return what isn't as it must be in the end; empty when everything is."""
        return [*self._jobs(), *self._hosts()]

    def _jobs(self) -> list[str]:
        found = []
        for job in self.world.memory.job_rows.values():
            waits = job.status is JobStatus.PARKED and job.needs_you and job.reason
            if not (job.terminal or waits):
                found.append(f"job {job.id} is lost: {job.status} ({job.reason})")
            elif (
                job.status is JobStatus.FAILED
                and self.world.crashes[job.id] <= job.spec.max_restarts
            ):
                found.append(f"job {job.id} failed by no fault of its own: {job.reason}")
            elif (
                waits and not self.world.bad and not job.reason.endswith("without a new checkpoint")
            ):
                found.append(f"job {job.id} waits for you without need: {job.reason}")
            elif job.status is JobStatus.CANCELLED and job.id not in self.world.cancelled:
                found.append(f"job {job.id} was cancelled by nobody")
            elif job.status is JobStatus.SUCCEEDED and job.id not in self.world.done:
                found.append(f"job {job.id} succeeded and never finished")
        return found

    def _hosts(self) -> list[str]:
        memory = self.world.memory
        found = [
            f"instance {i.instance_id} leaks: {memory.host_rows.get(i.instance_id)}"
            for i in memory.fleet.instances.values()
            if i.state is InstanceState.ALIVE
        ]
        found += [
            f"host {row.instance_id} is {row.state} and its instance is gone"
            for row in memory.host_rows.values()
            if row.state is not HostState.GONE
        ]
        held = [r.key for r in memory.lease_rows.values() if r.state is LeaseState.HELD]
        return found + [f"lease {key} is still held" for key in held]

    def _broken(self, promise: str, about: object) -> None:
        raise BrokenPromiseError(f"{promise}: {about}")
