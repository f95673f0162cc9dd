"""Durable orders and the plans of their tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import History
from reprieve.domain.host import CapacityPool, Host
from reprieve.domain.job import Job
from reprieve.domain.order import FleetAnswer, Order, OrderState, Plan, Try

LISTED_ORDERS = frozenset({OrderState.OPEN, OrderState.UNFILLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """
    A whole pool as the index shows it: what isn't over, what is cold, what it has shown.

    It may be a moment old, so it only proposes. What follows from it is committed over
    the rows' own conditions, or decided after a strong read.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)
    orders: Mapping[tuple[str, int], Order] = field(default_factory=dict)
    cold: Mapping[CapacityPool, Cold] = field(default_factory=dict)
    history: Mapping[tuple[str, str], History] = field(default_factory=dict)
    quotes: Quotes | None = None


class OrderStore(Protocol):
    """Orders. Reads are strong; conditional writes raise ``StaleError``."""

    def place(self, order: Order) -> tuple[Order, bool]:
        """Store *order* if (job, attempt) has none; return the row that stands and if it is new."""

    def read(self, job: str, attempt: int) -> Order | None:
        """Return the head row."""

    def store_plan(self, plan: Plan) -> Plan:
        """Store *plan* under (job, attempt, try) if there is none; return the one that stands."""

    def answer(self, plan: Plan, answer: FleetAnswer) -> None:
        """Keep EC2's answer with the try, for people."""

    def tries(self, job: str, attempt: int) -> Sequence[Try]:
        """Return the tries, first one first."""

    def listing(self, pool: str) -> Listing:
        """Return the pool as its index shows it, in one call."""

    def update(self, order: Order, *, was: Order) -> None:
        """Store *order* if the row still has the state and the try that *was* says."""

    def unpark(self, job: Job, order: Order, *, was: Order | None) -> Job:
        """Store the queued *job* and the raised try of *order* in one transaction."""
