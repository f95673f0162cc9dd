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
# Orders and reports may come back a few times; after that it isn't chance.
QUEUE_AGE_SECONDS = 300
# The function ends after 55 s, and the next sweep begins after 60.
SWEEP_SECONDS = 40
# A twelfth of the notice: the upload ended, but only just.
LEAD_OF_NOTICE = 1 / 12

AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
LESS_THAN = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


@dataclass(frozen=True, slots=True)
class JobAlarm:
    """An alarm on a metric of ours over five minutes."""

    metric: Metric
    says: str
    threshold: float = 1
    statistic: str = "Sum"
    comparison: cloudwatch.ComparisonOperator = AT_LEAST


JOB_ALARMS = {
    "NoticeWithoutCheckpoint": JobAlarm(
        Metric.NOTICE_WITHOUT_CHECKPOINT,
        "A host was taken with notice and its job had no new committed checkpoint",
    ),
    "LossWithoutNotice": JobAlarm(
        Metric.LOSS_WITHOUT_NOTICE,
        "A host vanished with a live attempt and nobody announced it",
    ),
    "CheckpointsQuarantined": JobAlarm(
        Metric.QUARANTINED, "A committed checkpoint turned out to be bad and was passed over"
    ),
    "OrdersUnfilled": JobAlarm(Metric.UNFILLED, "Every tier refused a replacement host"),
    "OrdersRungAgain": JobAlarm(
        Metric.RUNG_AGAIN, "An order for a host got no answer for two notices"
    ),
    "LaunchesOverQuota": JobAlarm(Metric.OVER_QUOTA, "EC2 named a quota of the account"),
    "LaunchesMisconfigured": JobAlarm(
        Metric.MISCONFIGURED, "EC2 refused a launch that no retry mends: parameter or permission"
    ),
    "SubnetsFull": JobAlarm(Metric.SUBNETS_FULL, "A subnet has no address left for a host"),
    "PoolsAtCap": JobAlarm(Metric.AT_CAP, "A cap of the pool keeps a job from a host"),
    "JobsParked": JobAlarm(Metric.PARKED, "A job waits for capacity or for you"),
    "JobsNeedYou": JobAlarm(Metric.NEEDS_YOU, "A job waits until somebody says so"),
    "JobsWithoutProgress": JobAlarm(
        Metric.NO_PROGRESS, "A job was interrupted again and again without a new checkpoint"
    ),
    "JobsWithoutValidCheckpoint": JobAlarm(
        Metric.NO_VALID_CHECKPOINT, "Every checkpoint of a job is bad, and it did not start over"
    ),
    "HostsNeverReady": JobAlarm(
        Metric.NEVER_READY, "A host was launched and its agent was never heard"
    ),
    "HostsSilent": JobAlarm(Metric.SILENT, "A host that EC2 calls running was given up as silent"),
    "StraysFound": JobAlarm(Metric.STRAYS, "An instance with our tag had no row"),
    "SignalsUndelivered": JobAlarm(
        Metric.SIGNALS_UNDELIVERED, "SSM could not tell three hosts or more", threshold=3
    ),
    "LeaseAnomalies": JobAlarm(
        Metric.ANOMALIES, "A lease is held by a host that should not hold it"
    ),
    "ReportsForged": JobAlarm(Metric.FORGED, "A host sent a report in another host's name"),
    "MessagesMalformed": JobAlarm(Metric.MALFORMED, "A message came that nobody can read"),
    "CannotTell": JobAlarm(
        Metric.CANNOT_TELL, "Too many leases fell silent together to judge any of them"
    ),
    "SweepsSlow": JobAlarm(
        Metric.SWEEP_TIME,
        f"A sweep took {SWEEP_SECONDS} s or more of its 55",
        threshold=SWEEP_SECONDS,
        statistic="Maximum",
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
        self._ages(state)
        self._errors(functions)
        for name, alarm in JOB_ALARMS.items():
            self._job_alarm(name, alarm)
        self._checkpoint_lead(config.notice_seconds)
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

    def _ages(self, state: State) -> None:
        for name, queue, seconds, says in (
            (
                "Intake",
                state.intake,
                INTAKE_AGE_SECONDS,
                "A notice waits for {} s of its two minutes",
            ),
            ("Orders", state.orders, QUEUE_AGE_SECONDS, "An order for a host waits for {} s"),
            ("Reports", state.reports, QUEUE_AGE_SECONDS, "A report of a host waits for {} s"),
        ):
            self._alarm(
                f"{name}Age",
                queue.metric_approximate_age_of_oldest_message(
                    period=Duration.minutes(1), statistic="Maximum"
                ),
                says.format(f"over {seconds}"),
                threshold=seconds,
            )

    def _errors(self, functions: Mapping[str, PythonFunction]) -> None:
        for name, function in functions.items():
            self._alarm(
                f"{function.node.id}Errors",
                function.function.metric_errors(period=Duration.minutes(5), statistic="Sum"),
                f"{name} raised: its messages are retried, then become dead letters",
                paragraph="function-errors",
            )

    def _job_alarm(self, name: str, alarm: JobAlarm) -> None:
        self._alarm(
            name,
            self._ours(alarm.metric, statistic=alarm.statistic),
            alarm.says,
            threshold=alarm.threshold,
            comparison=alarm.comparison,
        )

    def _checkpoint_lead(self, notice_seconds: float) -> None:
        """Alarm before it fails: a state that only just fits will not fit once more."""
        self._job_alarm(
            "CheckpointLead",
            JobAlarm(
                Metric.CHECKPOINT_LEAD,
                "A checkpoint was committed only just before its host was taken",
                threshold=notice_seconds * LEAD_OF_NOTICE,
                statistic="Minimum",
                comparison=LESS_THAN,
            ),
        )

    def _dead_man(self) -> None:
        """Alarm on silence: missing data is the symptom."""
        self._alarm(
            "SweepsMissing",
            self._ours(Metric.SWEEPS),
            "No sweep completed for five minutes: what a lost event left undone stays undone",
            comparison=LESS_THAN,
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
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = AT_LEAST,
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
                        self._ours(Metric.FOREIGN),
                        self._ours(Metric.UNKNOWN_EVENTS),
                    ),
                    _graph(
                        "Checkpoints",
                        self._ours(Metric.CHECKPOINTS),
                        self._ours(Metric.FOUND),
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
