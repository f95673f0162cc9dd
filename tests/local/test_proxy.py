"""What passes through the world passes unchanged, and is written down."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from reprieve_cli.local.control import WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e

PATIENCE = 60.0


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


@pytest.fixture(scope="module")
def bucket(aws: Aws) -> str:
    aws.client("s3").create_bucket(Bucket="test-checkpoints")
    return "test-checkpoints"


@pytest.fixture(scope="module")
def table(aws: Aws) -> str:
    keys = {"pk": "HASH", "sk": "RANGE"}
    aws.client("dynamodb").create_table(
        TableName="test-jobs",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    return "test-jobs"


@pytest.mark.parametrize("size", [0, 1, 300_000, 6 * 2**20])
def test_objects_come_back_byte_for_byte_with_their_checksum(
    aws: Aws, bucket: str, size: int
) -> None:
    body = os.urandom(size)
    s3 = aws.client("s3")

    s3.put_object(Bucket=bucket, Key="data", Body=body, ChecksumAlgorithm="SHA256")
    answer = s3.get_object(Bucket=bucket, Key="data", ChecksumMode="ENABLED")

    assert hashlib.sha256(answer["Body"].read()).digest() == hashlib.sha256(body).digest()
    assert s3.head_object(Bucket=bucket, Key="data")["ContentLength"] == size


def test_an_upload_is_not_held_up_by_its_expectation_to_continue(aws: Aws, bucket: str) -> None:
    """The SDK waits a second for this answer before it sends a body."""
    world = urlsplit(aws.cloud.env["AWS_ENDPOINT_URL"])
    head = (
        f"PUT /{bucket}/quick HTTP/1.1\r\nHost: {world.netloc}\r\n"
        "Content-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((world.hostname, world.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode())
        first = connection.makefile("rb").readline()

    assert first.split()[1] == b"100"


@pytest.mark.parametrize("key", ["a b+c", "ü/%41/%", "dots/../up", "x//y", "q?a=b&c#d"])
def test_odd_keys_stay_as_they_are(aws: Aws, bucket: str, key: str) -> None:
    s3 = aws.client("s3")

    s3.put_object(Bucket=bucket, Key=key, Body=b"here")

    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"here"
    listed = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert key in listed


def test_conditional_writes_keep_their_meaning(aws: Aws, bucket: str, table: str) -> None:
    s3, dynamodb = aws.client("s3"), aws.client("dynamodb")
    item = {"pk": {"S": "JOB#1"}, "sk": {"S": "JOB"}}
    dynamodb.put_item(TableName=table, Item=item)
    s3.put_object(Bucket=bucket, Key="manifest", Body=b"1", IfNoneMatch="*")

    with pytest.raises(ClientError, match="ConditionalCheckFailedException"):
        dynamodb.put_item(
            TableName=table, Item=item, ConditionExpression="attribute_not_exists(pk)"
        )
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="manifest", Body=b"2", IfNoneMatch="*")


def test_the_log_names_caller_table_keys_and_outcome(
    aws: Aws, control: WorldClient, table: str
) -> None:
    dynamodb = aws.client("dynamodb", app="reprieve-test")
    with pytest.raises(ClientError):
        dynamodb.update_item(
            TableName=table,
            Key={"pk": {"S": "LEASE#job-9"}, "sk": {"S": "000001#t"}},
            UpdateExpression="SET beat = :b",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeValues={":b": {"N": "1"}},
        )
    dynamodb.query(
        TableName=table,
        KeyConditionExpression="#p = :p AND begins_with(sk, :s)",
        ExpressionAttributeNames={"#p": "pk"},
        ExpressionAttributeValues={":p": {"S": "JOB#9"}, ":s": {"S": "EVENT#"}},
    )
    dynamodb.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": table, "Item": {"pk": {"S": "JOB#9"}, "sk": {"S": "JOB"}}}},
            {
                "ConditionCheck": {
                    "TableName": table,
                    "Key": {"pk": {"S": "HOST#i"}, "sk": {"S": "HOST"}},
                    "ConditionExpression": "attribute_not_exists(pk)",
                }
            },
        ]
    )

    update, query, transaction = control.calls(caller="reprieve-test", service="dynamodb")

    assert update["resources"] == ["test-jobs"]
    assert update["keys"] == [
        {"op": "UpdateItem", "table": "test-jobs", "pk": "LEASE#job-9", "sk": "000001#t"}
    ]
    assert (update["status"], update["error"]) == (400, "ConditionalCheckFailedException")
    assert query["keys"][0]["pk"] == "JOB#9"
    assert [(key["op"], key["pk"]) for key in transaction["keys"]] == [
        ("Put", "JOB#9"),
        ("ConditionCheck", "HOST#i"),
    ]
    assert transaction["status"] == 200


def test_the_log_names_s3_operations_and_objects(
    aws: Aws, control: WorldClient, bucket: str
) -> None:
    s3 = aws.client("s3", app="s3-test")
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"x")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="a/c")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="a/c", UploadId=upload, PartNumber=1, Body=b"x")
    s3.list_objects_v2(Bucket=bucket, Prefix="a/")
    s3.copy_object(Bucket=bucket, Key="a/d", CopySource={"Bucket": bucket, "Key": "a/b"})
    with pytest.raises(ClientError):
        s3.head_object(Bucket=bucket, Key="none")

    logged = control.calls(caller="s3-test")

    assert [(call["action"], call["resources"]) for call in logged] == [
        ("PutObject", [f"{bucket}/a/b"]),
        ("CreateMultipartUpload", [f"{bucket}/a/c"]),
        ("UploadPart", [f"{bucket}/a/c"]),
        ("ListObjectsV2", [bucket]),
        ("CopyObject", [f"{bucket}/a/d"]),
        ("HeadObject", [f"{bucket}/none"]),
    ]


def test_the_log_holds_the_tags_of_a_launch_and_of_the_hosts_a_call_names(
    aws: Aws, control: WorldClient, fleet: Fleet
) -> None:
    instance_id = fleet.launch()
    aws.client("ec2", app="owner").terminate_instances(InstanceIds=[instance_id])

    launch = control.calls(service="ec2", action="CreateFleet")[-1]
    (end,) = control.calls(caller="owner", action="TerminateInstances")

    assert launch["tags"]["instance"] == {"reprieve:order": "job-1#1#1"}
    assert fleet.template_id in launch["resources"]
    assert end["resources"] == [instance_id]
    assert end["resource_tags"][instance_id]["reprieve:pool"] == "gpu"


def test_services_of_every_protocol_are_understood(aws: Aws, control: WorldClient) -> None:
    app = "protocols"
    aws.client("sts", app=app).get_caller_identity()
    aws.client("lambda", app=app).list_functions()
    aws.client("cloudwatch", app=app).put_metric_data(
        Namespace="Test", MetricData=[{"MetricName": "m", "Value": 1.0}]
    )
    aws.client("logs", app=app).describe_log_groups()
    aws.client("scheduler", app=app).list_schedules()
    aws.client("sqs", app=app).list_queues()

    assert [(call["service"], call["action"]) for call in control.calls(caller=app)] == [
        ("sts", "GetCallerIdentity"),
        ("lambda", "ListFunctions"),
        ("cloudwatch", "PutMetricData"),
        ("logs", "DescribeLogGroups"),
        ("scheduler", "ListSchedules"),
        ("sqs", "ListQueues"),
    ]


def test_many_long_polls_do_not_hold_up_other_calls(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="empty")["QueueUrl"]
    polls = [
        threading.Thread(
            target=aws.client("sqs").receive_message,
            kwargs={"QueueUrl": url, "WaitTimeSeconds": 2},
        )
        for _ in range(5)
    ]
    for poll in polls:
        poll.start()

    assert aws.client("sts").get_caller_identity()["Account"] == "000000000000"

    assert all(poll.is_alive() for poll in polls)
    for poll in polls:
        poll.join()


def test_a_message_is_not_lost_to_a_caller_who_hung_up(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="hung-up", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    program = (
        "import boto3, sys\n"
        "boto3.client('sqs').receive_message(QueueUrl=sys.argv[1], WaitTimeSeconds=20)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program, url], env=aws.cloud.environ())
    try:
        eventually(lambda: aws.cloud.control.calls_in_flight(resources=["hung-up"]))
    finally:
        caller.kill()
        caller.wait()

    sqs.send_message(QueueUrl=url, MessageBody="ticket")
    eventually(lambda: not aws.cloud.control.calls_in_flight(resources=["hung-up"]))

    def received() -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = sqs.receive_message(QueueUrl=url).get("Messages", [])
        return messages

    assert eventually(received)[0]["Body"] == "ticket"
