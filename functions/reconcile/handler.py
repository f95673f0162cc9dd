"""Every minute: the table, EC2 and the queues agree again."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.edge.observe import count, count_decision, stack_metrics
from reprieve.edge.settings import ReconcileSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[ReconcileSettings]:
    """Wire once per execution environment."""
    return wire(ReconcileSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(_event: dict[str, Any], _context: LambdaContext) -> None:
    """Sweep once. What failed is raised after everything else was swept."""
    swept = wired().uses.reconcile()
    count(metrics, Metric.RETIRED, len(swept.retired))
    count(metrics, Metric.CANNOT_TELL, swept.cannot_tell)
    logger.info(
        "swept",
        jobs=swept.jobs,
        unannounced=swept.unannounced,
        silent=swept.silent,
        cannot_tell=swept.cannot_tell,
        retired=swept.retired,
        strays=swept.strays,
        reordered=swept.reordered,
        failures=[str(error) for error in swept.failures],
    )
    if swept.failures:
        # Everything else was done. The platform counts the error; the next sweep repeats.
        message = "parts of the sweep failed"
        raise ExceptionGroup(message, swept.failures)
    count(metrics, Metric.SWEEPS)
