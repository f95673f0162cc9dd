"""Fill orders for hosts through diversified fleets."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.domain.errors import ReprieveError
from reprieve.domain.order import OrderState
from reprieve.edge.observe import count, count_decision, stack_metrics
from reprieve.edge.records import failures
from reprieve.edge.settings import ReplaceHostSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric
from reprieve.protocol import OrderMessage

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[ReplaceHostSettings]:
    """Wire once per execution environment."""
    return wire(ReplaceHostSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Fill each order by itself; one that failed comes back alone."""
    count(metrics, Metric.LAUNCHED, 0)
    failed: list[str] = []
    for record in event["Records"]:
        try:
            _fill(OrderMessage.from_json(record["body"]))
        except ReprieveError as error:
            logger.warning("order failed", message_id=record["messageId"], reason=str(error))
            failed.append(record["messageId"])
    return failures(failed)


def _fill(message: OrderMessage) -> None:
    filled = wired().uses.replace_host(message.job, message.attempt)
    count(metrics, Metric.LAUNCHED, len(filled.launched))
    if filled.order and filled.order.state is OrderState.UNFILLED:
        count(metrics, Metric.UNFILLED)
    logger.info(
        "order handled",
        job_id=message.job,
        attempt=message.attempt,
        state=filled.order.state if filled.order else None,
        reason=filled.reason,
        launched=[i.instance_id for i in filled.launched],
        refused=[e.code for e in filled.refused],
    )
