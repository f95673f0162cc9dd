"""The real stack on the embedded cloud: it deploys, and it is not less than it seems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli import assembly
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.deploy import DeployError, deploy, destroy
from reprieve_cli.local.localize import Localized, complete, localize
from tests.local.support import Aws, Fleet, eventually, start, subnets_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

STACK = "Reprieve"
KEY = {"pk": {"S": "LEASE#test"}, "sk": {"S": "000001#test"}}
CONTEXT = {"stack": STACK, "reprieve": {"notice_seconds": 6.0}}
FROM_SNS = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": "*",
        }
    ],
}


@dataclass(frozen=True)
class Deployed:
    aws: Aws
    localized: Localized
    completed: list[str]
    outputs: dict[str, str]


@pytest.fixture(scope="module")
def secure_cloud() -> Iterator[Cloud]:
    """Start a cloud of its own: TLS on every connection, IAM enforced."""
    with start(tls=True, auth=True, notice_seconds=6.0) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def synthesised() -> Path:
    return assembly.synthesise(CONTEXT)


@pytest.fixture(scope="module")
def deployed(secure_cloud: Cloud, synthesised: Path) -> Deployed:
    target = secure_cloud.run_dir / "assembly"
    local = localize(synthesised, STACK, target, notice_seconds=6.0)
    outputs = deploy(secure_cloud, local.assembly_dir, STACK)
    return Deployed(Aws(secure_cloud), local, complete(secure_cloud, local), outputs)


def test_only_the_document_is_left_out_of_the_template(deployed: Deployed) -> None:
    assert [kind for _, kind in deployed.localized.removed] == ["AWS::SSM::Document"]


def test_the_other_differences_are_the_expected_ones(deployed: Deployed) -> None:
    said = {line.partition(": ")[2].partition(" ")[0] for line in deployed.localized.changed}

    assert said == {
        "ami-0123456789abcdef0",
        "ATTESTED_SENDER=off",
        "MaximumConcurrency=2",
        "built",  # the compiled layer
        "not",  # uploaded: the hosts' bundle
    }


def test_what_the_emulator_ignores_is_made_up_for(deployed: Deployed) -> None:
    aws, outputs = deployed.aws, deployed.outputs

    lifetime = aws.client("dynamodb").describe_time_to_live(TableName=outputs["JobsTable"])
    rules = aws.client("s3").get_bucket_lifecycle_configuration(
        Bucket=outputs["CheckpointsBucket"]
    )["Rules"]
    document = aws.client("ssm").describe_document(Name=outputs["SsmDocument"])

    assert lifetime["TimeToLiveDescription"]["AttributeName"] == "ttl"
    assert {rule["Status"] for rule in rules} == {"Enabled"}
    assert document["Document"]["Status"] == "Active"
    assert sum("started in" in line for line in deployed.completed) == 4


def test_a_host_of_the_deployed_pool_learns_from_its_user_data_and_has_its_own_rights(
    deployed: Deployed,
) -> None:
    pool = json.loads(deployed.outputs["PoolGpu"])
    fleet = Fleet(deployed.aws, pool["launch_template"], subnets_of(deployed.aws))
    instance_id = fleet.launch("g5.xlarge", zones="a")
    (fleet.state_dir(instance_id) / "call").touch()

    env = fleet.read(instance_id, "agent.json")["env"]
    identity = eventually(lambda: fleet.read(instance_id, "identity.json"))
    rights = {
        operation: deployed.aws.try_as(
            fleet.credentials(instance_id), "dynamodb", operation, **parameters
        )
        for operation, parameters in {
            "delete_item": {"TableName": env["JOBS_TABLE"], "Key": KEY},
            "update_item": {"TableName": env["JOBS_TABLE"], "Key": KEY},
        }.items()
    }

    assert env["JOBS_TABLE"] == deployed.outputs["JobsTable"]
    assert env["WORK_QUEUE_URL"] == pool["work_queue_url"]
    assert float(env["NOTICE_SECONDS"]) == 6
    assert identity["arn"].endswith(instance_id)
    assert rights == {"delete_item": "AccessDeniedException", "update_item": "ok"}


def test_every_function_imports_its_layers_and_answers_over_tls_with_its_own_role(
    deployed: Deployed,
) -> None:
    client = deployed.aws.client("lambda")
    for output in ("HandleNoticeFunction", "ReplaceHostFunction", "RecordReportFunction"):
        answer = client.invoke(FunctionName=deployed.outputs[output], Payload='{"Records": []}')
        text = answer["Payload"].read().decode()
        assert "Unable to import" not in text
        assert "Worker init failed" not in text
    answer = client.invoke(FunctionName=deployed.outputs["ReconcileFunction"], Payload="{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def test_the_calls_of_a_function_pass_through_the_world(deployed: Deployed) -> None:
    deployed.aws.client("lambda").invoke(
        FunctionName=deployed.outputs["ReconcileFunction"], Payload="{}"
    )

    calls = deployed.aws.cloud.control.calls(caller="reprieve-reconcile")

    assert {call["service"] for call in calls} >= {"dynamodb", "ec2"}
    assert not [call for call in calls if call["error"]]


def test_the_sweep_is_invoked_every_period(deployed: Deployed) -> None:
    control = deployed.aws.cloud.control
    before = control.calls()[-1]["n"]

    control.sweep(deployed.outputs["ReconcileFunction"], seconds=0.2)

    def sweeps() -> list[dict[str, Any]]:
        calls = control.calls(since=before, caller="reprieve-reconcile", service="ec2")
        return [call for call in calls if call["action"] == "DescribeInstances"]

    eventually(lambda: len(sweeps()) >= 3)
    control.sweep(deployed.outputs["ReconcileFunction"], seconds=0)
    assert control.log(kind="sweep failed") == []


def test_the_pump_turns_logs_and_queues_into_metrics_that_trip_the_alarms(
    deployed: Deployed,
) -> None:
    aws = deployed.aws
    cloudwatch, sqs = aws.client("cloudwatch"), aws.client("sqs")
    dead = next(url for url in sqs.list_queues()["QueueUrls"] if "Dead" in url and "Intake" in url)
    inbox = sqs.create_queue(QueueName="alarms", Attributes={"Policy": json.dumps(FROM_SNS)})[
        "QueueUrl"
    ]
    aws.client("sns").subscribe(
        TopicArn=deployed.outputs["AlarmTopic"],
        Protocol="sqs",
        Endpoint="arn:aws:sqs:us-east-1:000000000000:alarms",
    )
    sqs.send_message(QueueUrl=dead, MessageBody="poison")
    aws.client("lambda").invoke(FunctionName=deployed.outputs["ReconcileFunction"], Payload="{}")

    aws.cloud.control.pump(seconds=0.3)

    def alarms() -> list[str]:
        found = cloudwatch.describe_alarms(StateValue="ALARM")["MetricAlarms"]
        return [alarm["AlarmName"] for alarm in found if "IntakeDead" in alarm["AlarmName"]]

    def metrics() -> set[str]:
        found = cloudwatch.list_metrics(Namespace="Reprieve")["Metrics"]
        return {metric["MetricName"] for metric in found}

    try:
        eventually(alarms, seconds=20)
        eventually(lambda: "SweepsCompleted" in metrics(), seconds=20)
        eventually(lambda: sqs.receive_message(QueueUrl=inbox).get("Messages"), seconds=10)
    finally:
        aws.cloud.control.pump(seconds=0)
    assert aws.cloud.control.log(kind="pump failed") == []


def test_deploying_the_same_again_changes_nothing(deployed: Deployed) -> None:
    again = deploy(deployed.aws.cloud, deployed.localized.assembly_dir, STACK)

    assert again == deployed.outputs


def test_a_template_that_cannot_be_deployed_says_why(cloud: Cloud, tmp_path: Path) -> None:
    broken = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": 7}}}}
    broken["Resources"]["Nothing"] = {"Type": "AWS::Nothing::AtAll", "Properties": {}}
    (tmp_path / "Broken.template.json").write_text(json.dumps(broken))
    (tmp_path / "Broken.assets.json").write_text(json.dumps({"files": {}}))

    with pytest.raises(DeployError, match="Nothing"):
        deploy(cloud, tmp_path, "Broken")
    destroy(cloud, "Broken")


def test_a_destroyed_stack_is_gone(cloud: Cloud, tmp_path: Path) -> None:
    small = {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {"Url": {"Value": {"Ref": "Queue"}}},
    }
    (tmp_path / "Small.template.json").write_text(json.dumps(small))
    (tmp_path / "Small.assets.json").write_text(json.dumps({"files": {}}))

    outputs = deploy(cloud, tmp_path, "Small")
    destroy(cloud, "Small")

    assert outputs["Url"]
    urls = Aws(cloud).client("sqs").list_queues().get("QueueUrls", [])
    assert not [url for url in urls if "Small" in url]
