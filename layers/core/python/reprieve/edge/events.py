"""
Events to notices: one parser per (source, detail-type), anything else is nobody's.

Identity comes from the detail alone. The resources field puts the zone where an ARN has
its region, and is a bare string in some documents; the event's own id changes with every
delivery of the same fact (EC2 user guide, "Spot Instance interruption notices").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from reprieve.detail_types import (
    HEALTH_CATEGORY,
    HEALTH_SERVICE,
    STATES_OF_LEAVING,
    DetailType,
    Source,
)
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import MalformedError
from reprieve.domain.notice import Channel, Notice, NoticeKind

Event = Mapping[str, Any]
Parser = Callable[[Event, datetime, NoticeClock], list[Notice]]

INSTANCE_ID_LENGTHS = (10, 19)


def parse_event(event: Event, clock: NoticeClock) -> list[Notice]:
    """
    Return the notices in *event*; none for kinds that aren't ours to act on.

    Raises ``MalformedError`` for an event of a known kind without what that kind promises.
    """
    parser = PARSERS.get((str(event.get("source")), str(event.get("detail-type"))))
    if parser is None:
        return []
    if not isinstance(event.get("detail"), Mapping):
        message = f"{event.get('detail-type')}: no detail"
        raise MalformedError(message)
    return parser(event["detail"], _time(event.get("time")), clock)


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


def _interruption(detail: Event, at: datetime, clock: NoticeClock) -> list[Notice]:
    """Only hibernate differs; a word nobody knows, or none, is taken as the most urgent."""
    hibernates = detail.get("instance-action") == "hibernate"
    return [
        Notice(
            NoticeKind.HIBERNATE if hibernates else NoticeKind.INTERRUPTION,
            _instance_id(detail.get("instance-id")),
            at,
            Channel.EVENT,
            reclaimed_at=at if hibernates else at + clock.notice,
        )
    ]


def _reservation(detail: Event, at: datetime, clock: NoticeClock) -> list[Notice]:
    announced = detail.get("instance-termination-time")
    return [
        Notice(
            NoticeKind.INTERRUPTION,
            _instance_id(detail.get("instance-id")),
            at,
            Channel.EVENT,
            reclaimed_at=_time(announced) if announced else at + clock.notice,
        )
    ]


def _rebalance(detail: Event, at: datetime, _clock: NoticeClock) -> list[Notice]:
    instance_id = _instance_id(detail.get("instance-id"))
    return [Notice(NoticeKind.REBALANCE, instance_id, at, Channel.EVENT)]


def _state_change(detail: Event, at: datetime, _clock: NoticeClock) -> list[Notice]:
    if detail.get("state") not in STATES_OF_LEAVING:
        return []
    instance_id = _instance_id(detail.get("instance-id"))
    return [Notice(NoticeKind.STATE_CHANGE, instance_id, at, Channel.EVENT)]


def _health(detail: Event, at: datetime, _clock: NoticeClock) -> list[Notice]:
    """One event may name many instances; its times are RFC 1123, not ISO."""
    if (detail.get("service"), detail.get("eventTypeCategory")) != (
        HEALTH_SERVICE,
        HEALTH_CATEGORY,
    ):
        return []
    entities = detail.get("affectedEntities") or []
    if not isinstance(entities, list):
        message = "affectedEntities isn't a list"
        raise MalformedError(message)
    start = _rfc1123(detail.get("startTime"))
    return [
        Notice(
            NoticeKind.MAINTENANCE,
            _instance_id(entity.get("entityValue")),
            at,
            Channel.EVENT,
            reclaimed_at=start,
        )
        for entity in entities
        if isinstance(entity, Mapping) and str(entity.get("entityValue", "")).startswith("i-")
    ]


PARSERS: dict[tuple[str, str], Parser] = {
    (Source.EC2, DetailType.SPOT_INTERRUPTION): _interruption,
    (Source.EC2, DetailType.REBALANCE): _rebalance,
    (Source.EC2, DetailType.RESERVATION_INTERRUPTION): _reservation,
    (Source.EC2, DetailType.INTERRUPTIBLE_RESERVATION): _reservation,
    (Source.EC2, DetailType.STATE_CHANGE): _state_change,
    (Source.HEALTH, DetailType.HEALTH): _health,
}


def _instance_id(value: object) -> str:
    if isinstance(value, str) and value.startswith("i-") and len(value) in INSTANCE_ID_LENGTHS:
        return value
    message = f"not an instance id: {value!r:.80}"
    raise MalformedError(message)


def _time(value: object) -> datetime:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError as error:
        message = f"not a time: {value!r:.80}"
        raise MalformedError(message) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _rfc1123(value: object) -> datetime:
    try:
        at = parsedate_to_datetime(str(value))
    except ValueError as error:
        message = f"not an RFC 1123 time: {value!r:.80}"
        raise MalformedError(message) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)
