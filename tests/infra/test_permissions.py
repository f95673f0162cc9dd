"""Who may do what: each right is named, narrow, and no wider than its reason."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config import Config
from tests.infra.synthesised import FUNCTIONS, Statement, Template

# Calls that know no resource; everything else names one.
WITHOUT_RESOURCE = {"AskEc2", "AskWhatIsForSale", "TakeCommands"}

# DynamoDB actions that need no key, and would slip through a condition on leading keys.
KEYLESS = ("dynamodb:Scan", "dynamodb:PartiQL", "dynamodb:DescribeTable")

OURS = "arn:aws:ec2:us-east-1:123456789012:"


def _actions(statements: dict[str, Statement]) -> set[str]:
    return {action for statement in statements.values() for action in statement["Action"]}


def _with(statements: dict[str, Statement], action: str) -> list[Statement]:
    return [
        statement
        for statement in statements.values()
        if action in statement["Action"] and statement["Effect"] == "Allow"
    ]


def test_no_action_has_a_wildcard(template: Template) -> None:
    for policy, statement in template.all_statements():
        for action in statement["Action"]:
            assert "*" not in action, f"{policy}: {action}"


def test_every_statement_says_what_it_is_for(template: Template) -> None:
    for policy, statement in template.all_statements():
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", statement["Sid"]), policy


def test_only_calls_without_a_resource_may_name_all(template: Template) -> None:
    for _, statement in template.all_statements():
        if "*" in statement["Resource"]:
            assert statement["Sid"] in WITHOUT_RESOURCE


def test_describe_calls_stay_in_the_region(template: Template) -> None:
    for _, statement in template.all_statements():
        if any(action.startswith("ec2:Describe") for action in statement["Action"]):
            region = statement["Condition"]["StringEquals"]["aws:RequestedRegion"]
            assert region == {"Ref": "AWS::Region"}


def test_every_right_on_the_table_is_bound_to_leading_keys(template: Template) -> None:
    seen = 0
    for policy, statement in template.all_statements():
        if not any(action.startswith("dynamodb:") for action in statement["Action"]):
            continue
        seen += 1
        keys = statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        assert keys, policy
        assert all(re.fullmatch(r"[A-Z]+#\*", key) for key in keys)
        assert not [action for action in statement["Action"] if action.startswith(KEYLESS)]

    assert seen


def test_nobody_deletes_an_item_or_a_version(template: Template) -> None:
    actions = {
        action for _, statement in template.all_statements() for action in statement["Action"]
    }

    assert "dynamodb:DeleteItem" not in actions
    assert "s3:DeleteObjectVersion" not in actions


def test_only_the_sweep_deletes_checkpoints(template: Template) -> None:
    deleting = {
        policy
        for policy, statement in template.all_statements()
        if "s3:DeleteObject" in statement["Action"]
    }

    assert len(deleting) == 1
    assert "Reconcile" in deleting.pop()


@pytest.fixture
def host(template: Template) -> dict[str, Statement]:
    return template.statements(template.role_named("FleetHostRole"))


def test_a_host_updates_leases_and_checks_hosts_and_touches_no_other_item(
    host: dict[str, Statement],
) -> None:
    table = {
        tuple(statement["Action"]): statement["Condition"]["ForAllValues:StringLike"][
            "dynamodb:LeadingKeys"
        ]
        for statement in host.values()
        if statement["Action"][0].startswith("dynamodb:")
    }

    assert table == {
        ("dynamodb:UpdateItem",): ["LEASE#*"],
        ("dynamodb:ConditionCheckItem",): ["HOST#*"],
    }


def test_a_host_may_do_no_more_than_its_work(host: dict[str, Statement]) -> None:
    services = {action.split(":")[0] for action in _actions(host)}

    assert services == {
        *("dynamodb", "s3", "sqs", "logs"),
        *("ssm", "ssmmessages", "ec2messages"),
    }
    assert not [action for action in _actions(host) if action.startswith(("ssm:Get", "ssm:Send"))]
    assert {a for a in _actions(host) if a.startswith("s3:")} == {
        "s3:PutObject",
        "s3:AbortMultipartUpload",
        "s3:GetObject",
        "s3:ListBucket",
    }


def test_a_host_adds_to_the_jobs_log_group_and_to_no_other(
    template: Template, host: dict[str, Statement]
) -> None:
    (statement,) = _with(host, "logs:PutLogEvents")
    (group,) = [
        name for name in template.of("AWS::Logs::LogGroup") if name.startswith("FleetJobLogs")
    ]

    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"] == [f"<{group}.Arn>"]


def test_a_host_writes_below_jobs_and_reads_code(host: dict[str, Statement]) -> None:
    (write,) = _with(host, "s3:PutObject")
    (listing,) = _with(host, "s3:ListBucket")

    assert [arn.rsplit(">")[1] for arn in write["Resource"]] == ["/jobs/*"]
    assert host["ReadCheckpointsAndCode"]["Resource"][1].endswith("/code/*")
    assert listing["Condition"] == {"StringLikeIfExists": {"s3:prefix": ["jobs/*"]}}


def test_a_host_fetches_one_object_of_the_deployment(host: dict[str, Statement]) -> None:
    (arn,) = host["FetchTheAgent"]["Resource"]

    assert re.fullmatch(r"arn:aws:s3:::cdk-hnb659fds-assets-\S+/[0-9a-f]{64}\.zip", arn)


def test_a_host_takes_tickets_and_sends_reports_and_not_the_reverse(
    host: dict[str, Statement],
) -> None:
    (take,) = _with(host, "sqs:ReceiveMessage")
    (send,) = _with(host, "sqs:SendMessage")

    assert all("Work" in queue for queue in take["Resource"])
    assert [queue for queue in send["Resource"] if "Reports" not in queue] == []


def test_a_host_assumes_the_configured_role_alone(
    template: Template, own_network: Template
) -> None:
    plain = template.statements(template.role_named("FleetHostRole"))
    configured = own_network.statements(own_network.role_named("FleetHostRole"))

    assert "sts:AssumeRole" not in _actions(plain)
    assert configured["ActForJobs"]["Resource"] == ["arn:aws:iam::123456789012:role/training-data"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_use_every_queue_it_is_told_of(template: Template, name: str) -> None:
    statements = template.statements(template.role_of(name))
    sends = {arn for one in _with(statements, "sqs:SendMessage") for arn in one["Resource"]}
    environment = template.environment(template.function(name))
    told = [value for key, value in environment.items() if key == "ORDERS_QUEUE_URL"]
    told += re.findall(r"<StateWork\w+>", environment["POOLS"])

    assert {f"{url[:-1]}.Arn>" for url in told} <= sends


@pytest.mark.parametrize("name", ["handle_notice", "replace_host", "record_report"])
def test_a_function_takes_from_its_own_queue_alone(template: Template, name: str) -> None:
    (take,) = _with(template.statements(template.role_of(name)), "sqs:ReceiveMessage")

    assert take["Resource"] == [template.text(template.mapping(name)["EventSourceArn"])]
    assert "sqs:ChangeMessageVisibility" in take["Action"]  # a failed notice is back in seconds


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_instances_tagged_ours_can_be_terminated(template: Template, name: str) -> None:
    (statement,) = _with(template.statements(template.role_of(name)), "ec2:TerminateInstances")

    assert statement["Resource"] == [f"{OURS}instance/*"]
    assert statement["Condition"]["StringEquals"] == {"aws:ResourceTag/reprieve:stack": "Reprieve"}


@pytest.mark.parametrize("name", ["handle_notice", "reconcile"])
def test_a_command_is_our_document_on_our_hosts(template: Template, name: str) -> None:
    document, hosts = _with(template.statements(template.role_of(name)), "ssm:SendCommand")

    assert document["Resource"] == ["arn:aws:ssm:us-east-1:123456789012:document/Reprieve-preempt"]
    assert hosts["Resource"] == [f"{OURS}instance/*"]
    assert hosts["Condition"]["StringEquals"] == {"ssm:resourceTag/reprieve:stack": "Reprieve"}


@pytest.mark.parametrize("name", ["replace_host", "record_report"])
def test_who_needs_no_command_sends_none(template: Template, name: str) -> None:
    assert not _with(template.statements(template.role_of(name)), "ssm:SendCommand")


def test_only_replace_host_launches(template: Template) -> None:
    for name in FUNCTIONS:
        launches = _with(template.statements(template.role_of(name)), "ec2:CreateFleet")
        assert bool(launches) is (name == "replace_host")


@pytest.fixture
def launcher(template: Template) -> dict[str, Statement]:
    return template.statements(template.role_of("replace_host"))


def test_what_a_launch_creates_is_tagged_ours_in_the_request(
    launcher: dict[str, Statement],
) -> None:
    kinds = ("fleet", "instance", "volume", "network-interface")
    launched = launcher["LaunchTaggedAsOurs"]

    assert launched["Resource"] == [f"{OURS}{kind}/*" for kind in kinds]
    assert launched["Condition"]["StringEquals"] == {"aws:RequestTag/reprieve:stack": "Reprieve"}
    for statement in _with(launcher, "ec2:RunInstances"):
        if statement is not launched:
            assert not any("instance/*" in arn for arn in statement["Resource"])


def test_a_launch_uses_our_templates_network_and_trusted_images(
    template: Template, launcher: dict[str, Statement]
) -> None:
    (launch_template,) = template.of("AWS::EC2::LaunchTemplate")

    assert launcher["LaunchFromOurTemplates"]["Resource"] == [
        f"{OURS}launch-template/<{launch_template}>"
    ]
    network: list[str] = launcher["LaunchIntoOurNetwork"]["Resource"]
    assert len([arn for arn in network if ":subnet/<" in arn]) == 3
    assert len([arn for arn in network if ":security-group/<" in arn]) == 1
    owners = launcher["LaunchTrustedImages"]["Condition"]["StringEquals"]["ec2:Owner"]
    assert owners == ["amazon", {"Ref": "AWS::AccountId"}]


def test_a_launch_with_open_metadata_is_denied(launcher: dict[str, Statement]) -> None:
    denied = launcher["NeverWithOpenMetadata"]

    assert denied["Effect"] == "Deny"
    assert denied["Condition"] == {"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}}


def test_tags_are_given_only_while_launching(launcher: dict[str, Statement]) -> None:
    (tagging,) = _with(launcher, "ec2:CreateTags")

    assert tagging["Condition"]["StringEquals"]["ec2:CreateAction"] == [
        "CreateFleet",
        "RunInstances",
    ]


def test_one_role_can_be_passed_to_ec2_alone(
    template: Template, launcher: dict[str, Statement]
) -> None:
    passing = [
        statement
        for _, statement in template.all_statements()
        if "iam:PassRole" in statement["Action"]
    ]

    assert passing == [launcher["GiveHostsTheirRole"]]
    assert passing[0]["Resource"] == [f"<{template.role_named('FleetHostRole')}.Arn>"]
    assert passing[0]["Condition"]["StringEquals"] == {"iam:PassedToService": "ec2.amazonaws.com"}


def test_nobody_changes_instances_or_templates(template: Template) -> None:
    for _, statement in template.all_statements():
        for action in statement["Action"]:
            assert not action.startswith(("ec2:Modify", "ec2:CreateLaunchTemplate", "iam:Put"))


def test_who_submits_writes_jobs_and_starts_nothing(template: Template) -> None:
    policies: dict[str, Any] = template.of("AWS::IAM::ManagedPolicy")
    named = {policy["ManagedPolicyName"]: policy for policy in policies.values()}
    policy = named["Reprieve-submit"]
    statements = {one["Sid"]: one for one in template.read(policy["PolicyDocument"])}

    assert not [a for a in _actions(statements) if a.startswith(("ec2:", "ssm:", "iam:"))]
    assert [arn.rsplit(">")[1] for arn in statements["UploadCode"]["Resource"]] == ["/code/*"]
    for action in ("dynamodb:PutItem", "dynamodb:UpdateItem"):
        (writing,) = _with(statements, action)
        keys = writing["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        assert keys == ["JOB#*", "LEASE#*", "ORDER#*"]


def test_who_operates_may_announce_and_nothing_else(template: Template) -> None:
    policies: dict[str, Any] = template.of("AWS::IAM::ManagedPolicy")
    (policy,) = (p for p in policies.values() if p["ManagedPolicyName"] == "Reprieve-operate")
    (statement,) = template.read(policy["PolicyDocument"])

    assert statement["Action"] == ["sqs:SendMessage"]
    assert "Intake" in str(statement["Resource"])


def test_a_boundary_bounds_every_role(own_network: Template) -> None:
    roles: dict[str, Any] = own_network.of("AWS::IAM::Role")

    assert roles
    for role in roles.values():
        assert role["PermissionsBoundary"] == "arn:aws:iam::123456789012:policy/boundary"


def test_no_role_takes_a_managed_policy_of_aws(template: Template) -> None:
    for role in template.of("AWS::IAM::Role").values():
        assert not role.get("ManagedPolicyArns")


def test_every_trust_names_one_service(template: Template) -> None:
    trusted = {
        template.text(statement["Principal"]["Service"])
        for role in template.of("AWS::IAM::Role").values()
        for statement in role["AssumeRolePolicyDocument"]["Statement"]
    }

    assert trusted == {"lambda.amazonaws.com", "ec2.amazonaws.com", "scheduler.amazonaws.com"}


def test_the_default_costs_little() -> None:
    pool = Config().pools["gpu"]

    assert pool.max_hosts == 2
    assert pool.max_usd_per_hour == 5
    assert pool.buffer == pool.on_demand_base == 0
