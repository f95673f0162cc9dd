"""What the design takes for granted of the pinned emulator: red here means the pin moved."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.deploy import DeployError, deploy
from reprieve_cli.local.localize import UNSUPPORTED
from tests.local.support import Aws

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def table(aws: Aws) -> str:
    aws.client("dynamodb").create_table(
        TableName="probes",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return "probes"


def test_nobody_may_put_events_in_the_name_of_aws(aws: Aws) -> None:
    entry = {"Source": "aws.ec2", "DetailType": "x", "Detail": "{}"}

    (answer,) = aws.client("events").put_events(Entries=[entry])["Entries"]

    assert answer["ErrorCode"] == "NotAuthorizedForSourceException"


def test_a_failed_condition_shows_the_item_that_was_there(aws: Aws, table: str) -> None:
    dynamodb = aws.client("dynamodb")
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "held"}, "by": {"S": "me"}})

    with pytest.raises(ClientError) as caught:
        dynamodb.put_item(
            TableName=table,
            Item={"pk": {"S": "held"}},
            ConditionExpression="attribute_not_exists(pk)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    response: dict[str, Any] = dict(caught.value.response)
    assert response["Item"]["by"] == {"S": "me"}


def test_a_race_for_one_item_has_one_winner(aws: Aws, table: str) -> None:
    dynamodb = aws.client("dynamodb")
    won: list[int] = []

    def claim(number: int) -> None:
        try:
            dynamodb.put_item(
                TableName=table,
                Item={"pk": {"S": "race"}},
                ConditionExpression="attribute_not_exists(pk)",
            )
        except dynamodb.exceptions.ConditionalCheckFailedException:
            return
        won.append(number)

    racers = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert len(won) == 1


def test_the_sender_of_a_message_is_the_account(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="senders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")

    (message,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]

    # Why the local template says ATTESTED_SENDER=off: on AWS it is the host's session.
    assert message["Attributes"]["SenderId"] == aws.cloud.account


def test_a_wrong_checksum_is_refused(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="checksums")

    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(Bucket="checksums", Key="x", Body=b"x", ChecksumSHA256="A" * 43 + "=")


@pytest.mark.parametrize("kind", sorted(UNSUPPORTED))
def test_the_types_we_leave_out_are_still_refused(cloud: Cloud, tmp_path: Path, kind: str) -> None:
    template: dict[str, Any] = {"Resources": {"It": {"Type": kind, "Properties": {}}}}
    (tmp_path / "Probe.template.json").write_text(json.dumps(template))
    (tmp_path / "Probe.assets.json").write_text(json.dumps({"files": {}}))

    with pytest.raises(DeployError, match="Unrecognized resource types"):
        deploy(cloud, tmp_path, "Probe")
