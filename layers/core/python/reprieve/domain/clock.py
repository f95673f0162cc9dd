"""Every period of the system, derived from one number: the length of EC2's notice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

REAL_NOTICE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class NoticeClock:
    """
    The periods that must fit together, as fractions of one notice.

    On EC2 the notice is 120 s. Tests and the demo scale it down, and because every other
    period is a fraction of it, what fits at 120 s fits at 6 s. Limits that a service
    enforces (an SSM delivery timeout of 30 s, an event age of 60 s) stay unscaled and
    live with the template.
    """

    notice: timedelta = REAL_NOTICE

    @classmethod
    def of_seconds(cls, seconds: float) -> NoticeClock:
        """Return the clock whose notice lasts *seconds*."""
        return cls(timedelta(seconds=seconds))

    @property
    def margin(self) -> timedelta:
        """Kept unspent at the end of a notice: EC2 calls its own deadline approximate (15 s)."""
        return self.notice / 8

    @property
    def lease(self) -> timedelta:
        """How long a host may go on without a successful renewal (60 s)."""
        return self.notice / 2

    @property
    def renewal(self) -> timedelta:
        """How often a host renews (15 s)."""
        return self.notice / 8

    @property
    def sweep(self) -> timedelta:
        """How often the table, EC2 and the queues are compared (60 s)."""
        return self.notice / 2

    @property
    def unheard_sweeps(self) -> int:
        """Sweeps without a new beat after which nobody can tell whether a host lives: a lease."""
        return 2

    @property
    def silent_sweeps(self) -> int:
        """Sweeps without a new beat after which a lease counts as silent; >= 5 leases."""
        return 6

    @property
    def certain_sweeps(self) -> int:
        """
        Sweeps after which even hosts that fell silent together are given up.

        A live agent that can't reach the table has left by itself by then: after 120 leases.
        """
        return 130

    @property
    def boot(self) -> timedelta:
        """Launch to a ready agent; a host that takes longer isn't counted as supply (5 min)."""
        return self.notice * 2.5

    @property
    def idle(self) -> timedelta:
        """How long a host without work stays; exceeds notice + margin (10 min)."""
        return self.notice * 5

    @property
    def resend(self) -> timedelta:
        """After this a ticket or an order that nobody took is sent again (4 min)."""
        return self.notice * 2

    @property
    def cold(self) -> timedelta:
        """How long a capacity pool that had nothing to give isn't asked again (3 min)."""
        return self.notice * 1.5

    @property
    def advice(self) -> timedelta:
        """How long a rebalance recommendation keeps new work off a host (20 min)."""
        return self.notice * 10

    @property
    def handover(self) -> timedelta:
        """How long before maintenance starts a job moves: another host has to boot (10 min)."""
        return self.notice * 5

    @property
    def block_warning(self) -> timedelta:
        """From a Capacity Block's warning to the end of its instances (10 min)."""
        return self.notice * 5

    @property
    def block_end(self) -> timedelta:
        """How long before a Capacity Block ends EC2 begins to terminate in it (30 min)."""
        return self.notice * 15

    @property
    def overstay(self) -> timedelta:
        """A drained host that EC2 didn't reclaim leaves this long after its deadline (60 s)."""
        return self.notice / 2
