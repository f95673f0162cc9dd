"""
Where we depart from AWS's rules of thumb (cdk-nag's AwsSolutions), each with its reason.

A finding that isn't here fails ``cdk synth``. The ids are exact, so that a second wildcard in
the same policy is a new finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aws_cdk import Acknowledgment, CfnResource, Validations

from infra.constructs.python_function import PythonFunction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct, IConstruct

    from infra.stack import ReprieveStack

NO_RESOURCE = (
    "EC2's Describe calls know no resource; the condition keeps them in this region, and they "
    "reveal nothing that a launch doesn't."
)
OUR_HOSTS = "Instance ids aren't known beforehand; the condition demands our stack's tag."
LAUNCHED = (
    "What a launch creates has no id yet; the condition demands our stack's tag in the request."
)
OWN_PREFIX = "Job ids aren't known beforehand; the prefix holds nothing but jobs."
CODE_PREFIX = "Uploads are named by their digest; the prefix holds nothing but code."


def acknowledge(stack: ReprieveStack) -> None:
    """Record every exception of *stack*."""
    fleet, state = stack.fleet, stack.state
    objects = f"<{_logical_id(stack, state.bucket)}.Arn>"
    jobs, code = _iam5(f"{objects}/jobs/*"), _iam5(f"{objects}/code/*")

    _say(
        state.bucket,
        {
            "S1": "Access logs of checkpoints cost more than they tell; "
            "docs/security.md says how to switch on CloudTrail's data events instead."
        },
    )
    for name in ("Undelivered", "Sweep"):
        _say(
            state.dead_letters[name],
            {"SQS3": "This is a dead-letter queue: of the rules, and of the schedule."},
        )
    if not stack.config.network.vpc_id:
        _say(
            fleet.vpc,
            {
                "VPC7": "Hosts accept nothing and talk to AWS and to what jobs name; flow logs of "
                "checkpoint traffic are a bill. Bring a network of your own to have them."
            },
        )
    _say(
        fleet.host_role,
        {
            _iam5("*"): "The SSM agent's channels and its registration know no resource.",
            jobs: OWN_PREFIX,
            code: CODE_PREFIX,
        },
    )
    for function in stack.interruption.functions.values():
        _function(function)
    _say(stack.interruption.reconcile.role, {jobs: OWN_PREFIX})
    _launcher(stack.interruption.replace_host)
    _say(
        stack.people.submit_policy,
        {
            jobs: OWN_PREFIX,
            code: CODE_PREFIX,
            _iam5(
                "arn:<AWS::Partition>:cloudformation:<AWS::Region>:<AWS::AccountId>"
                f":stack/{stack.stack_name}/*"
            ): "A stack's ARN ends in an id that changes when it is made anew.",
        },
    )


def _function(function: PythonFunction) -> None:
    _say(
        function.function,
        {
            "L1": "The layer's compiled packages are locked, built and tested for this runtime; "
            "a newer one is a deliberate change of both."
        },
    )
    _say(function.role, {_iam5("*"): NO_RESOURCE, _ec2("instance"): OUR_HOSTS})


def _launcher(function: PythonFunction) -> None:
    created = {_ec2(kind): LAUNCHED for kind in ("fleet", "volume", "network-interface")}
    trusted = {
        _iam5(f"arn:<AWS::Partition>:ec2:<AWS::Region>::{kind}/*"): (
            "Images change with each release; the condition demands Amazon or us as owner."
        )
        for kind in ("image", "snapshot")
    }
    _say(
        function.role,
        {
            **created,
            **trusted,
            _ec2("spot-instances-request"): (
                "Its tags would fail a fleet that ends on-demand; "
                "it is worth nothing without the instance, which must be tagged."
            ),
            _ec2("capacity-reservation"): (
                "Any open reservation that fits is used by EC2 itself, whichever it is."
            ),
        },
    )


def _iam5(resource: str) -> str:
    return f"IAM5[Resource::{resource}]"


def _ec2(kind: str) -> str:
    return _iam5(f"arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:{kind}/*")


def _say(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    for rule, reason in reasons.items():
        Validations.of(construct).acknowledge(
            Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason)
        )


def _logical_id(stack: ReprieveStack, construct: Construct) -> str:
    return stack.get_logical_id(cast("CfnResource", construct.node.default_child))
