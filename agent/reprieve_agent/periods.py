"""The agent's own waits, all of them fractions of the notice."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.clock import NoticeClock


@dataclass(frozen=True, slots=True)
class Periods:
    """In seconds."""

    notice: float
    margin: float
    renewal: float
    lease: float
    overstay: float
    idle: float
    handover: float

    @classmethod
    def of(cls, clock: NoticeClock) -> Periods:
        """Take them from the system's clock."""
        return cls(
            notice=clock.notice.total_seconds(),
            margin=clock.margin.total_seconds(),
            renewal=clock.renewal.total_seconds(),
            lease=clock.lease.total_seconds(),
            overstay=clock.overstay.total_seconds(),
            idle=clock.idle.total_seconds(),
            handover=clock.handover.total_seconds(),
        )

    @property
    def reserve(self) -> float:
        """Kept for killing, committing and saying so, before the margin begins (5 s)."""
        return self.notice / 24

    @property
    def linger(self) -> float:
        """How long a job may take to exit after its checkpoint is committed (5 s)."""
        return self.notice / 24

    @property
    def first_word(self) -> float:
        """A job that said nothing for so long after its start has no hook (60 s)."""
        return self.notice / 2

    @property
    def stop_budget(self) -> float:
        """How long a stop asked by systemd may take; its own limit is 110 s (90 s)."""
        return self.notice * 0.75

    @property
    def advice(self) -> float:
        """A rebalance that nothing followed for so long is forgotten (20 min)."""
        return self.notice * 10

    @property
    def between_requests(self) -> float:
        """Advice asks a job for a checkpoint no more often than this (5 min)."""
        return self.notice * 2.5

    @property
    def isolation(self) -> float:
        """With nobody reachable at all, the metadata service included, the host leaves (10 min)."""
        return self.lease * 10

    @property
    def isolation_idle(self) -> float:
        """
        The same for a host that holds nothing and can't reach the table (20 min).

        Also for one with a job, if the table answers and refuses it: then the stack is gone.
        """
        return self.lease * 20

    @property
    def isolation_busy(self) -> float:
        """
        The same for a host with a job (2 h).

        A long outage of the table must not kill healthy training, but a host that nobody
        will ever hear of again must not run for ever.
        """
        return self.lease * 120
