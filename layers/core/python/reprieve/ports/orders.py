"""Durable orders and the plans of their tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reprieve.domain.capacity import Cold, Quotes
from reprieve.domain.economics.pools import History
from reprieve.domain.host import CapacityPool, Host
from reprieve.domain.job import Job
from reprieve.domain.order import Order, OrderState, Try

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
    """Orders, as people read them, and whole pools as their index shows them."""

    def read(self, job: str, attempt: int) -> Order | None:
        """Return the head row."""

    def tries(self, job: str, attempt: int) -> Sequence[Try]:
        """Return the tries, first one first."""

    def listing(self, pool: str) -> Listing:
        """Return the pool as its index shows it, in one call."""
