"""
Alarms that say what to do, and one dashboard.

Every alarm is of the plain kind (one metric, one threshold) and names its paragraph of
docs/operations.md, so that whoever is woken reads one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.config import Config
from infra.constructs.python_function import PythonFunction
from infra.constructs.state import State
from reprieve.metrics import NAMESPACE, Metric

MANUAL = "docs/operations.md"

# Half of what SSM, the agent and the upload need to work with: older means nobody is taking.
INTAKE_AGE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class JobAlarm:
    """An alarm on a count of ours within five minutes."""

    metric: Metric
    says: str


JOB_ALARMS = {
    "NoticeWithoutCheckpoint": JobAlarm(
        Metric.NOTICE_WITHOUT_CHECKPOINT,
        "A host was taken with notice and its job had no new committed checkpoint",
    ),
    "LossWithoutNotice": JobAlarm(
        Metric.LOSS_WITHOUT_NOTICE,
        "A host vanished with a live attempt and nobody announced it",
    ),
    "OrdersUnfilled": JobAlarm(Metric.UNFILLED, "Every tier refused a replacement host"),
    "JobsParked": JobAlarm(Metric.PARKED, "A job waits for capacity or for you"),
    "LeaseAnomalies": JobAlarm(
        Metric.ANOMALIES, "A lease is held by a host that should not hold it"
    ),
    "CannotTell": JobAlarm(
        Metric.CANNOT_TELL, "Too many leases fell silent together to judge any of them"
    ),
}


class Watch(Construct):
    """Topic, alarms, dashboard."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        stack_name: str,
        state: State,
        functions: Mapping[str, PythonFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._stack_name = stack_name
        self.topic = sns.Topic(
            self, "Alarms", display_name=f"{stack_name} alarms", enforce_ssl=True
        )
        if config.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(config.alarm_email))
        self._dead_letters(state)
        self._intake_age(state)
        self._errors(functions)
        for name, alarm in JOB_ALARMS.items():
            self._alarm(name, self._ours(alarm.metric), alarm.says)
        self._dead_man()
        self._dashboard(state, functions)

    def _dead_letters(self, state: State) -> None:
        for name, queue in state.dead_letters.items():
            self._alarm(
                f"{name}DeadLetters",
                queue.metric_approximate_number_of_messages_visible(
                    period=Duration.minutes(1), statistic="Maximum"
                ),
                f"Something from {name} could not be handled and waits for you",
                paragraph="dead-letters",
            )

    def _intake_age(self, state: State) -> None:
        self._alarm(
            "IntakeAge",
            state.intake.metric_approximate_age_of_oldest_message(
                period=Duration.minutes(1), statistic="Maximum"
            ),
            f"A notice waits for over {INTAKE_AGE_SECONDS} s of its two minutes",
            threshold=INTAKE_AGE_SECONDS,
        )

    def _errors(self, functions: Mapping[str, PythonFunction]) -> None:
        for name, function in functions.items():
            self._alarm(
                f"{function.node.id}Errors",
                function.function.metric_errors(period=Duration.minutes(5), statistic="Sum"),
                f"{name} raised: its messages are retried, then become dead letters",
                paragraph="function-errors",
            )

    def _dead_man(self) -> None:
        """Alarm on silence: missing data is the symptom."""
        self._alarm(
            "SweepsMissing",
            self._ours(Metric.SWEEPS),
            "No sweep completed for five minutes: what a lost event left undone stays undone",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _ours(self, metric: Metric, *, statistic: str = "Sum") -> cloudwatch.Metric:
        """Return a metric of ours, with the dimension that the functions set."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=metric.value,
            dimensions_map={"service": self._stack_name},
            statistic=statistic,
            period=Duration.minutes(5),
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        says: str,
        *,
        paragraph: str | None = None,
        threshold: int = 1,
        comparison: cloudwatch.ComparisonOperator = (
            cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        ),
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        anchor = paragraph or _dashed(name)
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_description=f"{says}. What to do: {MANUAL}#{anchor}",
            metric=metric,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=comparison,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))

    def _dashboard(self, state: State, functions: Mapping[str, PythonFunction]) -> None:
        """Four rows: what was announced and saved, hosts, jobs, and the machinery itself."""
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self._stack_name,
            widgets=[
                [
                    _graph(
                        "Notices",
                        self._ours(Metric.NOTICES),
                        self._ours(Metric.STALE),
                        self._ours(Metric.SIGNALS_UNDELIVERED),
                        self._ours(Metric.STRANGERS),
                    ),
                    _graph(
                        "Checkpoints",
                        self._ours(Metric.CHECKPOINTS),
                        self._ours(Metric.NOTICE_WITHOUT_CHECKPOINT),
                        self._ours(Metric.LOSS_WITHOUT_NOTICE),
                    ),
                    _graph(
                        "Seconds left at commit, worst",
                        self._ours(Metric.CHECKPOINT_LEAD, statistic="Minimum"),
                    ),
                ],
                [
                    _graph(
                        "Hosts",
                        self._ours(Metric.LAUNCHED),
                        self._ours(Metric.RETIRED),
                        self._ours(Metric.UNFILLED),
                    ),
                    _graph(
                        "Jobs",
                        self._ours(Metric.JOBS_SUCCEEDED),
                        self._ours(Metric.JOBS_FAILED),
                        self._ours(Metric.PARKED),
                    ),
                    _graph("Steps to train again", self._ours(Metric.STEPS_LOST)),
                ],
                [
                    _graph(
                        "Age of the oldest message, s",
                        *(
                            queue.metric_approximate_age_of_oldest_message(label=name)
                            for name, queue in (
                                ("intake", state.intake),
                                ("orders", state.orders),
                                ("reports", state.reports),
                                *state.work.items(),
                            )
                        ),
                    ),
                    _graph(
                        "Dead letters",
                        *(
                            queue.metric_approximate_number_of_messages_visible(label=name)
                            for name, queue in state.dead_letters.items()
                        ),
                    ),
                    _graph(
                        "Function errors",
                        *(f.function.metric_errors(label=name) for name, f in functions.items()),
                    ),
                ],
            ],
        )


def _graph(title: str, *metrics: cloudwatch.Metric) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8, height=6)


def _dashed(name: str) -> str:
    """Return ``IntakeAge`` as ``intake-age``, the anchor of its paragraph."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).removeprefix("-")
