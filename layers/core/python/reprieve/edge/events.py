"""
Events to notices: one parser per (source, detail-type), anything else is nobody's.

Identity comes from the detail alone. The resources field puts the zone where an ARN has
its region, and is a bare string in some documents; the event's own id changes with every
delivery of the same fact (EC2 user guide, "Spot Instance interruption notices"). What an
event may lack, it may lack here; what we don't know, we leave alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from reprieve.detail_types import (
    HEALTH_CATEGORY,
    HEALTH_CLOSED,
    HEALTH_SERVICE,
    STATES_OF_LEAVING,
    TERMINATING,
    DetailType,
    Source,
)
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import MalformedError
from reprieve.domain.notice import Channel, Doubt, Notice, NoticeKind, ReservationEnding

Event = Mapping[str, Any]

INSTANCE_ID = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
RESERVATION_ID = re.compile(r"cr-[0-9a-f]{8,17}")
FUNCTION_ARN = re.compile(r"arn:[^:]+:lambda:(?P<region>[^:]+):(?P<account>[0-9]{12}):.*")
LONGEST_DETAIL = 100

# A time outside of these is nonsense, and nonsense that no sum of times can overflow by.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Place:
    """The region and account that a function lives in; only their events are its own."""

    region: str
    account: str

    @classmethod
    def of_function(cls, arn: str) -> Place | None:
        """Read a function's own ARN; None if it isn't one, and then nothing is foreign."""
        match = FUNCTION_ARN.fullmatch(arn)
        return cls(match["region"], match["account"]) if match else None

    def doubt(self, event: Event) -> Doubt | None:
        """
        Say why *event* isn't this place's to act on.

        Health copies its events to a backup region, and tells an organisation of all its
        accounts, so its detail has the last word. What an event doesn't say isn't held
        against it: the queue takes events of its own rules only.
        """
        detail = event["detail"]
        account = detail.get("affectedAccount") or event.get("account")
        region = detail.get("eventRegion") or event.get("region")
        if account and account != self.account:
            return Doubt.FOREIGN_ACCOUNT
        if region and region != self.region:
            return Doubt.FOREIGN_REGION
        return None


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an event says: notices of hosts, or the end of a reservation whose hosts EC2 knows."""

    notices: tuple[Notice, ...] = ()
    ending: ReservationEnding | None = None
    known: bool = True  # whether its source and detail-type are among those that we read

    def doubted(self, doubt: Doubt | None) -> Announcement:
        """Return it under *doubt*, unless it doubts itself already."""
        if doubt is None:
            return self
        return replace(
            self,
            notices=tuple(replace(n, doubt=n.doubt or doubt) for n in self.notices),
            ending=replace(self.ending, doubt=doubt) if self.ending else None,
        )


Parser = Callable[[Event, datetime, NoticeClock], Announcement]

NOTHING = Announcement()
UNKNOWN = Announcement(known=False)


def read_event(body: str) -> Event:
    """Return the event in a message's body; raise ``MalformedError`` for anything else."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        message = f"not JSON: {body[:80]!r}"
        raise MalformedError(message) from error
    if not isinstance(event, dict):
        message = f"not an event: {body[:80]!r}"
        raise MalformedError(message)
    return event


def announced(event: Event, clock: NoticeClock, here: Place | None = None) -> Announcement:
    """
    Return what *event* announces; nothing for kinds that aren't ours to act on.

    Raises ``MalformedError`` for an event of a known kind without what that kind promises.
    """
    parser = PARSERS.get((str(event.get("source")), str(event.get("detail-type"))))
    if parser is None:
        return UNKNOWN
    if not isinstance(event.get("detail"), Mapping):
        message = f"{event.get('detail-type')}: no detail"
        raise MalformedError(message)
    announcement = parser(event["detail"], _time(event.get("time")), clock)
    doubt = here.doubt(event) if here else None
    return announcement.doubted(Doubt.REPLAYED if event.get("replay-name") else doubt)


def undelivered_command(event: Event) -> str | None:
    """Return how an SSM command of ours failed to reach its host; None if it did, or isn't one."""
    detail = event.get("detail")
    status = detail.get("status") if isinstance(detail, Mapping) else None
    return None if status == "Success" else str(status)


def is_command_status(event: Event) -> bool:
    """Whether *event* is SSM's word about a command, which shares the reports queue."""
    return (event.get("source"), event.get("detail-type")) == (
        Source.SSM,
        DetailType.COMMAND_STATUS,
    )


def _interruption(detail: Event, at: datetime, clock: NoticeClock) -> Announcement:
    """Only hibernate differs; a word nobody knows, or none, is taken as the most urgent."""
    action = detail.get("instance-action")
    hibernates = action == "hibernate"
    return _one(
        NoticeKind.HIBERNATE if hibernates else NoticeKind.INTERRUPTION,
        detail.get("instance-id"),
        at,
        reclaimed_at=at if hibernates else at + clock.notice,
        detail=_word(action),
    )


def _reservation(detail: Event, at: datetime, clock: NoticeClock) -> Announcement:
    """Say that one instance goes: its reservation is taken back, or its Capacity Block ends."""
    ends = detail.get("instance-termination-time")
    return _one(
        NoticeKind.RESERVATION,
        detail.get("instance-id"),
        at,
        reclaimed_at=_time(ends) if ends else at + clock.notice,
        detail=_word(detail.get("instance-lifecycle")),
    )


