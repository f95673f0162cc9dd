"""Run Command as the world plays it: documents are checked, commands run for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve_cli.local.control import WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e

DOCUMENT = {
    "schemaVersion": "2.2",
    "parameters": {
        "RequestId": {
            "type": "String",
            "allowedPattern": "^[a-z0-9-]{1,64}$",
            "interpolationType": "ENV_VAR",
        },
        "Mode": {"type": "String", "default": "", "interpolationType": "ENV_VAR"},
    },
    "mainSteps": [
        {
            "name": "preempt",
            "action": "aws:runShellScript",
            "inputs": {
                "timeoutSeconds": "2",
                "runCommand": ['exec reprieve-ctl preempt "$SSM_RequestId" $SSM_Mode'],
            },
        }
    ],
}


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


@pytest.fixture
def ssm(aws: Aws) -> Iterator[Any]:
    client = aws.client("ssm")
    client.create_document(
        Name="test-preempt", Content=json.dumps(DOCUMENT), DocumentType="Command"
    )
    yield client
    client.delete_document(Name="test-preempt")


def send(ssm: Any, *instance_ids: str, mode: str = "", **overrides: Any) -> str:
    answer = ssm.send_command(
        **{
            "DocumentName": "test-preempt",
            "InstanceIds": list(instance_ids),
            "TimeoutSeconds": 30,
            "Parameters": {"RequestId": ["r-1"], "Mode": [mode]},
            **overrides,
        }
    )
    return str(answer["Command"]["CommandId"])


def ended(ssm: Any, command_id: str, instance_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        answer: dict[str, Any] = ssm.get_command_invocation(
            CommandId=command_id, InstanceId=instance_id
        )
        return answer if answer["Status"] not in {"Pending", "InProgress"} else None

    return eventually(look)


def test_a_command_runs_the_documents_script_on_the_host(fleet: Fleet, ssm: Any) -> None:
    instance_id = fleet.launch()

    invocation = ended(ssm, send(ssm, instance_id), instance_id)

    assert (invocation["Status"], invocation["ResponseCode"]) == ("Success", 0)
    assert invocation["StandardOutputContent"] == "done"
    ctl = fleet.read(instance_id, "ctl.json")
    assert ctl["arguments"] == ["preempt", "r-1"]
    assert ctl["socket"].endswith(f"{instance_id}/run/agent.sock")


def test_a_failing_script_is_failed_with_its_exit_code(fleet: Fleet, ssm: Any) -> None:
    instance_id = fleet.launch()

    invocation = ended(ssm, send(ssm, instance_id, mode="--fail"), instance_id)

    assert (invocation["Status"], invocation["ResponseCode"]) == ("Failed", 4)


def test_a_script_that_takes_too_long_is_killed(fleet: Fleet, ssm: Any) -> None:
    instance_id = fleet.launch()

    invocation = ended(ssm, send(ssm, instance_id, mode="--hang"), instance_id)

    assert invocation["Status"] == "TimedOut"
    assert invocation["StatusDetails"] == "ExecutionTimedOut"


def test_long_output_is_cut_at_ssms_limit(fleet: Fleet, ssm: Any) -> None:
    instance_id = fleet.launch()

    invocation = ended(ssm, send(ssm, instance_id, mode="--chatter"), instance_id)

    assert len(invocation["StandardOutputContent"]) == 24_000


def test_an_unknown_or_dead_instance_refuses_the_whole_command(
    fleet: Fleet, ssm: Any, control: WorldClient
) -> None:
    alive, dead = fleet.launch(), fleet.launch()
    control.kill(dead)

    for stranger in (dead, "i-0123456789abcdef0"):
        with pytest.raises(ClientError, match="InvalidInstanceId"):
            send(ssm, alive, stranger)
    assert fleet.read(alive, "ctl.json") is None


def test_a_host_that_has_not_registered_yet_refuses_the_command(
    fleet: Fleet, ssm: Any, control: WorldClient
) -> None:
    control.put_pools({"settings": {"registration_seconds": 60}})
    instance_id = fleet.launch()

    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, instance_id)


def test_parameters_are_checked_against_the_document(fleet: Fleet, ssm: Any) -> None:
    instance_id = fleet.launch()

    for parameters in (
        {"RequestId": ["$(rm -rf /)"]},
        {"RequestId": ["r-1"], "Unknown": ["x"]},
        {},
    ):
        with pytest.raises(ClientError, match="InvalidParameters"):
            send(ssm, instance_id, Parameters=parameters)
    with pytest.raises(ClientError, match="InvalidDocument"):
        send(ssm, instance_id, DocumentName="nobody")


def test_more_than_fifty_hosts_are_refused(ssm: Any) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        send(ssm, *(f"i-{number:017x}" for number in range(51)))


def test_a_cut_off_host_gets_the_command_when_it_is_mended(
    fleet: Fleet, ssm: Any, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    control.cut(instance_id, "ssm")
    command_id = send(ssm, instance_id)
    status = ssm.get_command_invocation(CommandId=command_id, InstanceId=instance_id)["Status"]
    assert status == "Pending"

    control.mend(instance_id)

    assert ended(ssm, command_id, instance_id)["Status"] == "Success"


def test_a_host_that_dies_in_the_middle_never_answers(
    fleet: Fleet, ssm: Any, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    command_id = send(ssm, instance_id, mode="--hang")
    eventually(lambda: fleet.read(instance_id, "ctl.json"))

    control.kill(instance_id)

    (invocation,) = ssm.list_command_invocations(CommandId=command_id)["CommandInvocations"]
    assert invocation["Status"] == "InProgress"


def test_the_end_of_a_command_is_an_event(fleet: Fleet, ssm: Any, control: WorldClient) -> None:
    instance_id = fleet.launch()
    command_id = send(ssm, instance_id)

    def announced() -> list[dict[str, Any]]:
        kind = "EC2 Command Invocation Status-change Notification"
        events = [entry["event"] for entry in control.log(kind="event", detail_type=kind)]
        return [event for event in events if event["detail"]["command-id"] == command_id]

    (event,) = eventually(announced)
    assert event["detail"]["status"] == "Success"
    assert event["detail"]["instance-id"] == instance_id


def test_documents_can_be_read_and_changed(ssm: Any) -> None:
    changed = {**DOCUMENT, "description": "another"}

    ssm.update_document(Name="test-preempt", Content=json.dumps(changed), DocumentVersion="$LATEST")

    described = ssm.describe_document(Name="test-preempt")["Document"]
    assert described["DocumentVersion"] == "2"
    assert json.loads(ssm.get_document(Name="test-preempt")["Content"]) == changed


def test_parameters_of_the_account_are_the_emulators(ssm: Any) -> None:
    ssm.put_parameter(Name="/test/parameter", Value="x", Type="String")

    assert ssm.get_parameter(Name="/test/parameter")["Parameter"]["Value"] == "x"
