"""The one stack: what is kept, what is launched, what reacts, what watches."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Aws, CfnOutput, Stack, Tags, aws_iam as iam
from constructs import Construct

from infra.config import Config, compact, pascal, pool_entry
from infra.constructs.fleet import STACK_TAG, Fleet, leading_keys
from infra.constructs.interruption import Interruption
from infra.constructs.state import LIVE_INDEX, State
from infra.constructs.watch import Watch


class ReprieveStack(Stack):
    """One stack, so that a bare ``cdk deploy`` deploys everything."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Reprieve: GPU jobs on EC2 Spot that survive their hosts",
            analytics_reporting=False,
        )
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
        self._submit_policy(name)
        self._outputs(config)
        Tags.of(self).add(STACK_TAG, name)
        for key, value in config.tags.items():
            Tags.of(self).add(key, value)

    def _submit_policy(self, name: str) -> None:
        """Attach this to whoever submits jobs: all of the CLI but drains, drills and deploys."""
        table, bucket = self.state.table, self.state.bucket
        statements: Mapping[str, tuple[list[str], list[str], dict[str, object] | None]] = {
            "FindTheStack": (
                ["cloudformation:DescribeStacks"],
                [
                    f"arn:{Aws.PARTITION}:cloudformation:{Aws.REGION}:{Aws.ACCOUNT_ID}:stack/{name}/*"
                ],
                None,
            ),
            "Jobs": (
                [
                    "dynamodb:GetItem",
                    "dynamodb:BatchGetItem",
                    "dynamodb:Query",
                    "dynamodb:PutItem",
                    "dynamodb:UpdateItem",
                    "dynamodb:ConditionCheckItem",
                ],
                [table.table_arn],
                leading_keys("JOB#*", "LEASE#*", "ORDER#*"),
            ),
            "Timeline": (["dynamodb:BatchWriteItem"], [table.table_arn], leading_keys("JOB#*")),
            "SeeHosts": (
                ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"],
                [table.table_arn],
                leading_keys("HOST#*", "POOL#*"),
            ),
            "ListLive": (
                ["dynamodb:Query"],
                [f"{table.table_arn}/index/{LIVE_INDEX}"],
                leading_keys("POOL#*"),
            ),
            "UploadCode": (
                ["s3:PutObject", "s3:AbortMultipartUpload"],
                [bucket.arn_for_objects("code/*")],
                None,
            ),
            "ReadCheckpointsAndCode": (
                ["s3:GetObject"],
                [bucket.arn_for_objects("jobs/*"), bucket.arn_for_objects("code/*")],
                None,
            ),
            "ListCheckpoints": (
                ["s3:ListBucket"],
                [bucket.bucket_arn],
                {"StringLike": {"s3:prefix": ["jobs/*", "code/*"]}},
            ),
            "OrdersAndTickets": (
                ["sqs:SendMessage"],
                [self.state.orders.queue_arn, *(q.queue_arn for q in self.state.work.values())],
                None,
            ),
            "ReadJobLogs": (
                ["logs:GetLogEvents", "logs:FilterLogEvents"],
                [self.fleet.job_log.log_group_arn],
                None,
            ),
        }
        policy = iam.ManagedPolicy(
            self,
            "SubmitPolicy",
            managed_policy_name=f"{name}-submit",
            description="Reprieve: submit jobs and follow them",
        )
        for sid, (actions, resources, conditions) in statements.items():
            policy.add_statements(
                iam.PolicyStatement(
                    sid=sid, actions=actions, resources=resources, conditions=conditions
                )
            )

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
