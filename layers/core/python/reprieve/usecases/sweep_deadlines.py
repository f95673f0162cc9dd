"""The sweep's look at jobs that pay for on-demand: back to Spot, once they have time again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from reprieve.domain.catalogue import holds
from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics.deadline import Move
from reprieve.domain.errors import StaleError
from reprieve.domain.host import Host, HostState, Market
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import Order, OrderState
from reprieve.domain.steering import Steer, while_on_demand
from reprieve.ports.cloud import Mail
from reprieve.ports.rows import AddEvents, PutOrder, Rows, Write
from reprieve.protocol import OrderMessage
from reprieve.usecases.effects import ordered
from reprieve.usecases.handle_notice import HandleNotice
from reprieve.usecases.sweep_view import Piece, Swept, View


@dataclass(frozen=True, slots=True)
class SweepDeadlines:
    """
    First a Spot host is ordered; when it is ready the on-demand one hands its job over.

    The job runs on until then, so that no Spot capacity costs it nothing.
    """

    rows: Rows
    mail: Mail
    handle_notice: HandleNotice
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, view: View, swept: Swept) -> list[Piece]:  # noqa: ARG002 - a part's form
        """Return the hosts to order and the jobs to hand over."""
        pieces: list[Piece] = []
        free = self._free(view)
        for job in view.jobs():
            host = _paid_host(job, view)
            steer = self._back(job, view) if host else None
            if host is None or steer is None:
                continue
            spot = next((one for one in free if holds(one.capacity.type, job.spec.needs)), None)
            if spot:
                free.remove(spot)
                handed = partial(self._hand_over, job, host, spot, steer)
                pieces.append(Piece(f"5 deadline {job.id}", handed))
            elif self._may_order(view.read.orders.get((job.id, job.attempt + 1))):
                order = partial(self._order, job, view, steer)
                pieces.append(Piece(f"5 deadline {job.id}", order))
        return pieces

    def _free(self, view: View) -> list[Host]:
        """Return ready Spot hosts that nobody waits for."""
        census = view.census()
        over = -census.deficit(now=view.at, clock=self.clock)
        idle = census.idle(now=view.at, clock=self.clock)
        return [host for host in idle if host.capacity.market is Market.SPOT][: max(over, 0)]

    def _back(self, job: Job, view: View) -> Steer | None:
        lease = view.lease(job)
        steer = while_on_demand(
            job, lease.step if lease else None, view.pool, now=view.at, clock=self.clock
        )
        return steer if steer and steer.move is Move.SPOT else None

    def _may_order(self, stands: Order | None) -> bool:
        """Whether to ask for a host: not while one is on its way, nor just after a refusal."""
        if stands is None:
            return True
        waited = self.now() - stands.updated_at >= max(self.clock.cold, self.clock.boot)
        return stands.state is not OrderState.OPEN and waited

    def _order(self, job: Job, view: View, steer: Steer) -> None:
        now, attempt = self.now(), job.attempt + 1
        stands = view.read.orders.get((job.id, attempt))
        text = f"a Spot host is asked for beside the on-demand one: {steer.text}"
        told = AddEvents(job.id, (Steer(steer.move, text, steer.facts).event(now, job.attempt),))
        writes: tuple[Write, ...]
        if stands is None:
            new = ordered(job, attempt, stands=None, reason=steer.text, now=now, switch=True)
            writes = (*new.writes, told)
        else:
            writes = (PutOrder(stands.reopened(now=now), was=stands), told)
        try:
            self.rows.commit(writes)
        except StaleError:
            return  # a loss ordered it meanwhile
        self.mail.order(OrderMessage(job.id, attempt, steer.text, job.pool))

    def _hand_over(self, job: Job, host: Host, spot: Host, steer: Steer) -> None:
        now = self.now()
        text = f"goes back to Spot, to {spot.instance_id}: {steer.text}"
        event = Steer(steer.move, text, steer.facts).event(now, job.attempt)
        self.rows.commit([AddEvents(job.id, (event,))])
        drained = Notice(
            NoticeKind.DRAIN,
            host.instance_id,
            now,
            Channel.SWEEP,
            now + self.clock.handover,
            detail="back to Spot",
        )
        (handled,) = self.handle_notice([drained])
        if handled.failure:
            raise handled.failure


def _paid_host(job: Job, view: View) -> Host | None:
    """Return the on-demand host that runs *job*, if it is to stay there by itself."""
    lease = view.lease(job)
    if job.status is not JobStatus.RUNNING or lease is None or lease.holder is None:
        return None
    host = view.read.hosts.get(lease.holder.instance_id)
    if host is None or host.state is not HostState.READY:
        return None
    return host if host.capacity.market is Market.ON_DEMAND else None
