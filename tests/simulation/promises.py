"""
The promises of the design, one section each, as checks on what the world shows.

1. No job is lost.                        5. No restart without evidence.
2. One lineage.                           6. Nothing leaks.
3. Only a verified checkpoint counts.     7. Every loss is explained.
4. Any one of three detectors suffices.

The eighth, least privilege, can't break here: a simulated host has no port but its leases'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprieve.domain.checkpoint import own_manifests, step_of
from reprieve.domain.host import HostState, Instance, InstanceState, Market
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import LeaseKey, LeaseState
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import Member

if TYPE_CHECKING:
    from tests.simulation.host import Agent
    from tests.simulation.world import World

RENEWAL = 15.0  # seconds
SWEEP = 60.0
LEASE_AND_SWEEP = 120.0
SILENCE = 240.0  # six sweeps, one of which may have been doubled
DETECTION = 420.0  # as long as silence takes, the slowest of the detectors
RESTORE = 60.0  # a checkpoint that goes bad while it is restored is used once more
FROM_NOTHING = "resumes from the start"
ENDED = "ended"  # the timeline's word for the end of an attempt


class BrokenPromiseError(BaseException):
    """
    A promise of the design doesn't hold.

    No use case may take it for trouble of its own: the sweep keeps every ``Exception``.
    """


@dataclass(slots=True)
class Start:
    """A job's process that was started, and from which manifest."""

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
    beyond: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    unheard: dict[LeaseKey, float] = field(default_factory=dict)
    charged: set[tuple[str, int]] = field(default_factory=set)
    bought: dict[str, int] = field(default_factory=dict)
    planned: dict[Member, str] = field(default_factory=dict)
    looked_at: float = 0.0

    # Whatever happens: these are asked at each event ------------------------------------------

    def look(self) -> None:
        """Look at what runs now."""
        world, now = self.world, self.world.now_s
        elapsed, self.looked_at = now - self.looked_at, now
        if not world.running:
            self.together.clear()
            return
        running: dict[str, list[LeaseKey]] = {}
        for agent in (world.agents[i] for i in world.running):
            if agent.run is not None and not agent.frozen:
                running.setdefault(agent.run.key.job, []).append(agent.run.key)
        for job in [job for job in self.together if job not in running]:
            del self.together[job]
        told = now >= world.deaf_until  # a host that can't reach the table can't be told
        for job, keys in running.items():
            self._never_two_runs(job, keys, elapsed if told else 0.0, told=told)
            self._over_means_stopped(job, keys, elapsed if told else 0.0, told=told)

    def swept(self) -> None:
        """Look at the rows after a sweep."""
        self._any_detector_suffices()

    def unmet(self) -> list[str]:
        """Return what isn't as it must be once all is quiet; empty when everything is."""
        return [*self._no_job_is_lost(), *self._nothing_leaks(), *self._every_loss_is_explained()]

    # 1. No job is lost -------------------------------------------------------------------------

    def _no_job_is_lost(self) -> list[str]:
        """Return the jobs that neither ended nor wait visibly, or ended as they shouldn't."""
        return [wrong for job in self.world.memory.job_rows.values() if (wrong := self._lost(job))]

    def _lost(self, job: Job) -> str | None:
        world = self.world
        waits = job.status is JobStatus.PARKED and job.needs_you and job.reason
        match job.status:
            case JobStatus.SUCCEEDED if job.id not in world.done:
                return f"job {job.id} succeeded and never finished"
            case JobStatus.FAILED if world.crashes[job.id] <= job.spec.max_restarts:
                return f"job {job.id} failed by no fault of its own: {job.reason}"
            case JobStatus.CANCELLED if job.id not in world.cancelled:
                return f"job {job.id} was cancelled by nobody"
            case JobStatus.SUCCEEDED | JobStatus.FAILED | JobStatus.CANCELLED:
                return None
        if not waits:
            return f"job {job.id} is lost: {job.status} ({job.reason})"
        if not world.bad and not job.reason.endswith("without a new checkpoint"):
            return f"job {job.id} waits for you without need: {job.reason}"
        return None

    def stored(self, job: Job, was: Job | None) -> None:
        """Hold that what is over stays over, and an attempt is charged at most once."""
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
        if job.checkpoint and job.attempt > was.attempt and FROM_NOTHING in job.reason:
            self._broken("told that it begins anew, though it has a checkpoint", job.id)
        if job.checkpoint and job.checkpoint != was.checkpoint:
            self._pointed(job.id, job.checkpoint.manifest)

    # 2. One lineage ----------------------------------------------------------------------------

    def started(self, start: Start) -> None:
        """Hold that no finished job runs again, and a resume comes only from the sealed lineage."""
        job = start.key.job
        if job in self.finished:
            self._broken("a finished job ran again", start)
        before = [s for s in self.starts[job] if s.key.attempt < start.key.attempt]
        self.starts[job].append(start)
        previous = max(before, key=lambda s: s.key.attempt, default=None)
        if previous is None:
            if start.base is not None:
                self._broken("the first start resumed from something", start)
            return
        if not self._in_lineage(start.base, previous):
            self._broken(f"resumed outside the lineage of attempt {previous.key.attempt}", start)
        self._newest_verified(start, previous)

    def _in_lineage(self, base: str | None, previous: Start) -> bool:
        place = step_of(base) if base else None
        if place and place[0] == previous.key.attempt:
            return True
        return base in self.world.ancestry(previous.base)

    def _pointed(self, job: str, manifest: str) -> None:
        """Hold that a job points only into the lineage of its last attempt that sealed."""
        rows = self.world.memory.lease_rows.values()
        sealed = [row for row in rows if row.key.job == job and row.sealed]
        last = max(sealed, key=lambda row: row.key.attempt, default=None)
        if last is None:
            self._broken("points at a checkpoint that no attempt can have made", (job, manifest))
            return
        place = step_of(manifest)
        own = place is not None and place[0] == last.key.attempt
        if not own and manifest not in self.world.ancestry(last.base):
            self._broken("points outside its lineage", (job, manifest))

    def _never_two_runs(
        self, job: str, keys: list[LeaseKey], elapsed: float, *, told: bool
    ) -> None:
        """Hold that a late host is refused and stops; a late start lasts at most one renewal."""
        self.together[job] = self.together[job] + elapsed if len(keys) > 1 and told else 0.0
        if self.together[job] > RENEWAL + 5:
            self._broken("two runs at once", keys)

    def _over_means_stopped(
        self, job: str, keys: list[LeaseKey], elapsed: float, *, told: bool
    ) -> None:
        """Hold that what is over runs nowhere, a lease and a sweep later."""
        row = self.world.memory.job_rows[job]
        if not row.terminal:
            return
        self.beyond[job] = self.beyond[job] + elapsed if told else 0.0
        if self.beyond[job] > LEASE_AND_SWEEP:
            self._broken(f"{row.status} but running", keys)

    # 3. Only a verified checkpoint counts ------------------------------------------------------

    def _newest_verified(self, start: Start, previous: Start) -> None:
        """Hold that resume picks the newest good manifest; a bad one is passed over."""
        bad, now = self.world.bad, self.world.now_s
        if start.base in bad and now - bad[start.base] > RESTORE:
            self._broken("resumed from a bad checkpoint", start)
        committed = own_manifests(self.world.manifests, previous.key.attempt)
        mine = [key for key in committed if key.startswith(f"jobs/{start.key.job}/")]
        row = self.world.memory.lease_rows[previous.key]
        known = [key for key in mine if key not in bad and self._told(key, row.committed_step)]
        durable = max((self.world.manifests[key].step for key in known), default=None)
        if durable is None:
            good = previous.base not in bad
            durable = previous.step if good else 0
        if start.step < durable:
            self._broken(f"resumed at {start.step}, though {durable} was committed", start)

    def _told(self, key: str, committed: int | None) -> bool:
        """Whether the lease tells of that commit: a later one may come from a late host."""
        place = step_of(key)
        return place is not None and committed is not None and place[1] <= committed

    def collected(self, keys: Sequence[str]) -> None:
        """Hold that nothing is deleted that an attempt may still begin from."""
        going = {key for key in keys if step_of(key)}
        for row in self.world.memory.lease_rows.values():
            mine = {key for key in going if key.startswith(f"jobs/{row.key.job}/")}
            if not mine or row.state in {LeaseState.DONE, LeaseState.CLOSED}:
                continue
            if not row.sealed:
                self._broken("collected before the attempt was sealed", sorted(mine))
            if mine & {row.base, row.committed_manifest}:
                self._broken("collected what the job would begin from", sorted(mine))

    # 4. Any one of three detectors suffices ----------------------------------------------------

    def _any_detector_suffices(self) -> None:
        """Hold that a loss is found by whichever of metadata, event and sweep still works."""
        world, now = self.world, self.world.now_s
        held = {
            row.key: world.agents.get(row.holder.instance_id)
            for row in world.memory.lease_rows.values()
            if row.state is LeaseState.HELD and row.holder
        }
        for key, agent in held.items():
            if agent is None or agent.gone_at is None:
                continue
            since = max(agent.gone_at, world.hindered_until)
            if now - since > DETECTION:
                self._broken("a loss that nobody found", (key, agent.instance_id))

    def reclaimed(self, agent: Agent) -> None:
        """Hold that a reclaim was noticed, if only by the sweep, which reads Spot requests."""
        world = self.world
        row = world.memory.host_rows.get(agent.instance_id)
        if row is None or agent.reclaimed_at is None or row.state is not HostState.READY:
            return
        if row.capacity.market is not Market.SPOT:
            return  # fate takes any host; no Spot request could have told of this one
        # The first sweep may have to adopt the host, and asks about it only the next time.
        if world.swept_at - SWEEP > agent.reclaimed_at:
            self._broken("a reclaim that nobody noticed", agent.instance_id)

    # 5. No restart without evidence ------------------------------------------------------------

    def ended(self, key: LeaseKey, instance_id: str | None) -> None:
        """Hold that a live lease vetoes recovery; people may always end one."""
        world = self.world
        agent = world.agents.get(instance_id or "")
        if agent is None or world.person_at_work or not agent.alive or self._drained(agent):
            return
        state = world.memory.fleet.instances[agent.instance_id].state
        if state is not InstanceState.ALIVE or agent.spoke_at is None:
            return
        if world.now_s - agent.spoke_at < SILENCE:
            self._broken("a live lease was ended without evidence", key)

    def terminating(self, instance_id: str) -> None:
        """Hold that no host is terminated while it holds a lease."""
        for row in self.world.memory.lease_rows.values():
            if (
                row.state is LeaseState.HELD
                and row.holder
                and row.holder.instance_id == instance_id
            ):
                self._broken("a host was terminated with its job", row.key)

    def _drained(self, agent: Agent) -> bool:
        """Whether a person wanted the host emptied: that is evidence, too."""
        row = self.world.memory.host_rows.get(agent.instance_id)
        notice = row.notice if row else None
        return notice is not None and notice.kind is NoticeKind.DRAIN

    # 6. Nothing leaks --------------------------------------------------------------------------

    def launched(self, instance: Instance) -> None:
        """Hold that one try of one order is in one plan, and buys one instance."""
        tag = instance.tags["reprieve:order"]
        plans = [plan for plan in self.world.memory.fleet.launched if plan.tag == tag]
        self.bought[tag] = self.bought.get(tag, 0) + 1
        if self.bought[tag] > len(plans[0].members):
            self._broken("a second instance was bought for one try", tag)
        for member in plans[-1].members:
            token = plans[-1].client_token
            if self.planned.setdefault(member, token) != token:
                self._broken("a second instance was bought for one try", member)

    def _nothing_leaks(self) -> list[str]:
        """Return what wasn't adopted, used or terminated, and idle hosts that haven't left."""
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

    # 7. Every loss is explained ----------------------------------------------------------------

    def _every_loss_is_explained(self) -> list[str]:
        """Return the attempts of which the timeline doesn't say how they ended, and why."""
        memory = self.world.memory
        found = []
        for job in memory.job_rows.values():
            told = {
                event.attempt
                for event in memory.event_rows.get(job.id, {}).values()
                if event.kind == ENDED and event.text
            }
            last = job.attempt if job.status in {JobStatus.SUCCEEDED, JobStatus.FAILED} else 0
            silent = {*range(1, job.attempt), last} - {0} - told
            found += [f"attempt {n} of {job.id} ended without a word" for n in sorted(silent)]
        return found

    def _broken(self, promise: str, about: object) -> None:
        raise BrokenPromiseError(f"{promise}: {about}")
