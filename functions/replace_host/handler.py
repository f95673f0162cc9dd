"""Fill orders for hosts through diversified fleets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.domain.errors import MalformedError, ReprieveError
from reprieve.edge.observe import count, count_decision, count_filled, stack_metrics
from reprieve.edge.records import come_back
from reprieve.edge.settings import ReplaceHostSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric
from reprieve.protocol import OrderMessage

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from reprieve.usecases.known_pool import Filled

WITHIN_SECONDS = 60

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[ReplaceHostSettings]:
    """Wire once per execution environment."""
    return wire(ReplaceHostSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Fill the batch's orders together; a record that failed comes back alone."""
    count(metrics, Metric.LAUNCHED, 0)
    failed: list[str] = []
    messages: dict[str, OrderMessage] = {}
    for record in event["Records"]:
        try:
            messages[record["messageId"]] = OrderMessage.from_json(record["body"])
        except MalformedError as error:
            count(metrics, Metric.MALFORMED)
            logger.warning("order malformed", message_id=record["messageId"], reason=str(error))
            failed.append(record["messageId"])
    failed += _fill(messages)
    return come_back(
        event,
        failed,
        sqs=wired().sqs,
        queue_url=wired().settings.orders_queue_url,
        within_seconds=WITHIN_SECONDS,
    )


def _fill(messages: Mapping[str, OrderMessage]) -> list[str]:
    """Return the ids of those that must come back."""
    if not messages:
        return []
    try:
        results = wired().uses.replace_host.fill(list(messages.values()))
    except ReprieveError as error:
        logger.warning("orders failed", message_ids=list(messages), reason=str(error))
        if len(messages) == 1:
            return list(messages)
        # One that nobody can fill must not keep its neighbours from their hosts.
        return [i for one, message in messages.items() for i in _fill({one: message})]
    said = zip(messages.values(), results, strict=True)
    for (job, attempt), filled in {(m.job, m.attempt): filled for m, filled in said}.items():
        _tell(job, attempt, filled)
    return [i for i, filled in zip(messages, results, strict=True) if filled.failure]


def _tell(job: str, attempt: int, filled: Filled) -> None:
    count_filled(metrics, filled)
    say = logger.warning if filled.failure else logger.info
    say(
        "order failed" if filled.failure else "order handled",
        job_id=job,
        attempt=attempt,
        state=filled.order.state if filled.order else None,
        reason=filled.reason,
        launched=[i.instance_id for i in filled.launched],
        refused=[e.code for e in filled.refused],
    )
