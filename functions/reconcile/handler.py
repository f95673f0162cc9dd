"""Every minute: the table, EC2 and the queues agree again."""

from __future__ import annotations

import time
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.edge.observe import count, count_decision, count_swept, stack_metrics
from reprieve.edge.settings import ReconcileSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

# Kept for the piece of work under way, and for telling what was done.
RESERVE_MS = 10_000

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[ReconcileSettings]:
    """Wire once per execution environment."""
    return wire(ReconcileSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(_event: dict[str, Any], context: LambdaContext) -> None:
    """Sweep once. What failed is raised after everything else was swept."""
    began = time.monotonic()
    swept = wired().uses.reconcile(lambda: context.get_remaining_time_in_millis() < RESERVE_MS)
    seconds = round(time.monotonic() - began, 3)
    count_swept(metrics, swept, seconds=seconds)
    logger.info(
        "swept",
        seconds=seconds,
        jobs=swept.jobs,
        hosts=swept.hosts,
        unfinished=swept.unfinished,
        unannounced=swept.unannounced,
        unheard=swept.unheard,
        silent=swept.silent,
        cannot_tell=swept.cannot_tell,
        anomalies=swept.anomalies,
        retired=swept.retired,
        adopted=dict(swept.strays.adopted),
        strays=swept.strays.lost,
        unclaimed=swept.strays.unclaimed,
        rung=swept.rung,
        reordered=swept.reordered,
        closed=swept.closed,
        found=swept.found,
        collected=swept.collected,
        failures=[f"{type(error).__name__}: {error}" for error in swept.failures],
    )
    if swept.failures:
        # Everything else was done. The platform counts the error; the next sweep repeats.
        message = "parts of the sweep failed"
        raise ExceptionGroup(message, swept.failures)
    count(metrics, Metric.SWEEPS)
