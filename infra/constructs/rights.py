"""What the functions may do, use by use: every statement is one thing that the code does."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.constructs.fleet import Fleet
from infra.constructs.grants import (
    IN_THIS_REGION,
    STACK_TAG,
    below,
    ec2_arn,
    leading_keys,
    statement,
    tagged_ours,
)
from infra.constructs.python_function import PythonFunction
from infra.constructs.state import LIVE_INDEX, State

# Every item that functions read or write; a request for anything else is refused.
ITEMS = ("JOB#*", "LEASE#*", "ORDER#*", "HOST#*", "POOL#*")

_SPOT_ROLE = (
    f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/aws-service-role/"
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot"
)


@dataclass(frozen=True, slots=True)
class Rights:
    """Grants, named after the uses that need them."""

    stack_name: str
    state: State
    fleet: Fleet

    def settle(self, function: PythonFunction) -> None:
        """Grant what the use case ``settle`` needs, which every function calls."""
        table = self.state.table
        function.allow(
            "JobsAndHosts",
            [
                "dynamodb:GetItem",
                "dynamodb:BatchGetItem",
                "dynamodb:Query",
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
                "dynamodb:ConditionCheckItem",
            ],
            [table.table_arn],
            leading_keys(*ITEMS),
        )
        function.allow(
            "ListLive",
            ["dynamodb:Query"],
            [f"{table.table_arn}/index/{LIVE_INDEX}"],
            leading_keys("POOL#*"),
        )
        function.allow(
            "OrdersAndTickets",
            ["sqs:SendMessage"],
            [self.state.orders.queue_arn, *(q.queue_arn for q in self.state.work.values())],
        )
        function.allow(
            "AskEc2",
            ["ec2:DescribeInstances", "ec2:DescribeSpotInstanceRequests"],
            ["*"],
            IN_THIS_REGION,
        )
        function.allow(
            "RetireHosts",
            ["ec2:TerminateInstances"],
            [ec2_arn("instance/*")],
            tagged_ours(self.stack_name, key="aws:ResourceTag"),
        )

    def signal(self, function: PythonFunction) -> None:
        """Grant one command of ours, on hosts of ours. SSM judges document and instance apart."""
        function.allow("OneDocument", ["ssm:SendCommand"], [self.fleet.document_arn])
        function.allow(
            "OnOurHosts",
            ["ssm:SendCommand"],
            [ec2_arn("instance/*")],
            tagged_ours(self.stack_name, key="ssm:resourceTag"),
        )

    def collect(self, function: PythonFunction) -> None:
        """Grant reading manifests and deleting what a job no longer needs; no version can go."""
        bucket = self.state.bucket
        function.allow(
            "ListCheckpoints",
            ["s3:ListBucket"],
            [bucket.bucket_arn],
            below("jobs/*"),
        )
        function.allow(
            "CollectCheckpoints",
            ["s3:GetObject", "s3:DeleteObject"],
            [bucket.arn_for_objects("jobs/*")],
        )

    def launch(self, function: PythonFunction) -> None:
        """
        Grant one kind of launch: our templates, network and role, tagged ours from the start.

        Split as Karpenter splits it. A fleet request may override what the template says,
        image and role included, so each is pinned by itself.
        """
        fleet = self.fleet
        launch = ["ec2:CreateFleet", "ec2:RunInstances"]
        function.allow(
            "LaunchIntoOurNetwork",
            launch,
            [
                *(ec2_arn(f"subnet/{subnet}") for subnet in fleet.subnets.values()),
                ec2_arn(f"security-group/{fleet.security_group.security_group_id}"),
                ec2_arn("spot-instances-request/*"),
                ec2_arn("capacity-reservation/*"),
            ],
        )
        function.allow(
            "LaunchFromOurTemplates",
            launch,
            [ec2_arn(f"launch-template/{template.id}") for template in fleet.templates.values()],
        )
        function.allow(
            "LaunchTrustedImages",
            launch,
            # Images and their snapshots have no account in their ARN.
            [f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}::{kind}/*" for kind in ("image", "snapshot")],
            {"StringEquals": {"ec2:Owner": ["amazon", Aws.ACCOUNT_ID]}},
        )
        function.allow(
            "LaunchTaggedAsOurs",
            launch,
            [ec2_arn(f"{kind}/*") for kind in ("fleet", "instance", "volume", "network-interface")],
            tagged_ours(self.stack_name, key="aws:RequestTag"),
        )
        function.allow(
            "TagWhileLaunching",
            ["ec2:CreateTags"],
            [ec2_arn(f"{kind}/*") for kind in ("fleet", "instance", "volume", "network-interface")],
            {
                "StringEquals": {
                    "ec2:CreateAction": ["CreateFleet", "RunInstances"],
                    f"aws:RequestTag/{STACK_TAG}": self.stack_name,
                }
            },
        )
        function.role.add_to_policy(
            statement(
                "NeverWithOpenMetadata",
                ["ec2:RunInstances"],
                [ec2_arn("instance/*")],
                {"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}},
                effect=iam.Effect.DENY,
            )
        )
        function.allow(
            "GiveHostsTheirRole",
            ["iam:PassRole"],
            [fleet.host_role.role_arn],
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        )
        function.allow(
            "FirstSpotRequestOfAnAccount",
            ["iam:CreateServiceLinkedRole"],
            [_SPOT_ROLE],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        )
        function.allow(
            "AskWhatIsForSale",
            ["ec2:DescribeSpotPriceHistory"],
            ["*"],
            IN_THIS_REGION,
        )
