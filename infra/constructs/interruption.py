"""Rules -> queues -> functions: how the cloud's word reaches a job, and what each step may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import AssetHashType, Aws, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import Config, compact, pool_entry
from infra.constructs.fleet import Fleet
from infra.constructs.grants import statement
from infra.constructs.python_function import RETENTION, PythonFunction
from infra.constructs.rights import Rights
from infra.constructs.state import State
from infra.packages import Built, core_layer, runtime_layer
from reprieve import detail_types
from reprieve.detail_types import DetailType, Source

# EventBridge gives up after this, and an older notice has nothing left to announce.
MAX_EVENT_AGE = Duration.seconds(120)


@dataclass(frozen=True, slots=True)
class Consumer:
    """How a function takes from its queue."""

    batch_size: int
    window: Duration | None
    max_concurrency: int
    timeout: Duration


# A mass reclaim arrives as many small messages: 50 a batch is one SendCommand, and Lambda wants a
# window of a second for batches over 10.
NOTICES = Consumer(50, Duration.seconds(1), 10, Duration.seconds(10))
# Five at a time, because CreateFleet refills at five a second for the whole account.
ORDERS = Consumer(10, None, 5, Duration.seconds(60))
REPORTS = Consumer(10, None, 10, Duration.seconds(30))
# Shorter than its period, so that two sweeps never overlap.
SWEEP_TIMEOUT = Duration.seconds(55)


class Interruption(Construct):
    """The four functions and what wakes them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        stack_name: str,
        state: State,
        fleet: Fleet,
    ) -> None:
        super().__init__(scope, construct_id)
        self._config = config
        self._stack_name = stack_name
        self._state = state
        self._fleet = fleet
        self._rights = Rights(stack_name, state, fleet)
        self._layers = self._make_layers()
        self._shared = self._shared_environment()

        self.handle_notice = self._handle_notice()
        self.replace_host = self._replace_host()
        self.record_report = self._record_report()
        self.reconcile = self._reconcile()
        self._rules()

    @property
    def functions(self) -> Mapping[str, PythonFunction]:
        """The functions by name."""
        return {
            "handle_notice": self.handle_notice,
            "replace_host": self.replace_host,
            "record_report": self.record_report,
            "reconcile": self.reconcile,
        }

    # Functions

    def _handle_notice(self) -> PythonFunction:
        function = self._function(
            "handle_notice",
            "EC2 says a host will go: have its job checkpointed and order a replacement",
            timeout=NOTICES.timeout,
            memory_mb=1769,  # one full CPU: a cold start is paid out of the two minutes
            environment={
                "INTAKE_QUEUE_URL": self._state.intake.queue_url,
                "SSM_DOCUMENT": self._fleet.document_name,
            },
        )
        self._consume(function, self._state.intake, NOTICES)
        self._rights.settle(function)
        self._rights.signal(function)
        return function

    def _replace_host(self) -> PythonFunction:
        function = self._function(
            "replace_host",
            "Plan and launch a replacement host, or say why there is none",
            timeout=ORDERS.timeout,
            memory_mb=1024,
            environment={},
        )
        self._consume(function, self._state.orders, ORDERS)
        self._rights.settle(function)
        self._rights.launch(function)
        return function

    def _record_report(self) -> PythonFunction:
        function = self._function(
            "record_report",
            "A host reports: move its job and queue what follows",
            timeout=REPORTS.timeout,
            memory_mb=1024,
            environment={
                "REPORTS_QUEUE_URL": self._state.reports.queue_url,
                "ATTESTED_SENDER": "on",
            },
        )
        self._consume(function, self._state.reports, REPORTS)
        self._rights.settle(function)
        return function

    def _reconcile(self) -> PythonFunction:
        function = self._function(
            "reconcile",
            "Every minute: finish what a lost event or a dead process left half done",
            timeout=SWEEP_TIMEOUT,
            memory_mb=1769,
            environment={
                "CHECKPOINTS_BUCKET": self._state.bucket.bucket_name,
                "KEEP_CHECKPOINTS": str(self._config.keep_checkpoints),
                "KEEP_EVERY_STEPS": str(self._config.keep_every_steps),
                "SSM_DOCUMENT": self._fleet.document_name,
            },
        )
        self._rights.settle(function)
        self._rights.signal(function)
        self._rights.collect(function)
        self._schedule(function)
        return function

    def _function(
        self,
        name: str,
        description: str,
        *,
        timeout: Duration,
        memory_mb: int,
        environment: Mapping[str, str],
    ) -> PythonFunction:
        return PythonFunction(
            self,
            "".join(part.capitalize() for part in name.split("_")),
            name=name,
            description=description,
            environment={**self._shared, **environment},
            layers=self._layers,
            timeout=timeout,
            memory_mb=memory_mb,
            log_retention=RETENTION[self._config.log_days],
        )

    def _make_layers(self) -> list[lambda_.LayerVersion]:
        return [
            self._layer("CoreLayer", core_layer()),
            self._layer("RuntimeLayer", runtime_layer()),
        ]

    def _layer(self, construct_id: str, built: Built) -> lambda_.LayerVersion:
        """Ship the folder as it was built: byte code is part of it."""
        return lambda_.LayerVersion(
            self,
            construct_id,
            code=lambda_.Code.from_asset(
                str(built.folder),
                asset_hash=built.digest,
                asset_hash_type=AssetHashType.CUSTOM,
            ),
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
            compatible_architectures=[lambda_.Architecture.ARM_64],
        )

    def _shared_environment(self) -> dict[str, str]:
        pools = {
            name: pool_entry(
                pool,
                launch_template=self._fleet.templates[name].id,
                launch_template_version=self._fleet.templates[name].version,
                work_queue_url=self._state.work[name].queue_url,
            )
            for name, pool in self._config.pools.items()
        }
        return {
            "STACK": self._stack_name,
            "JOBS_TABLE": self._state.table.table_name,
            "ORDERS_QUEUE_URL": self._state.orders.queue_url,
            "POOLS": compact(pools),
            "SUBNETS": compact(self._fleet.subnets),
            "NOTICE_SECONDS": str(self._config.notice_seconds),
        }

    # What wakes them

    def _consume(self, function: PythonFunction, queue: sqs.Queue, consumer: Consumer) -> None:
        function.allow(
            "TakeFromItsQueue",
            [
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:ChangeMessageVisibility",
                "sqs:GetQueueAttributes",
            ],
            [queue.queue_arn],
        )
        function.function.add_event_source(
            event_sources.SqsEventSource(
                queue,
                batch_size=consumer.batch_size,
                max_batching_window=consumer.window,
                max_concurrency=consumer.max_concurrency,
                report_batch_item_failures=True,
            )
        )

    def _rules(self) -> None:
        """
        Send what EC2, Health and Auto Scaling announce to the intake, SSM's answers to the reports.

        No rule can ask whether an instance is ours: events can't be filtered by tag.
        """
        undelivered = self._state.dead_letter_queue("Undelivered")
        intake, reports = self._state.intake, self._state.reports
        rules: dict[str, tuple[str, events.EventPattern, sqs.Queue]] = {
            "Interruption": (
                "EC2 takes an instance back in two minutes",
                events.EventPattern(
                    source=[Source.EC2],
                    detail_type=[
                        DetailType.SPOT_INTERRUPTION,
                        DetailType.RESERVATION_INTERRUPTION,
                        DetailType.INTERRUPTIBLE_RESERVATION,
                    ],
                ),
                intake,
            ),
            "BlockExpiry": (
                "A Capacity Block ends in 40 minutes, its instances in ten",
                events.EventPattern(source=[Source.EC2], detail_type=[DetailType.BLOCK_EXPIRY]),
                intake,
            ),
            "Rebalance": (
                "EC2 thinks an instance is at elevated risk",
                events.EventPattern(source=[Source.EC2], detail_type=[DetailType.REBALANCE]),
                intake,
            ),
            "Leaving": (
                "An instance stops or terminates, whoever asked for it",
                events.EventPattern(
                    source=[Source.EC2],
                    detail_type=[DetailType.STATE_CHANGE],
                    detail={"state": list(detail_types.STATES_OF_LEAVING)},
                ),
                intake,
            ),
            "Maintenance": (
                "AWS Health schedules a change of EC2 instances",
                events.EventPattern(
                    source=[Source.HEALTH],
                    detail_type=[DetailType.HEALTH],
                    detail={
                        "service": [detail_types.HEALTH_SERVICE],
                        "eventTypeCategory": [detail_types.HEALTH_CATEGORY],
                    },
                ),
                intake,
            ),
            "ScaleIn": (
                "An Auto Scaling group is about to terminate an instance of its own",
                events.EventPattern(
                    source=[Source.AUTO_SCALING],
                    detail_type=[DetailType.SCALE_IN],
                    detail={"LifecycleTransition": [detail_types.TERMINATING]},
                ),
                intake,
            ),
            "CommandEnded": (
                "SSM knows how our command ended on a host",
                events.EventPattern(
                    source=[Source.SSM],
                    detail_type=[DetailType.COMMAND_STATUS],
                    detail={
                        "document-name": [self._fleet.document_name],
                        "status": list(detail_types.COMMAND_ENDED),
                    },
                ),
                reports,
            ),
        }
        for name, (description, pattern, queue) in rules.items():
            events.Rule(
                self,
                f"{name}Rule",
                description=description,
                event_pattern=pattern,
                targets=[
                    targets.SqsQueue(
                        queue, dead_letter_queue=undelivered, max_event_age=MAX_EVENT_AGE
                    )
                ],
            )

    def _schedule(self, function: PythonFunction) -> None:
        """Sweep every minute; a sweep that failed isn't repeated, because the next one is due."""
        dead = self._state.dead_letter_queue("Sweep")
        function.allow("TellOfFailure", ["sqs:SendMessage"], [dead.queue_arn])
        function.function.configure_async_invoke(
            retry_attempts=0,
            max_event_age=Duration.seconds(60),
            on_failure=destinations.SqsDestination(dead),
        )
        role = iam.Role(
            self,
            "ScheduleRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            ),
            description="Reprieve: the schedule invokes reconcile",
        )
        function_arn = function.function.function_arn
        for sid, action, resource in (
            ("Sweep", "lambda:InvokeFunction", function_arn),
            ("TellOfFailure", "sqs:SendMessage", dead.queue_arn),
        ):
            role.add_to_policy(statement(sid, [action], [resource]))
        schedule = scheduler.CfnSchedule(
            self,
            "Schedule",
            description="Reprieve: sweep",
            schedule_expression="rate(1 minute)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function_arn,
                role_arn=role.role_arn,
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(
                    arn=dead.queue_arn
                ),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=0
                ),
            ),
        )
        schedule.node.add_dependency(role)
