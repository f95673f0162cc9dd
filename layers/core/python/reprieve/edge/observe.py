"""From what was decided to what is counted; the alarms watch these names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import Metrics, MetricUnit

from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause
from reprieve.domain.order import ErrorClass, OrderState, classify
from reprieve.domain.settlement import Decision, End, Move, Nothing
from reprieve.metrics import NAMESPACE, Metric
from reprieve.usecases.record_report import QUARANTINED, Refusal
from reprieve.usecases.sweep_hosts import NEVER_READY

if TYPE_CHECKING:
    from reprieve.domain.job import Job
    from reprieve.usecases.known_pool import Filled
    from reprieve.usecases.record_report import Recorded
    from reprieve.usecases.sweep_view import Swept

SUBNET_FULL = "InsufficientFreeAddressesInSubnet"
OVER_QUOTA = frozenset({ErrorClass.LIMIT, ErrorClass.SPOT_LIMIT})
OUR_FAULT = frozenset({ErrorClass.CONFIGURATION, ErrorClass.PERMISSION, ErrorClass.OURS})


def stack_metrics() -> Metrics:
    """
    Return the metrics of this function, under the one dimension that all functions share.

    A loss may be found by any of the four, and its alarm must see it wherever it was.
    """
    return Metrics(namespace=NAMESPACE, service=os.environ.get("STACK", "Reprieve"))


def count(metrics: Metrics, metric: Metric, value: float = 1) -> None:
    """Add *value* to *metric*; its unit is in its name."""
    seconds = metric.endswith("Seconds")
    unit = MetricUnit.Seconds if seconds else MetricUnit.Count
    metrics.add_metric(name=metric, unit=unit, value=value)


def count_decision(metrics: Metrics, decision: Decision) -> None:
    """Count what a settlement did."""
    match decision:
        case Nothing(_, anomaly=True):
            count(metrics, Metric.ANOMALIES)
        case Move(job):
            _count_status(metrics, job)
        case End():
            _count_end(metrics, decision)
        case _:
            return


def count_filled(metrics: Metrics, filled: Filled) -> None:
    """Count what became of an order, and what of EC2's refusals only a person can mend."""
    count(metrics, Metric.LAUNCHED, len(filled.launched))
    if filled.order and filled.order.state is OrderState.UNFILLED:
        count(metrics, Metric.UNFILLED)
    codes = {error.code for error in filled.refused}
    classes = {classify(code) for code in codes}
    if classes & OVER_QUOTA:
        count(metrics, Metric.OVER_QUOTA)
    if classes & OUR_FAULT:
        count(metrics, Metric.MISCONFIGURED)
    if SUBNET_FULL in codes:
        count(metrics, Metric.SUBNETS_FULL)
    if filled.at_cap:
        count(metrics, Metric.AT_CAP)


def count_recorded(metrics: Metrics, recorded: Recorded) -> None:
    """Count a report that was forged, and a checkpoint that a restore found to be bad."""
    if recorded.refusal is Refusal.SENDER:
        count(metrics, Metric.FORGED)
    elif recorded.refusal is None and QUARANTINED in recorded.report.data:
        count(metrics, Metric.QUARANTINED)


def count_swept(metrics: Metrics, swept: Swept, *, seconds: float) -> None:
    """Count what a sweep found; that it completed is for the handler to say."""
    count(metrics, Metric.SWEEP_TIME, seconds)
    found = {
        Metric.RETIRED: len(swept.retired),
        Metric.CANNOT_TELL: len(swept.cannot_tell),
        Metric.NEVER_READY: sum(why == NEVER_READY for why in swept.retired.values()),
        Metric.SILENT: len(swept.silent),
        Metric.STRAYS: len(swept.strays.lost) + len(swept.strays.unclaimed),
        Metric.RUNG_AGAIN: len(swept.rung),
        Metric.FOUND: len(swept.found),
        Metric.ANOMALIES: len(swept.anomalies),
    }
    for metric, number in found.items():
        if number:
            count(metrics, metric, number)


def _count_end(metrics: Metrics, end: End) -> None:
    _count_status(metrics, end.job)
    if end.ended.steps_lost:
        count(metrics, Metric.STEPS_LOST, end.ended.steps_lost)
    if end.lost:
        count(metrics, Metric.LOSS_WITHOUT_NOTICE)
    if end.unsaved:
        count(metrics, Metric.NOTICE_WITHOUT_CHECKPOINT)
    if end.stuck:
        count(metrics, Metric.NO_PROGRESS)
    if end.ended.cause is Cause.NO_VALID_CHECKPOINT:
        count(metrics, Metric.NO_VALID_CHECKPOINT)


def _count_status(metrics: Metrics, job: Job) -> None:
    counted = {
        JobStatus.SUCCEEDED: Metric.JOBS_SUCCEEDED,
        JobStatus.FAILED: Metric.JOBS_FAILED,
        JobStatus.PARKED: Metric.PARKED,
    }
    if job.status in counted:
        count(metrics, counted[job.status])
    if job.needs_you:
        count(metrics, Metric.NEEDS_YOU)
