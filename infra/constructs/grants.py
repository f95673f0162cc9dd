"""The few shapes that our permissions have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

Conditions = Mapping[str, Mapping[str, object]]

STACK_TAG = "reprieve:stack"
POOL_TAG = "reprieve:pool"

IN_THIS_REGION: Conditions = {"StringEquals": {"aws:RequestedRegion": Aws.REGION}}


def statement(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Conditions | None = None,
    *,
    effect: iam.Effect = iam.Effect.ALLOW,
) -> iam.PolicyStatement:
    """Return one statement. The name says what it is for, so a reader needs no comment."""
    return iam.PolicyStatement(
        sid=sid,
        effect=effect,
        actions=list(actions),
        resources=list(resources),
        conditions=dict(conditions) if conditions else None,
    )


def leading_keys(*patterns: str) -> Conditions:
    """
    Return the condition that a request names only items like *patterns*.

    It also holds for a request that names none, so no action that needs no key (Scan,
    PartiQL) may ever be granted with it.
    """
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(patterns)}}


def tagged_ours(stack_name: str, *, key: str) -> Conditions:
    """Return the condition that *key* (a request's or a resource's tag) names this stack."""
    return {"StringEquals": {f"{key}/{STACK_TAG}": stack_name}}


def below(prefix: str, *more: str) -> Conditions:
    """
    Return the condition that a listing stays below these prefixes.

    IfExists, because S3 asks for the right to list also when an object that is read isn't
    there, without a prefix then. Refused, it would answer "access denied" instead of "no such
    key", and nobody could tell a lost file from a passing trouble.
    """
    return {"StringLikeIfExists": {"s3:prefix": [prefix, *more]}}


def ec2_arn(resource: str) -> str:
    """Return the ARN of an EC2 resource of this account and region."""
    return f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"
