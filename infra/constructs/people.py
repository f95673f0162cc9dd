"""What people need who submit jobs or operate hosts; whoever deploys gets nothing here."""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.grants import below, leading_keys, statement
from infra.constructs.rights import ITEMS
from infra.constructs.state import LIVE_INDEX, State


class People(Construct):
    """The managed policies ``<stack>-submit`` and, on top of it, ``<stack>-operate``."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stack_name: str, state: State
    ) -> None:
        super().__init__(scope, construct_id)
        table, bucket = state.table, state.bucket
        work = [queue.queue_arn for queue in state.work.values()]
        stack_arn = (
            f"arn:{Aws.PARTITION}:cloudformation:{Aws.REGION}:{Aws.ACCOUNT_ID}:stack/{stack_name}/*"
        )
        self.submit_policy = iam.ManagedPolicy(
            self,
            "Submit",
            managed_policy_name=f"{stack_name}-submit",
            description="Reprieve: submit jobs and follow them",
            statements=[
                statement("FindTheStack", ["cloudformation:DescribeStacks"], [stack_arn]),
                statement(
                    # One read names rows of all kinds, so one statement allows them all.
                    "SeeJobsAndHosts",
                    ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"],
                    [table.table_arn],
                    leading_keys(*ITEMS),
                ),
                statement(
                    "WriteJobs",
                    ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"],
                    [table.table_arn],
                    leading_keys("JOB#*", "LEASE#*", "ORDER#*"),
                ),
                statement(
                    "ListLive",
                    ["dynamodb:Query"],
                    [f"{table.table_arn}/index/{LIVE_INDEX}"],
                    leading_keys("POOL#*"),
                ),
                statement(
                    "UploadCode",
                    ["s3:PutObject", "s3:AbortMultipartUpload"],
                    [bucket.arn_for_objects("code/*")],
                ),
                statement(
                    "ReadCheckpointsAndCode",
                    ["s3:GetObject"],
                    [bucket.arn_for_objects("jobs/*"), bucket.arn_for_objects("code/*")],
                ),
                statement(
                    "ListCheckpoints",
                    ["s3:ListBucket"],
                    [bucket.bucket_arn],
                    below("jobs/*", "code/*"),
                ),
                statement("OrdersAndTickets", ["sqs:SendMessage"], [state.orders.queue_arn, *work]),
            ],
        )
        self.operate_policy = iam.ManagedPolicy(
            self,
            "Operate",
            managed_policy_name=f"{stack_name}-operate",
            description="Reprieve: drain hosts, on top of the policy for submitting",
            statements=[
                # Whoever may write to this queue may also announce what EC2 never said: at worst
                # a host is drained, and its job goes on elsewhere from its checkpoint.
                statement("AnnounceDrains", ["sqs:SendMessage"], [state.intake.queue_arn]),
            ],
        )
