"""Durable orders and the plans of their tries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reprieve.domain.job import Job
from reprieve.domain.order import FleetAnswer, Order, Plan, Try


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

    def update(self, order: Order, *, was: Order) -> None:
        """Store *order* if the row still has the state and the try that *was* says."""

    def unpark(self, job: Job, order: Order, *, was: Order | None) -> Job:
        """Store the queued *job* and the raised try of *order* in one transaction."""
