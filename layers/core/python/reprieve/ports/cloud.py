"""EC2, SSM and the queues, as the use cases need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reprieve.domain.host import Instance, InstanceState, Market
from reprieve.domain.notice import Notice
from reprieve.domain.order import FleetAnswer, Plan
from reprieve.protocol import OrderMessage, Ticket


class Fleet(Protocol):
    """EC2."""

    def launch(self, plan: Plan) -> FleetAnswer:
        """
        Send *plan* as one instant fleet under its client token.

        Refusals come back as errors, also when EC2 refuses the whole request. Raises
        ``UnknownOutcomeError`` when there was no answer: send the same plan again.
        """

    def states(self, instance_ids: Iterable[str]) -> dict[str, InstanceState]:
        """Ask EC2 now; an id that couldn't be asked about maps to UNKNOWN."""

    def ours(self) -> Sequence[Instance]:
        """Return the live instances that carry the stack's tag; raise ``UnknownOutcomeError``."""

    def in_reservation(self, reservation_id: str) -> frozenset[str]:
        """Return our live instances in a capacity reservation; raise ``UnknownOutcomeError``."""

    def launched_for(self, tag: str) -> Sequence[Instance]:
        """
        Return the live instances that carry a plan's tag; raise ``UnknownOutcomeError``.

        For when the answer to its launch was lost, or is no use.
        """

    def marked(self, instance_ids: Iterable[str]) -> frozenset[str]:
        """
        Return those whose Spot request says that EC2 is taking them back.

        The request's status turns at once, minutes before the instance's state. Raises
        ``UnknownOutcomeError`` if EC2 couldn't be asked about all of them.
        """

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Terminate; an id that is already gone is fine."""

    def usd_per_hour(self, types: Sequence[str], market: Market) -> dict[tuple[str, str], float]:
        """Return today's price by (type, zone); what isn't known is absent."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """Which hosts SSM took the command for; the others are simply not reachable that way."""

    reached: tuple[str, ...] = ()
    unreachable: dict[str, str] = field(default_factory=dict)


class Signals(Protocol):
    """The second way to tell a host: its metadata service is the first."""

    def preempt(self, notices: Sequence[Notice]) -> Signalled:
        """Tell each notice's host, up to 50 of one kind and deadline in a call. Never raises."""


class Mail(Protocol):
    """The queues that functions write to."""

    def ticket(self, pool: str, ticket: Ticket) -> None:
        """Put a ticket on the pool's work queue."""

    def order(self, message: OrderMessage) -> None:
        """Ring ``replace_host``."""
