"""One shape for every way in which EC2 says that a host will go, or might."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never


class NoticeKind(StrEnum):
    """What was announced."""

    INTERRUPTION = "interruption"  # spot terminate or stop, capacity reservation taken back
    HIBERNATE = "hibernate"  # starts at once: no two minutes
    MAINTENANCE = "maintenance"  # AWS Health scheduled change: hours or days ahead
    REBALANCE = "rebalance"  # advice, right about one time in three
    STATE_CHANGE = "state-change"  # a bell: ask EC2 what is true


class Channel(StrEnum):
    """Who saw it. Any one suffices; the timeline keeps which came first."""

    EVENT = "event"
    METADATA = "metadata"
    SSM = "ssm"
    SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Notice:
    """*reclaimed_at* is when the instance goes, if announced; work must end a margin earlier."""

    kind: NoticeKind
    instance_id: str
    noticed_at: datetime
    channel: Channel
    reclaimed_at: datetime | None = None

    @property
    def takes_the_host(self) -> bool:
        """Whether the host will go (a verdict), rather than might (advice or a bell)."""
        match self.kind:
            case NoticeKind.INTERRUPTION | NoticeKind.HIBERNATE | NoticeKind.MAINTENANCE:
                return True
            case NoticeKind.REBALANCE | NoticeKind.STATE_CHANGE:
                return False
            case _:
                assert_never(self.kind)

    @property
    def request_id(self) -> str:
        """
        Identity of the checkpoint request that follows: kind + instance.

        The agent joins it with its attempt. EventBridge's event id differs between
        deliveries of one fact and the metadata service has none, so neither can serve.
        """
        return f"{self.kind}:{self.instance_id}"


URGENCY = (
    NoticeKind.STATE_CHANGE,
    NoticeKind.REBALANCE,
    NoticeKind.MAINTENANCE,
    NoticeKind.INTERRUPTION,
    NoticeKind.HIBERNATE,
)


def escalate(known: Notice | None, new: Notice) -> Notice:
    """
    Return what stands after *new*: a warning replaces advice, advice never a warning.

    Of two notices of one kind the first stays (its channel is on record), with the
    earlier reclaim time of both, since each of them is only approximate.
    """
    if known is None or URGENCY.index(new.kind) > URGENCY.index(known.kind):
        return new
    if new.kind is not known.kind or new.reclaimed_at is None:
        return known
    if known.reclaimed_at is None or new.reclaimed_at < known.reclaimed_at:
        return replace(known, reclaimed_at=new.reclaimed_at)
    return known
