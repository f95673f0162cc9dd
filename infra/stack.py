"""The one stack: what is kept, what is launched, what reacts, what watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnOutput, Stack, Tags
from aws_cdk import aws_iam as iam

from infra.config import Config, compact, pascal, pool_entry
from infra.constructs.fleet import Fleet
from infra.constructs.grants import STACK_TAG
from infra.constructs.interruption import Interruption
from infra.constructs.people import People
from infra.constructs.state import State
from infra.constructs.watch import Watch

if TYPE_CHECKING:
    from constructs import Construct


class ReprieveStack(Stack):
    """One stack, so that a bare ``cdk deploy`` deploys everything."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Reprieve: GPU jobs on EC2 Spot that survive their hosts",
            analytics_reporting=False,
        )
        self.config = config
        name = construct_id
        if config.permissions_boundary_arn:
            iam.PermissionsBoundary.of(self).apply(
                iam.ManagedPolicy.from_managed_policy_arn(
                    self, "Boundary", config.permissions_boundary_arn
                )
            )
        self.state = State(self, "State", config=config)
        self.fleet = Fleet(self, "Fleet", config=config, stack_name=name, state=self.state)
        self.interruption = Interruption(
            self,
            "Interruption",
            config=config,
            stack_name=name,
            state=self.state,
            fleet=self.fleet,
        )
        self.watch = Watch(
            self,
            "Watch",
            config=config,
            stack_name=name,
            state=self.state,
            functions=self.interruption.functions,
        )
        self.people = People(self, "People", stack_name=name, state=self.state)
        self._outputs(config)
        Tags.of(self).add(STACK_TAG, name)
        for key, value in config.tags.items():
            Tags.of(self).add(key, value)

    def _outputs(self, config: Config) -> None:
        """Say what the CLI and the drills need; these names are stable."""
        values = {
            "JobsTable": self.state.table.table_name,
            "CheckpointsBucket": self.state.bucket.bucket_name,
            "OrdersQueueUrl": self.state.orders.queue_url,
            "ReportsQueueUrl": self.state.reports.queue_url,
            "IntakeQueueUrl": self.state.intake.queue_url,
            "HandleNoticeFunction": self.interruption.handle_notice.function.function_name,
            "ReplaceHostFunction": self.interruption.replace_host.function.function_name,
            "RecordReportFunction": self.interruption.record_report.function.function_name,
            "ReconcileFunction": self.interruption.reconcile.function.function_name,
            "SsmDocument": self.fleet.document_name,
            "AlarmTopic": self.watch.topic.topic_arn,
            "JobLogGroup": self.fleet.job_logs.log_group_name,
            "HostRole": self.fleet.host_role.role_arn,
            "Subnets": compact(self.fleet.subnets),
            **({"JobRole": config.job_role_arn} if config.job_role_arn else {}),
        }
        for name, pool in config.pools.items():
            template = self.fleet.templates[name]
            values[f"Pool{pascal(name)}"] = compact(
                pool_entry(
                    pool,
                    name=name,
                    launch_template=template.id,
                    launch_template_version=template.version,
                    work_queue_url=self.state.work[name].queue_url,
                )
            )
        for key, value in values.items():
            CfnOutput(self, key, value=value)
