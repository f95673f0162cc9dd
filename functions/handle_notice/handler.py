"""EC2 says that a host will go: tell the host, order its replacement, drain its job."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.domain.errors import MalformedError, ReprieveError
from reprieve.domain.notice import Act, Doubt
from reprieve.edge.events import Announcement, Place, announced, read_event
from reprieve.edge.observe import count, count_decision, stack_metrics
from reprieve.edge.records import come_back
from reprieve.edge.settings import HandleNoticeSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric
from reprieve.usecases.handle_notice import Handled

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from reprieve.domain.notice import ReservationEnding

WITHIN_SECONDS = 2  # the notice runs out meanwhile
LONGEST_NAME = 100

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[HandleNoticeSettings]:
    """Wire once per execution environment."""
    return wire(HandleNoticeSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle one batch as a whole: 50 hosts are told with one command."""
    here = Place.of_function(context.invoked_function_arn)
    heard: dict[str, Announcement] = {}
    failed: dict[str, str] = {}
    for record in event["Records"]:
        try:
            heard[record["messageId"]] = _heard(record, here)
        except MalformedError as error:
            count(metrics, Metric.MALFORMED)
            failed[record["messageId"]] = str(error)
    results = wired().uses.handle_notice([n for one in heard.values() for n in one.notices])
    broken = {id(r.notice): str(r.failure) for r in results if r.failure}
    for message_id, one in heard.items():
        reasons = [broken[id(notice)] for notice in one.notices if id(notice) in broken]
        if one.ending:
            # After all that names its hosts itself: EC2 has to be asked first.
            ended = _end(one.ending)
            results += ended
            reasons += [str(result.failure) for result in ended if result.failure]
        if reasons:
            failed[message_id] = reasons[0]
    count(metrics, Metric.NOTICES, sum(_is_true(result) for result in results))
    for result in results:
        _tell(result)
    for message_id, reason in failed.items():
        logger.warning("notice failed", message_id=message_id, reason=reason)
    return come_back(
        event,
        failed,
        sqs=wired().sqs,
        queue_url=wired().settings.intake_queue_url,
        within_seconds=WITHIN_SECONDS,
    )


def _heard(record: dict[str, Any], here: Place | None) -> Announcement:
    event = read_event(record["body"])
    one = announced(event, wired().settings.clock, here)
    if not one.known:
        count(metrics, Metric.UNKNOWN_EVENTS)
        logger.debug("event ignored", detail_type=str(event.get("detail-type"))[:LONGEST_NAME])
    return one


def _end(ending: ReservationEnding) -> list[Handled]:
    """Drain a reservation's hosts; if EC2 can't name them, the record comes back."""
    if ending.doubt is not None:
        count(metrics, Metric.FOREIGN)
    try:
        return wired().uses.end_reservation(ending)
    except ReprieveError as error:
        (notice,) = ending.notices([ending.reservation_id])
        return [Handled(notice, failure=error)]


def _is_true(result: Handled) -> bool:
    """Whether a host of ours is going; advice, bells and what is over don't count as notices."""
    return result.reaction is not None and result.reaction.act is Act.DRAIN


def _tell(result: Handled) -> None:
    if result.stranger:
        count(metrics, Metric.STRANGERS)
        logger.debug("notice ignored", instance_id=result.notice.instance_id)
        return
    act = result.reaction.act if result.reaction else None
    if act is Act.STALE:
        count(metrics, Metric.STALE)
    if act is Act.RECORD and result.notice.doubt is not Doubt.OVER:
        count(metrics, Metric.FOREIGN)
    if result.unreachable:
        count(metrics, Metric.SIGNALS_UNDELIVERED)
    logger.info(
        "notice handled",
        instance_id=result.notice.instance_id,
        kind=result.notice.kind,
        result=act,
        reason=result.reaction.reason if result.reaction else None,
        first=result.first,
        jobs=result.jobs,
        unreachable=result.unreachable,
    )
