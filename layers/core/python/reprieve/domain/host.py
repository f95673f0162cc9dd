"""Hosts: what EC2 sells, what it takes back, and the states a host can only walk forward."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from reprieve.domain.clock import NoticeClock
from reprieve.domain.notice import Doubt, Notice, NoticeKind, escalate


class Market(StrEnum):
    """How the capacity is paid for; the tiers of a pool are tried in the order configured."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reserved"  # from a capacity reservation: never taken back like Spot


@dataclass(frozen=True, slots=True, order=True)
class CapacityPool:
    """What EC2 calls a Spot capacity pool (type x zone), with the market."""

    type: str
    zone: str
    market: Market

    def __str__(self) -> str:
        """Return ``type#zone#market``, the sort key's form."""
        return f"{self.type}#{self.zone}#{self.market}"


class HostState(StrEnum):
    """Forward only, also after a reboot: a host that was told to go never takes work again."""

    READY = "READY"
    DRAINING = "DRAINING"  # under notice: finishes what it holds
    RETIRING = "RETIRING"  # will be terminated once nothing is held
    GONE = "GONE"


HOST_ORDER = tuple(HostState)


@dataclass(frozen=True, slots=True)
class Host:
    """An instance of ours; ``version`` guards every write of its row."""

    instance_id: str
    pool: str
    capacity: CapacityPool
    launched_at: datetime
    state: HostState = HostState.READY
    notice: Notice | None = None
    usd_per_hour: float | None = None
    reason: str = ""
    advised: bool = False  # it got a rebalance recommendation, whatever followed
    version: int = field(default=1, compare=False)

    def may_become(self, state: HostState) -> bool:
        """Whether *state* lies ahead."""
        return HOST_ORDER.index(state) > HOST_ORDER.index(self.state)

    def advanced(self, state: HostState, *, reason: str, notice: Notice | None = None) -> Self:
        """Return the host moved forward to *state*, if that lies ahead, the notice escalated."""
        after = replace(self, state=state, reason=reason) if self.may_become(state) else self
        if notice is None:
            return after
        advised = self.advised or notice.kind is NoticeKind.REBALANCE
        return replace(after, notice=escalate(self.notice, notice), advised=advised)

    @property
    def lost_when_gone(self) -> bool:
        """Whether nothing announced that it goes, so that its going is a loss without notice."""
        verdict = self.notice is not None and self.notice.takes_the_host
        return self.state is HostState.READY and not verdict

    def eligible(self, *, now: datetime, clock: NoticeClock) -> bool:
        """
        Whether it may take new work: ready, and nothing announced still stands.

        Advice that nothing followed stands down by itself; a verdict, as scheduled
        maintenance is one long before it starts, never does.
        """
        if self.state is not HostState.READY:
            return False
        if self.notice is None:
            return True
        stands_down_at = self.stands_down_at(clock)
        return stands_down_at is not None and now >= stands_down_at

    def relieved(self, notice: Notice) -> Self:
        """Return the host after *notice* that something is over, maintenance that is off, say."""
        over = notice.doubt is Doubt.OVER and self.state is HostState.READY
        if not over or self.notice is None or self.notice.kind is not notice.kind:
            return self
        return replace(self, notice=None, reason=f"{notice.kind}: {notice.doubt}")

    def stands_down_at(self, clock: NoticeClock) -> datetime | None:
        """Return when advice about it ends, if nothing follows; None for anything but advice."""
        if self.notice is None or self.notice.takes_the_host:
            return None
        return self.notice.noticed_at + clock.advice


class InstanceState(StrEnum):
    """What a DescribeInstances made now says, reduced to what a decision needs."""

    ALIVE = "alive"  # pending, running, stopping
    GONE = "gone"  # shutting-down, terminated, stopped
    NOT_FOUND = "not found"  # evidence only for an instance older than five minutes
    UNKNOWN = "unknown"  # EC2 couldn't be asked: evidence of nothing


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as EC2 lists it by our tag."""

    instance_id: str
    type: str
    zone: str
    market: Market
    state: InstanceState
    launched_at: datetime
    tags: dict[str, str]
