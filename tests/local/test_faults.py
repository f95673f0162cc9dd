"""Scripted faults: the call fails, is answered, is late, is doubled, or is lost."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from reprieve_cli.local.control import ControlError, WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def control(aws: Aws, fleet: Fleet) -> WorldClient:
    return aws.cloud.control  # the fleet fixture clears faults afterwards


@pytest.fixture
def queue(aws: Aws, request: pytest.FixtureRequest) -> str:
    name = f"faults-{abs(hash(request.node.name))}"
    return str(aws.client("sqs").create_queue(QueueName=name)["QueueUrl"])


def depth(aws: Aws, queue: str) -> int:
    attributes = aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
    return int(attributes["Attributes"]["ApproximateNumberOfMessages"])


@pytest.mark.parametrize(
    ("service", "action", "call"),
    [
        ("sqs", "ListQueues", lambda aws: aws.client("sqs").list_queues()),
        ("ec2", "DescribeInstances", lambda aws: aws.client("ec2").describe_instances()),
        ("sts", "GetCallerIdentity", lambda aws: aws.client("sts").get_caller_identity()),
        ("s3", "ListBuckets", lambda aws: aws.client("s3").list_buckets()),
        ("lambda", "ListFunctions", lambda aws: aws.client("lambda").list_functions()),
        ("cloudwatch", "ListMetrics", lambda aws: aws.client("cloudwatch").list_metrics()),
    ],
)
def test_an_error_speaks_the_protocol_of_its_service_and_is_used_up(
    aws: Aws, control: WorldClient, service: str, action: str, call: Any
) -> None:
    control.add_fault(
        service, action, {"error": {"code": "Throttled", "message": "slow down", "status": 400}}
    )

    with pytest.raises(ClientError) as caught:
        call(aws)

    assert caught.value.response["Error"]["Code"] == "Throttled"
    assert caught.value.response["Error"]["Message"] == "slow down"
    call(aws)
    assert control.faults() == []


def test_a_fault_can_be_for_one_caller_and_for_some_time(aws: Aws, control: WorldClient) -> None:
    error = {"error": {"code": "InternalError", "status": 500}}
    control.add_fault("sqs", "*", error, caller="reprieve-agent", seconds=60)

    aws.client("sqs", app="somebody").list_queues()
    for _ in range(2):
        with pytest.raises(ClientError, match="InternalError"):
            aws.client("sqs", app="reprieve-agent").list_queues()


def test_a_fault_can_wait_for_the_third_call_and_for_one_resource(
    aws: Aws, control: WorldClient
) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="test-faults")
    control.add_fault(
        *("s3", "PutObject", {"error": {"code": "SlowDown", "status": 503}}),
        resource="test-faults/manifests/*",
        skip=1,
    )

    s3.put_object(Bucket="test-faults", Key="data/1", Body=b"")
    s3.put_object(Bucket="test-faults", Key="manifests/1", Body=b"")
    with pytest.raises(ClientError, match="SlowDown"):
        s3.put_object(Bucket="test-faults", Key="manifests/2", Body=b"")


def test_a_canned_reply_is_written_in_the_services_format(
    aws: Aws, control: WorldClient, fleet: Fleet
) -> None:
    control.add_fault(
        *("ec2", "CreateFleet"),
        {
            "reply": {
                "FleetId": "fleet-1",
                "Instances": [],
                "Errors": [{"ErrorCode": "MaxSpotInstanceCountExceeded", "Lifecycle": "spot"}],
            }
        },
    )
    control.add_fault("sqs", "GetQueueUrl", {"reply": {"QueueUrl": "http://elsewhere/q"}})

    assert fleet.create()["Errors"][0]["ErrorCode"] == "MaxSpotInstanceCountExceeded"
    assert aws.client("sqs").get_queue_url(QueueName="q")["QueueUrl"] == "http://elsewhere/q"


def test_a_delay_comes_before_the_answer(aws: Aws, control: WorldClient) -> None:
    control.add_fault("sts", "GetCallerIdentity", {"delay_seconds": 0.4})
    sts = aws.client("sts")
    began = time.monotonic()

    sts.get_caller_identity()

    assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize(("drop", "messages"), [("before", 0), ("after", 1)])
def test_a_dropped_call_has_no_answer_with_or_without_its_effect(
    aws: Aws, control: WorldClient, queue: str, drop: str, messages: int
) -> None:
    control.add_fault("sqs", "SendMessage", {"drop": drop})

    with pytest.raises(ConnectionClosedError):
        aws.client("sqs").send_message(QueueUrl=queue, MessageBody="x")

    assert depth(aws, queue) == messages


def test_a_lost_answer_of_a_launch_leaves_an_instance_behind(
    control: WorldClient, fleet: Fleet
) -> None:
    control.add_fault("ec2", "CreateFleet", {"drop": "after"})
    before = len(control.hosts())

    with pytest.raises(ConnectionClosedError):
        fleet.create(ClientToken="lost")

    assert len(control.hosts()) == before + 1
    (again,) = fleet.create(ClientToken="lost")["Instances"]
    assert again["InstanceIds"] == [control.hosts()[-1].instance_id]


def test_a_doubled_call_has_its_effect_twice(aws: Aws, control: WorldClient, queue: str) -> None:
    control.add_fault("sqs", "SendMessage", {"duplicate": 2})

    aws.client("sqs").send_message(QueueUrl=queue, MessageBody="x")

    assert depth(aws, queue) == 3


def test_the_metadata_service_can_fail_too(control: WorldClient, fleet: Fleet) -> None:
    instance_id = fleet.launch()
    control.add_fault(
        *("imds", "spot/instance-action", {"error": {"code": "x", "status": 500}}),
        seconds=60,
        instance_id=instance_id,
    )
    control.notice(instance_id, in_seconds=60)
    control.rebalance(instance_id)

    eventually(lambda: fleet.read(instance_id, "events-recommendations-rebalance.json"))
    assert fleet.read(instance_id, "spot-instance-action.json") is None


def test_a_host_without_a_network_reaches_nothing_until_it_is_mended(
    control: WorldClient, fleet: Fleet
) -> None:
    instance_id = fleet.launch()
    (fleet.state_dir(instance_id) / "call").touch()
    eventually(lambda: fleet.read(instance_id, "identity.json"))
    (fleet.state_dir(instance_id) / "identity.json").unlink()

    control.cut(instance_id, "network")
    (fleet.state_dir(instance_id) / "call").touch()
    eventually(lambda: not (fleet.state_dir(instance_id) / "call").exists())
    other = fleet.launch()  # a whole boot: the call would have been answered long since
    assert fleet.read(instance_id, "identity.json") is None
    control.mend(instance_id, "network")

    eventually(lambda: fleet.read(instance_id, "identity.json"))
    assert fleet.state(other) == "running"


def test_a_host_that_is_cut_off_while_it_polls_gets_no_message(
    aws: Aws, control: WorldClient, fleet: Fleet, queue: str
) -> None:
    instance_id = fleet.launch()
    poll = threading.Thread(
        target=aws.try_as,
        args=(fleet.credentials(instance_id), "sqs", "receive_message"),
        kwargs={"QueueUrl": queue, "WaitTimeSeconds": 20},
        daemon=True,
    )
    poll.start()
    eventually(lambda: control.calls_in_flight(instance_id=instance_id))

    control.cut(instance_id, "network")
    aws.client("sqs").send_message(QueueUrl=queue, MessageBody="ticket")

    eventually(lambda: not control.calls_in_flight(instance_id=instance_id))
    eventually(lambda: aws.client("sqs").receive_message(QueueUrl=queue).get("Messages"))
    assert poll.is_alive()
    control.kill(instance_id)
    control.mend(instance_id)
    poll.join(10)


@pytest.mark.parametrize(
    "fault",
    [
        {"service": "sqs", "action": "*"},
        {"service": "sqs", "action": "*", "then": {}},
        {"service": "sqs", "action": "*", "then": {"explode": True}},
        {"service": "sqs", "action": "*", "then": {"drop": "sometimes"}},
        {"service": "sqs", "action": "*", "then": {"drop": "after"}, "often": 3},
        {"service": "sts", "action": "*", "then": {"reply": {}}},
        {"service": "*", "action": "*", "then": {"reply": {}}},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(
    control: WorldClient, fault: dict[str, Any]
) -> None:
    with pytest.raises(ControlError, match="fault"):
        control._send("POST", "faults", fault)


def test_retries_of_the_sdk_get_over_a_single_fault(aws: Aws, control: WorldClient) -> None:
    control.add_fault("sts", "GetCallerIdentity", {"drop": "before"})

    patient = aws.client("sts", attempts=3)

    assert patient.get_caller_identity()["Account"] == "000000000000"
