"""A host's word about what it did: check its sender, keep it, settle its job."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from reprieve.domain.errors import MalformedError, ReprieveError
from reprieve.edge.events import is_command_status, read_event, undelivered_command
from reprieve.edge.observe import count, count_decision, count_recorded, stack_metrics
from reprieve.edge.records import attested_instance, come_back
from reprieve.edge.settings import RecordReportSettings
from reprieve.edge.wiring import Wired, wire
from reprieve.metrics import Metric
from reprieve.protocol import Report, ReportKind
from reprieve.usecases.record_report import number

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from reprieve.usecases.record_report import Recorded

WITHIN_SECONDS = 30

logger = Logger()
metrics = stack_metrics()


@cache
def wired() -> Wired[RecordReportSettings]:
    """Wire once per execution environment."""
    return wire(RecordReportSettings.load(), told=partial(count_decision, metrics))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def lambda_handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Record each report by itself; one that failed comes back alone."""
    count(metrics, Metric.CHECKPOINTS, 0)
    failed: list[str] = []
    for record in event["Records"]:
        try:
            _record(record)
        except ReprieveError as error:
            if isinstance(error, MalformedError):
                count(metrics, Metric.MALFORMED)
            logger.warning("report failed", message_id=record["messageId"], reason=str(error))
            failed.append(record["messageId"])
    return come_back(
        event,
        failed,
        sqs=wired().sqs,
        queue_url=wired().settings.reports_queue_url,
        within_seconds=WITHIN_SECONDS,
    )


def _record(record: dict[str, Any]) -> None:
    if _is_command_status(record["body"]):
        return
    report = Report.from_json(record["body"])
    attested = wired().settings.attested_sender == "on"
    recorded = wired().uses.record_report(
        report, sender=attested_instance(record) if attested else None
    )
    _count(recorded)
    logger.info(
        "report recorded" if recorded.refusal is None else "report refused",
        instance_id=report.instance_id,
        kind=report.kind,
        job_id=report.key.job if report.key else None,
        attempt=report.key.attempt if report.key else None,
        reason=recorded.refusal or getattr(recorded.decision, "reason", ""),
    )


def _is_command_status(body: str) -> bool:
    """Count an SSM command that didn't run: the metadata path is then the only one left."""
    event = read_event(body)
    if not is_command_status(event):
        return False
    failure = undelivered_command(event)
    if failure:
        count(metrics, Metric.SIGNALS_UNDELIVERED)
        logger.warning("command not delivered", status=failure, detail=event.get("detail"))
    return True


def _count(recorded: Recorded) -> None:
    count_recorded(metrics, recorded)
    if recorded.refusal is not None:
        return
    report = recorded.report
    if report.kind is ReportKind.COMMITTED or "committed_s" in report.data:
        count(metrics, Metric.CHECKPOINTS)
        lead = number(report.data.get("lead_seconds"))
        if lead is not None:
            count(metrics, Metric.CHECKPOINT_LEAD, lead)
