"""What a person needs who submits jobs; whoever deploys needs far more and gets nothing here."""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.grants import below, leading_keys, statement
from infra.constructs.state import LIVE_INDEX, State


class People(Construct):
    """The managed policy ``<stack>-submit``."""

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
                    "Jobs",
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
                statement(
                    "Timeline",
                    ["dynamodb:BatchWriteItem"],
                    [table.table_arn],
                    leading_keys("JOB#*"),
                ),
                statement(
                    "SeeHosts",
                    ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"],
                    [table.table_arn],
                    leading_keys("HOST#*", "POOL#*"),
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
