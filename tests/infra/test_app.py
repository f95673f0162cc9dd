"""``app.py`` as the CDK runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.infra.synthesised import Template, run_app

pytestmark = pytest.mark.deep

OUTPUTS = {
    "JobsTable",
    "CheckpointsBucket",
    "OrdersQueueUrl",
    "ReportsQueueUrl",
    "IntakeQueueUrl",
    "HandleNoticeFunction",
    "ReplaceHostFunction",
    "RecordReportFunction",
    "ReconcileFunction",
    "SsmDocument",
    "AlarmTopic",
    "HostRole",
    "JobLogGroup",
    "Subnets",
}


def test_the_outputs_are_those_that_people_script_against(
    template: Template, own_network: Template
) -> None:
    assert set(template.outputs) == OUTPUTS | {"PoolGpu"}
    assert set(own_network.outputs) == OUTPUTS | {"PoolSmall", "PoolA100X8", "JobRole"}
    assert own_network.outputs["JobRole"] == "arn:aws:iam::123456789012:role/training-data"


def test_a_pool_output_is_its_entry_and_its_name(own_network: Template) -> None:
    environment = own_network.environment(own_network.function("replace_host"))
    output = json.loads(own_network.outputs["PoolA100X8"])

    assert output == {"name": "a100-x8", **json.loads(environment["POOLS"])["a100-x8"]}


def test_two_stacks_of_one_account_share_no_name(template: Template, own_network: Template) -> None:
    kinds = {
        "AWS::SSM::Document": "Name",
        "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
        "AWS::CloudWatch::Dashboard": "DashboardName",
    }
    for kind, key in kinds.items():
        here = {one[key] for one in template.of(kind).values()}
        there = {one[key] for one in own_network.of(kind).values()}
        assert here
        assert not here & there


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"config": {"pools": {"gpu": {"max_host": 3}}}},
            "reprieve: pools.gpu.max_host = 3: no such key; known: gpu, types, tiers, ",
        ),
        ({"stack": "my stack"}, "reprieve: stack = 'my stack': a letter, then up to 49 letters"),
        ({"config": {"config": "missing.yaml"}}, "reprieve: config: cannot read "),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_code_2(
    tmp_path: Path, options: dict[str, object], line: str
) -> None:
    done = run_app(tmp_path, **options)  # type: ignore[arg-type]

    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("role", "for_the_role"),
    [
        ({}, set()),
        (
            {"job_role_arn": "arn:aws:iam::123456789012:role/training-data"},
            {"sts", "secretsmanager"},
        ),
    ],
    ids=["no role", "a role for jobs"],
)
def test_a_private_network_is_closed_and_passes_the_rules_of_thumb(
    tmp_path: Path, role: dict[str, str], for_the_role: set[str]
) -> None:
    template = Template.synthesise(
        tmp_path, config={"network": {"private": True, "zones": 2}, **role}, validate=True
    )

    assert not template.of("AWS::EC2::InternetGateway")
    endpoints = template.of("AWS::EC2::VPCEndpoint").values()
    interfaces = [one for one in endpoints if one["VpcEndpointType"] == "Interface"]
    services = {template.text(one["ServiceName"]).rsplit(".", 1)[1] for one in interfaces}
    assert services == {"ssm", "ssmmessages", "sqs", "logs"} | for_the_role
    (launch,) = template.of("AWS::EC2::LaunchTemplate").values()
    (interface,) = launch["LaunchTemplateData"]["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
