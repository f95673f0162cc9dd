"""One shape for every way in which EC2 says that a host will go, or might."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from reprieve.domain.clock import NoticeClock


class NoticeKind(StrEnum):
    """What was announced."""

    INTERRUPTION = "interruption"  # spot terminate or stop
    HIBERNATE = "hibernate"  # starts at once: no two minutes
    RESERVATION = "reservation"  # the reserved capacity under the host is taken back, or ends
    SCALE_IN = "scale-in"  # its Auto Scaling group terminates it, and waits a while
    DRAIN = "drain"  # a person wants the host emptied
    MAINTENANCE = "maintenance"  # AWS Health scheduled change: hours or days ahead
    REBALANCE = "rebalance"  # advice, right about one time in three
    STATE_CHANGE = "state-change"  # a bell: ask EC2 what is true


class Channel(StrEnum):
    """Who saw it. Any one suffices; the timeline keeps which came first."""

    EVENT = "event"
    METADATA = "metadata"
    SSM = "ssm"
    SWEEP = "sweep"
    OPERATOR = "operator"


class Doubt(StrEnum):
    """Why a notice that can be read is nothing to act on."""

    FOREIGN_ACCOUNT = "it is of another account"
    FOREIGN_REGION = "it is of another region"
    REPLAYED = "it was replayed from an archive"
    OVER = "what it announced is over"


@dataclass(frozen=True, slots=True)
class Notice:
    """
    *reclaimed_at* is when the instance goes, if announced; work must end a margin earlier.

    *detail* is EC2's own word for it, for people. A notice with a *doubt* is kept for
    them too, and for nothing else.
    """

    kind: NoticeKind
    instance_id: str
    noticed_at: datetime
    channel: Channel
    reclaimed_at: datetime | None = None
    detail: str = ""
    doubt: Doubt | None = None

    @property
    def takes_the_host(self) -> bool:
        """Whether the host will go (a verdict), rather than might (advice or a bell)."""
        match self.kind:
            case (
                NoticeKind.INTERRUPTION
                | NoticeKind.HIBERNATE
                | NoticeKind.RESERVATION
                | NoticeKind.SCALE_IN
                | NoticeKind.DRAIN
                | NoticeKind.MAINTENANCE
            ):
                return True
            case NoticeKind.REBALANCE | NoticeKind.STATE_CHANGE:
                return False
            case _:
                assert_never(self.kind)

    @property
    def tells_of_capacity(self) -> bool:
        """Whether it says that the capacity pool is short, and not only that one host goes."""
        return self.kind in {
            NoticeKind.INTERRUPTION,
            NoticeKind.HIBERNATE,
            NoticeKind.RESERVATION,
            NoticeKind.REBALANCE,
        }

    @property
    def host_leaves(self) -> bool:
        """Whether the host goes by itself once it is empty: EC2 takes it late, or not at all."""
        return self.kind in {NoticeKind.SCALE_IN, NoticeKind.DRAIN, NoticeKind.MAINTENANCE}

    @property
    def request_id(self) -> str:
        """
        Identity of the checkpoint request that follows: kind + instance.

        The agent joins it with its attempt. EventBridge's event id differs between
        deliveries of one fact and the metadata service has none, so neither can serve.
        """
        return f"{self.kind}:{self.instance_id}"

    def pending(self, *, now: datetime, clock: NoticeClock) -> bool:
        """
        Whether the host goes so late that its job may go on for now.

        Only maintenance is announced that far ahead; the job is handed over
        `NoticeClock.handover` before it starts.
        """
        if self.kind is not NoticeKind.MAINTENANCE or self.reclaimed_at is None:
            return False
        return now < self.reclaimed_at - clock.handover


@dataclass(frozen=True, slots=True)
class ReservationEnding:
    """
    The end of a whole capacity reservation: it names no instance, so EC2 is asked for them.

    What EC2 then says is in the reservation *and* carries our tag is told as one notice
    each.
    """

    reservation_id: str
    noticed_at: datetime
    reclaimed_at: datetime
    doubt: Doubt | None = None

    def notices(self, instance_ids: Sequence[str]) -> list[Notice]:
        """Return the notice of each host in it."""
        return [
            Notice(
                NoticeKind.RESERVATION,
                instance_id,
                self.noticed_at,
                Channel.EVENT,
                self.reclaimed_at,
                detail=self.reservation_id,
                doubt=self.doubt,
            )
            for instance_id in sorted(instance_ids)
        ]


TAKES_BACK = frozenset({NoticeKind.INTERRUPTION, NoticeKind.HIBERNATE})  # of Spot capacity

URGENCY = (
    NoticeKind.STATE_CHANGE,
    NoticeKind.REBALANCE,
    NoticeKind.MAINTENANCE,
    NoticeKind.DRAIN,
    NoticeKind.SCALE_IN,
    NoticeKind.RESERVATION,
    NoticeKind.INTERRUPTION,
    NoticeKind.HIBERNATE,
)


def escalate(known: Notice | None, new: Notice) -> Notice:
    """
    Return what stands after *new*: a warning replaces advice, advice never a warning.

    Of two notices of one kind the first stays (its channel is on record), with the
    earlier reclaim time of both, since each of them is only approximate. Advice given
    anew counts from then, or a host advised twice in a day would look safe.
    """
    if known is None or URGENCY.index(new.kind) > URGENCY.index(known.kind):
        return new
    if new.kind is not known.kind:
        return known
    if new.kind is NoticeKind.REBALANCE:
        return replace(known, noticed_at=max(known.noticed_at, new.noticed_at))
    if new.reclaimed_at is None:
        return known
    if known.reclaimed_at is None or new.reclaimed_at < known.reclaimed_at:
        return replace(known, reclaimed_at=new.reclaimed_at)
    return known


class Act(StrEnum):
    """What a notice asks for. Who tells the host, and what its job needs, follows from it."""

    RECORD = "recorded"  # a line of the timeline where the host is ours, and nothing else
    BELL = "asked EC2"  # what is true decides, not what was said
    STALE = "its time has passed"  # recorded, and then a bell
    ADVISE = "advised"  # an extra checkpoint and no new work; the job goes on
    DRAIN = "drained"  # checkpoint and hand over; a replacement at once


@dataclass(frozen=True, slots=True)
class Reaction:
    """What is done about a notice, and why."""

    act: Act
    reason: str

    @property
    def signals(self) -> bool:
        """Whether the host is told."""
        return self.act in {Act.ADVISE, Act.DRAIN}


def react(notice: Notice, *, now: datetime, clock: NoticeClock) -> Reaction:
    """Return what *notice* asks for when it arrives at *now*; total, and free of effects."""
    if notice.doubt is not None:
        return Reaction(Act.RECORD, f"{notice.kind} notice: {notice.doubt}")
    if notice.kind is NoticeKind.STATE_CHANGE:
        return Reaction(Act.BELL, "a state change is evidence only if EC2 says so now")
    if now > _stale_after(notice, clock):
        return Reaction(Act.STALE, f"{notice.kind} notice: {Act.STALE}, so EC2 is asked")
    if notice.kind is NoticeKind.REBALANCE:
        return Reaction(Act.ADVISE, "advice: an extra checkpoint, no new work")
    if notice.pending(now=now, clock=clock):
        return Reaction(Act.ADVISE, "scheduled: a checkpoint now, handed over before it starts")
    if notice.kind is NoticeKind.HIBERNATE:
        return Reaction(Act.DRAIN, "hibernates at once: nothing to wait for")
    return Reaction(Act.DRAIN, "its host is going")


def _stale_after(notice: Notice, clock: NoticeClock) -> datetime:
    """Return when *notice* says nothing any more; hibernation's own time is its beginning."""
    match notice.kind:
        case NoticeKind.REBALANCE:
            return notice.noticed_at + clock.advice
        case NoticeKind.HIBERNATE:
            return notice.noticed_at + clock.notice
        case _:
            return notice.reclaimed_at or notice.noticed_at + clock.notice