def _block_expiry(detail: Event, at: datetime, clock: NoticeClock) -> Announcement:
    """Say that a whole Capacity Block ends: its instances go half an hour before it."""
    reservation = detail.get("capacity-reservation-id")
    if not isinstance(reservation, str) or not RESERVATION_ID.fullmatch(reservation):
        message = f"not a capacity reservation: {reservation!r:.80}"
        raise MalformedError(message)
    ends = detail.get("end-date")
    warned = at + clock.block_warning
    reclaimed_at = min(warned, _time(ends) - clock.block_end) if ends else warned
    return Announcement(ending=ReservationEnding(reservation, at, reclaimed_at))


def _rebalance(detail: Event, at: datetime, _clock: NoticeClock) -> Announcement:
    return _one(NoticeKind.REBALANCE, detail.get("instance-id"), at)


def _state_change(detail: Event, at: datetime, _clock: NoticeClock) -> Announcement:
    if detail.get("state") not in STATES_OF_LEAVING:
        return NOTHING
    state = _word(detail["state"])
    return _one(NoticeKind.STATE_CHANGE, detail.get("instance-id"), at, detail=state)


def _health(detail: Event, at: datetime, _clock: NoticeClock) -> Announcement:
    """
    One event may name many instances; its times are RFC 1123, not ISO.

    An event also comes when a change is over, or was called off.
    """
    if (detail.get("service"), detail.get("eventTypeCategory")) != (
        HEALTH_SERVICE,
        HEALTH_CATEGORY,
    ):
        return NOTHING
    entities = detail.get("affectedEntities") or []
    if not isinstance(entities, list):
        message = "affectedEntities isn't a list"
        raise MalformedError(message)
    named = [entity.get("entityValue") for entity in entities if isinstance(entity, Mapping)]
    start, end = detail.get("startTime"), detail.get("endTime")
    over = detail.get("statusCode") == HEALTH_CLOSED or (bool(end) and _time(end) <= at)
    notice = Notice(
        NoticeKind.MAINTENANCE,
        "",
        at,
        Channel.EVENT,
        reclaimed_at=_time(start) if start else None,
        detail=_word(detail.get("eventTypeCode")),
        doubt=Doubt.OVER if over else None,
    )
    hosts = [name for name in named if isinstance(name, str) and INSTANCE_ID.fullmatch(name)]
    return Announcement(tuple(replace(notice, instance_id=host) for host in dict.fromkeys(hosts)))


def _scale_in(detail: Event, at: datetime, clock: NoticeClock) -> Announcement:
    """
    Say that an Auto Scaling group holds an instance in Terminating:Wait.

    For how long isn't said: a hook's heartbeat is 30 s at least and an hour by default. A
    notice's length is what we ask of a hook (docs/decisions/0014).
    """
    if detail.get("LifecycleTransition", TERMINATING) != TERMINATING:
        return NOTHING
    return _one(
        NoticeKind.SCALE_IN,
        detail.get("EC2InstanceId"),
        at,
        reclaimed_at=at + clock.notice,
        detail=_word(detail.get("AutoScalingGroupName")),
    )


def _drain(detail: Event, at: datetime, clock: NoticeClock) -> Announcement:
    """Say that a person wants a host emptied by a deadline."""
    deadline = detail.get("deadline")
    (notice,) = _one(
        NoticeKind.DRAIN,
        detail.get("instance-id"),
        at,
        reclaimed_at=_time(deadline) if deadline else at + clock.notice,
    ).notices
    return Announcement((replace(notice, channel=Channel.OPERATOR),))


PARSERS: dict[tuple[str, str], Parser] = {
    (Source.EC2, DetailType.SPOT_INTERRUPTION): _interruption,
    (Source.EC2, DetailType.REBALANCE): _rebalance,
    (Source.EC2, DetailType.RESERVATION_INTERRUPTION): _reservation,
    (Source.EC2, DetailType.INTERRUPTIBLE_RESERVATION): _reservation,
    (Source.EC2, DetailType.BLOCK_EXPIRY): _block_expiry,
    (Source.EC2, DetailType.STATE_CHANGE): _state_change,
    (Source.HEALTH, DetailType.HEALTH): _health,
    (Source.AUTO_SCALING, DetailType.SCALE_IN): _scale_in,
    (Source.OPERATOR, DetailType.DRAIN): _drain,
}


def _one(
    kind: NoticeKind,
    instance_id: object,
    at: datetime,
    *,
    reclaimed_at: datetime | None = None,
    detail: str = "",
) -> Announcement:
    if not isinstance(instance_id, str) or not INSTANCE_ID.fullmatch(instance_id):
        message = f"not an instance id: {instance_id!r:.80}"
        raise MalformedError(message)
    notice = Notice(kind, instance_id, at, Channel.EVENT, reclaimed_at, detail)
    return Announcement((notice,))


def _word(value: object) -> str:
    """Return EC2's own word for something, for people."""
    return value[:LONGEST_DETAIL] if isinstance(value, str) else ""


def _time(value: object) -> datetime:
    """Read EC2's and Health's ways of writing a time."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(str(value))
        except (ValueError, OverflowError, TypeError, IndexError):
            continue
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if EARLIEST <= at <= LATEST:
            return at
    message = f"not a time: {value!r:.80}"
    raise MalformedError(message)
