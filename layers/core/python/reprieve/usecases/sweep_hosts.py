"""The sweep's look at hosts: those that are gone, and those that must go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError
from reprieve.domain.host import Host, HostState, Market
from reprieve.domain.notice import Notice, NoticeKind
from reprieve.domain.planning import lived
from reprieve.ports.rows import PutHost, Remember, Rows, Write
from reprieve.usecases.adopt_strays import ADOPTED
from reprieve.usecases.retire import Retire
from reprieve.usecases.settle import Settle
from reprieve.usecases.sweep_view import Piece, Swept, View, waiting

NEVER_READY = "its agent never became ready"
DRAINED = "drained by an operator"


@dataclass(frozen=True, slots=True)
class SweepHosts:
    """Nothing leaks: who is gone is marked, who should have left is told to go."""

    rows: Rows
    settle: Settle
    retire: Retire
    clock: NoticeClock

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return the hosts to write, and those to retire in one go."""
        reasons: dict[str, str] = {}
        pieces = []
        surplus = self._surplus(view)
        for host in view.known_hosts():
            name = f"3 host {host.instance_id}"
            if view.gone(host.instance_id):
                pieces.append(Piece(name, partial(self._mark_gone, host, view)))
            elif self._overdue(host, view):
                pieces.append(Piece(name, partial(self._empty, host, view, swept)))
            elif why := self._why_retire(host, view):
                reasons[host.instance_id] = why
            elif surplus > 0 and self._idle_too_long(host, view):
                reasons[host.instance_id] = "idle for too long, and it didn't leave"
                surplus -= 1
        if reasons:
            pieces.append(Piece("4 retire", partial(self._retire, reasons, swept)))
        return pieces

    def _surplus(self, view: View) -> int:
        return -view.census().deficit(now=view.at, clock=self.clock) - view.pool.buffer

    def _mark_gone(self, host: Host, view: View) -> None:
        """Write that it is gone, together with what its life says of its capacity pool."""
        gone = host.advanced(HostState.GONE, reason="EC2 says it is gone")
        writes: list[Write] = [PutHost(gone)]
        if host.capacity.market is Market.SPOT:
            writes.append(Remember(host.pool, host.capacity, lived(host, view.at)))
        try:
            self.rows.commit(writes)
        except StaleError:
            return  # somebody wrote it since; the next sweep looks again

    def _retire(self, reasons: Mapping[str, str], swept: Swept) -> None:
        told = self.retire.all(reasons)
        swept.retired |= {i: why for i, why in reasons.items() if i in told}

    def _why_retire(self, host: Host, view: View) -> str | None:
        if host.state is HostState.RETIRING:
            return host.reason
        if host.instance_id in view.busy():
            return None
        holds = view.read.holds.get(host.instance_id)
        if not holds or holds.beat == 0:
            return NEVER_READY if self._boot_is_over(host, view) else None
        if host.instance_id in view.silence.proven:
            return "its agent fell silent while idle"
        if host.state is HostState.DRAINING and host.notice:
            return self._why_leave(host.notice, view)
        return None

    def _why_leave(self, notice: Notice, view: View) -> str | None:
        """Return why a drained host without a job must go."""
        if notice.kind is NoticeKind.DRAIN:
            return DRAINED
        due = notice.reclaimed_at or notice.noticed_at + self.clock.notice
        late = view.at > due + 2 * self.clock.overstay
        return "EC2 didn't take it back" if late else None

    def _boot_is_over(self, host: Host, view: View) -> bool:
        """Whether an agent that wasn't heard is late; one that was adopted began just now."""
        if view.at - host.launched_at <= self.clock.boot:
            return False
        waited = view.sights.count(waiting(host.instance_id, heard=False))
        return host.reason != ADOPTED or waited * self.clock.sweep > self.clock.boot

    def _idle_too_long(self, host: Host, view: View) -> bool:
        """Whether it should have left by itself for a whole idle time."""
        if host.state is not HostState.READY:
            return False
        waited = view.sights.count(waiting(host.instance_id, heard=True))
        return waited * self.clock.sweep > 2 * self.clock.idle

    def _overdue(self, host: Host, view: View) -> bool:
        """Whether an operator's deadline has passed, and the time to leave after it."""
        notice = host.notice
        if host.state is not HostState.DRAINING or notice is None:
            return False
        if notice.kind is not NoticeKind.DRAIN or notice.reclaimed_at is None:
            return False
        return view.at > notice.reclaimed_at + self.clock.overstay

    def _empty(self, host: Host, view: View, swept: Swept) -> None:
        """Take its jobs off it: the operator's command is the evidence."""
        holds = view.read.holds.get(host.instance_id)
        for key in holds.leases if holds else ():
            job = view.read.jobs.get(key.job)
            if job and not job.terminal and job.lease_key == key:
                self.settle(job.id, requeued=True)
        self._retire({host.instance_id: DRAINED}, swept)
