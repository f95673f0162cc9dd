"""The sweep's look at jobs: are they as their leases say, and what can nobody tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError
from reprieve.domain.host import InstanceState
from reprieve.domain.job import Event, Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.settlement import Nothing, decide, stood_down
from reprieve.ports.rows import AddEvents, PutJob, Rows, Wanted
from reprieve.usecases.find_commits import FindCommits, may_have_more
from reprieve.usecases.settle import Settle, facts_of
from reprieve.usecases.sweep_view import Look, Piece, Swept, View, held_by, holders, looking

CANNOT_TELL = "cannot tell"
TOLD_FOR = 3  # sweeps in which a moment that has passed is written down
LOOKS = 2  # sweeps in which a waiting job's bucket is looked into


@dataclass(frozen=True, slots=True)
class SweepJobs:
    """Settle what isn't as its lease says; most jobs are, and cost nothing."""

    look: Look
    settle: Settle
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return the jobs to settle."""
        doubled = self._doubled(view, swept)
        pieces = []
        for job in view.jobs():
            lease = view.lease(job)
            if lease and lease.holder and lease.holder.instance_id in doubled:
                continue
            with swept.keeping():
                if self._unsettled(job, lease, view):
                    settle = partial(self._settle, job, lease, view)
                    pieces.append(Piece(f"1 job {job.id}", settle))
        return pieces

    def _unsettled(self, job: Job, lease: Lease | None, view: View) -> bool:
        facts = facts_of(view.read, job.id)
        if facts is None or lease is None:
            return True
        word = InstanceState.GONE if _gone(lease, view) else InstanceState.UNKNOWN
        known = replace(facts, instance=word, silent=_silent(lease, view))
        decision = decide(known, now=self.now(), clock=self.clock, token="")
        return not isinstance(decision, Nothing) or decision.anomaly

    def _settle(self, job: Job, lease: Lease | None, view: View) -> None:
        self.settle(
            job.id,
            seen=view.read,
            gone_beat=lease.beat if lease and _gone(lease, view) else None,
            silent_beat=lease.beat if lease and _silent(lease, view) else None,
        )

    def _doubled(self, view: View, swept: Swept) -> frozenset[str]:
        """Return holders of two leases: of those nothing is believed, and it is told."""
        suspects = _twice(view.read.leases.values())
        if not suspects:
            return frozenset()
        # Rows are read one after the other: it may have given one up and taken the next.
        named = frozenset(
            lease.key
            for lease in view.read.leases.values()
            if lease.holder and lease.holder.instance_id in suspects
        )
        doubled = _twice(self.look.again(Wanted(leases=named), swept).leases.values())
        swept.anomalies += sorted(doubled)
        return doubled


@dataclass(frozen=True, slots=True)
class TellDoubts:
    """Say of each job whose host isn't heard that nobody can tell, and since when."""

    rows: Rows
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, view: View, swept: Swept) -> list[Piece]:  # noqa: ARG002 - a part's form
        """Return the jobs of which something else is to be said than stands in their rows."""
        pieces = []
        for job in view.jobs():
            lease = view.lease(job)
            if lease is None or lease.state is not LeaseState.HELD or lease.holder is None:
                continue
            doubt = self._doubt(lease.holder.instance_id, view)
            said = job.reason if job.reason.startswith(CANNOT_TELL) else ""
            if doubt.split(":")[0] != said.split(":")[0]:
                told = partial(self._tell, job, lease.holder.instance_id, doubt)
                pieces.append(Piece(f"5 doubt {job.id}", told))
        return pieces

    def _doubt(self, instance_id: str, view: View) -> str:
        """Return what is said of a job on that host; nothing if it is heard, or given up."""
        silent = (view.sights.count(instance_id) - 1) * self.clock.sweep
        since = f"{instance_id} not heard since {view.at - silent:%H:%M:%S} UTC"
        if instance_id in view.silence.doubtful:
            return f"{CANNOT_TELL} together: {since}, and half of the pool with it"
        if instance_id in view.silence.unheard:
            state = view.states.get(instance_id, InstanceState.UNKNOWN)
            return f"{CANNOT_TELL}: {since}, EC2 says {state}"
        return ""

    def _tell(self, job: Job, instance_id: str, doubt: str) -> None:
        text = doubt or f"{instance_id} is heard again"
        event = Event(self.now(), "silence" if doubt else "heard", text, job.attempt)
        said = replace(job, reason=doubt or str(job.status).lower())
        try:
            self.rows.commit([PutJob(said), AddEvents(job.id, (event,))])
        except StaleError:
            return  # it moved on, and says why itself


@dataclass(frozen=True, slots=True)
class TellStandDowns:
    """Say of each job whose host was advised to go, and didn't, that the advice is over."""

    rows: Rows
    clock: NoticeClock

    def __call__(self, view: View, swept: Swept) -> list[Piece]:  # noqa: ARG002 - a part's form
        """Return the lines; each has its own moment, so a second writing changes nothing."""
        pieces = []
        for instance_id, lease in held_by(view.read).items():
            host = view.read.hosts.get(instance_id)
            event = stood_down(host, lease.key.attempt, clock=self.clock) if host else None
            if event and timedelta() <= view.at - event.at < TOLD_FOR * self.clock.sweep:
                told = partial(self.rows.commit, [AddEvents(lease.key.job, (event,))])
                pieces.append(Piece(f"5 stood down {lease.key.job}", told))
        return pieces


@dataclass(frozen=True, slots=True)
class SweepCommits:
    """Look into the bucket for each job that has just begun to wait."""

    find_commits: FindCommits

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return the looks."""
        pieces = []
        for job in view.jobs():
            lease = view.lease(job)
            if lease and may_have_more(job, lease) and view.sights.count(looking(job)) <= LOOKS:
                find = partial(self._find, job, lease, swept)
                pieces.append(Piece(f"6 commits {job.id}", find))
        return pieces

    def _find(self, job: Job, lease: Lease, swept: Swept) -> None:
        try:
            if self.find_commits(job, lease):
                swept.found.append(job.id)
        except StaleError:
            return  # claimed, or cancelled: its host asks the bucket itself


def _gone(lease: Lease, view: View) -> bool:
    held = lease.state is LeaseState.HELD and lease.holder is not None
    return held and lease.holder is not None and view.gone(lease.holder.instance_id)


def _silent(lease: Lease, view: View) -> bool:
    if lease.state is not LeaseState.HELD or lease.holder is None:
        return False
    return lease.holder.instance_id in view.silence.proven


def _twice(leases: Iterable[Lease]) -> frozenset[str]:
    names = list(holders(leases))
    return frozenset(name for name in names if names.count(name) > 1)
