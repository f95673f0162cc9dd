"""The sweep's look at orders: those nobody waits for, or answers, and those that are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import StaleError
from reprieve.domain.job import JobStatus
from reprieve.domain.order import Order, OrderState
from reprieve.ports.cloud import Mail
from reprieve.ports.rows import PutOrder, Rows
from reprieve.protocol import OrderMessage
from reprieve.usecases.sweep_view import Piece, Swept, View

NO_NEWS = "rung again by the sweep"
CLOSED = frozenset({OrderState.LANDED, OrderState.NOT_NEEDED})


@dataclass(frozen=True, slots=True)
class SweepOrders:
    """A lost message costs two notices, a host that never served costs a sweep."""

    rows: Rows
    mail: Mail
    clock: NoticeClock
    now: Callable[[], datetime]

    def __call__(self, view: View, swept: Swept) -> list[Piece]:
        """Return the orders to write; a rival's write comes first, and is as good."""
        pieces = []
        for order in (view.read.orders.get(key) for key in view.live.orders):
            if order is None or order.state in CLOSED:
                continue
            if over := _over(order, view):
                closed = replace(order, state=OrderState.NOT_NEEDED, outcome=over)
                pieces.append(_piece(order, partial(self._close, closed, order, swept)))
            elif self._unanswered(order):
                again = replace(order, updated_at=self.now())
                pieces.append(_piece(order, partial(self._ring, again, order, swept.rung)))
        return pieces + self._raised(view, swept)

    def _unanswered(self, order: Order) -> bool:
        """Whether nobody touched an open order for so long that its message must be lost."""
        late = self.now() - order.updated_at > self.clock.resend
        return order.state is OrderState.OPEN and late

    def _raised(self, view: View, swept: Swept) -> list[Piece]:
        """
        Return a new try for the oldest waiting jobs, one for each host that is missing.

        A landed order isn't service: its host may have died, or work for another job.
        """
        missing = view.census().deficit(now=self.now(), clock=self.clock) + view.pool.buffer
        pieces: list[Piece] = []
        for job in view.jobs():
            order = view.read.orders.get((job.id, job.attempt))
            if len(pieces) >= missing:
                break
            if job.status is not JobStatus.QUEUED or order is None or not view.unclaimed(job):
                continue
            if order.state in CLOSED:
                raised = order.reopened(now=self.now())
                pieces.append(_piece(order, partial(self._ring, raised, order, swept.reordered)))
        return pieces

    def _ring(self, order: Order, was: Order, done: list[str]) -> None:
        if self._write(order, was):
            self.mail.order(OrderMessage(order.job, order.attempt, NO_NEWS))
            done.append(f"{order.job}#{order.attempt}")

    def _close(self, order: Order, was: Order, swept: Swept) -> None:
        if self._write(replace(order, updated_at=self.now()), was):
            swept.closed.append(f"{order.job}#{order.attempt}")

    def _write(self, order: Order, was: Order) -> bool:
        try:
            self.rows.commit([PutOrder(order, was=was)])
        except StaleError:
            return False  # somebody is at it
        return True


def _piece(order: Order, do: Callable[[], object]) -> Piece:
    return Piece(f"2 order {order.job}#{order.attempt}", do)


def _over(order: Order, view: View) -> str | None:
    """Return why nobody waits for this order any more; None also if its job couldn't be read."""
    job = view.read.jobs.get(order.job)
    if job is None:
        return "no such job" if order.job in view.read.read.jobs else None
    if job.terminal:
        return f"job is {job.status}"
    return f"the job is at attempt {job.attempt}" if order.attempt < job.attempt else None
