"""From what was decided to what is counted; the alarms watch these names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aws_lambda_powertools.metrics import Metrics, MetricUnit

from reprieve.domain.job import JobStatus
from reprieve.domain.settlement import Decision, End, Move, Nothing
from reprieve.metrics import NAMESPACE, Metric

if TYPE_CHECKING:
    from reprieve.domain.job import Job


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
            _count_status(metrics, decision.job)
            if decision.ended.steps_lost:
                count(metrics, Metric.STEPS_LOST, decision.ended.steps_lost)
            if decision.lost:
                count(metrics, Metric.LOSS_WITHOUT_NOTICE)
            if decision.unsaved:
                count(metrics, Metric.NOTICE_WITHOUT_CHECKPOINT)
        case _:
            return


def _count_status(metrics: Metrics, job: Job) -> None:
    counted = {
        JobStatus.SUCCEEDED: Metric.JOBS_SUCCEEDED,
        JobStatus.FAILED: Metric.JOBS_FAILED,
        JobStatus.PARKED: Metric.PARKED,
    }
    if job.status in counted:
        count(metrics, counted[job.status])
