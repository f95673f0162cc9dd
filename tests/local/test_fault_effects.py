"""What faults can do beyond an error: sequences, single items, half answers, dead callers."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from reprieve_cli.local.control import ControlError, WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e

TABLE = "fault-effects"


@pytest.fixture
def control(aws: Aws, fleet: Fleet) -> WorldClient:
    return aws.cloud.control  # the fleet fixture clears faults afterwards


@pytest.fixture(scope="module")
def table(aws: Aws) -> Any:
    client = aws.client("dynamodb")
    client.create_table(
        TableName=TABLE,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    return client


@pytest.fixture(scope="module")
def bucket(aws: Aws) -> str:
    aws.client("s3").create_bucket(Bucket="fault-effects")
    return "fault-effects"


def put(pk: str, sk: str) -> dict[str, Any]:
    return {"Put": {"TableName": TABLE, "Item": {"pk": {"S": pk}, "sk": {"S": sk}}}}


def sts(aws: Aws) -> str:
    try:
        aws.client("sts").get_caller_identity()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    except BotoCoreError as error:
        return type(error).__name__
    return "ok"


# ---------------------------------------------------------------------- one after the other
def test_each_call_gets_the_next_effect_and_then_the_fault_is_over(
    aws: Aws, control: WorldClient
) -> None:
    then: list[dict[str, Any]] = [
        {"error": {"code": "Throttling"}},
        {"pass": True},
        {"drop": "before"},
    ]
    control.add_fault("sts", "GetCallerIdentity", then)
    assert [sts(aws) for _ in range(4)] == ["Throttling", "ok", "ConnectionClosedError", "ok"]
    assert control.faults() == []


def test_those_who_watch_are_spared_unless_they_are_named(aws: Aws, control: WorldClient) -> None:
    watching = aws.client("sts", app="reprieve-cli")
    control.add_fault("sts", "*", {"error": {"code": "Throttling"}}, seconds=60)
    watching.get_caller_identity()
    assert sts(aws) == "Throttling"
    control.clear_faults()
    control.add_fault("sts", "*", {"error": {"code": "Throttling"}}, caller="reprieve-c*")
    with pytest.raises(ClientError, match="Throttling"):
        watching.get_caller_identity()


def test_the_last_effect_repeats_for_as_long_as_the_fault_lasts(
    aws: Aws, control: WorldClient
) -> None:
    then: list[dict[str, Any]] = [{"pass": True}, {"error": {"code": "ServiceUnavailable"}}]
    control.add_fault("sts", "*", then, seconds=60)
    assert [sts(aws) for _ in range(3)] == ["ok", "ServiceUnavailable", "ServiceUnavailable"]


def test_metadata_answers_by_script(control: WorldClient, fleet: Fleet) -> None:
    instance_id = fleet.launch()
    notice = {"action": "terminate", "time": "2026-03-01T10:02:00Z"}
    then: list[dict[str, Any]] = [
        {"error": {"status": 404}},
        {"error": {"status": 401}},
        {"error": {"status": 503}},
        {"drop": "before"},
        {"reply": "not JSON"},
        {"reply": notice},
    ]
    # Only we ask below this name: the agent has paths of its own.
    control.add_fault("imds", "placement/region", then, instance_id=instance_id)

    def ask() -> int | str:
        try:
            return fleet.metadata(instance_id, "placement/region")
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return "no answer"

    seen = [ask() for _ in range(7)]
    assert seen[:5] == [404, 401, 503, "no answer", "not JSON"]
    assert "2026-03-01T10:02:00Z" in str(seen[5])
    assert seen[6] == "us-east-1"
    asked = control.metadata_requests(action="placement/region", instance_id=instance_id)
    assert [one["status"] for one in asked] == [404, 401, 503, None, 200, 200, 200]
    tokens = control.metadata_requests(action="api/token", instance_id=instance_id)
    assert len(tokens) >= 7


# ---------------------------------------------------------------------- DynamoDB, item by item
def test_a_conflict_on_one_item_cancels_the_transaction_with_its_reason(
    table: Any, control: WorldClient
) -> None:
    control.add_fault(
        *("dynamodb", "*", {"error": {"reason": "TransactionConflict"}}), key="LEASE#*/*"
    )
    items = [put("JOB#1", "JOB"), put("LEASE#1", "000001#t")]

    table.transact_write_items(TransactItems=items[:1])  # no lease in it
    with pytest.raises(ClientError) as caught:
        table.transact_write_items(TransactItems=items)

    assert caught.value.response["Error"]["Code"] == "TransactionCanceledException"
    reasons: Any = caught.value.response
    assert [one["Code"] for one in reasons["CancellationReasons"]] == [
        "None",
        "TransactionConflict",
    ]
    table.transact_write_items(TransactItems=items)


def test_a_conflict_on_a_single_update_is_an_exception_of_its_own(
    table: Any, control: WorldClient
) -> None:
    control.add_fault(
        *("dynamodb", "*", {"error": {"reason": "TransactionConflict"}}), key="HOST#1/HOST"
    )
    key = {"pk": {"S": "HOST#1"}, "sk": {"S": "HOST"}}
    table.get_item(TableName=TABLE, Key={**key, "sk": {"S": "HOLDS"}})
    with pytest.raises(ClientError, match="TransactionConflictException"):
        table.update_item(TableName=TABLE, Key=key)


# ---------------------------------------------------------------------- S3 and its bodies
def test_an_upload_is_refused_while_its_body_is_on_its_way(
    aws: Aws, control: WorldClient, bucket: str
) -> None:
    control.add_fault("s3", "PutObject", {"error": {"code": "SlowDown"}})
    s3 = aws.client("s3")
    with pytest.raises(ClientError) as caught:
        s3.put_object(Bucket=bucket, Key="big", Body=b"x" * 8_000_000)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    s3.put_object(Bucket=bucket, Key="big", Body=b"x" * 8_000_000)


@pytest.mark.parametrize("size", [1_000, 3_000_000])
def test_half_of_an_object_arrives(aws: Aws, control: WorldClient, bucket: str, size: int) -> None:
    s3 = aws.client("s3")
    s3.put_object(Bucket=bucket, Key="half", Body=b"x" * size)
    control.add_fault("s3", "GetObject", {"drop": "during"}, resource=f"{bucket}/half")
    with pytest.raises(BotoCoreError):
        s3.get_object(Bucket=bucket, Key="half")["Body"].read()
    assert len(s3.get_object(Bucket=bucket, Key="half")["Body"].read()) == size


def test_an_upload_whose_answer_gets_lost_is_there(
    aws: Aws, control: WorldClient, bucket: str
) -> None:
    control.add_fault("s3", "PutObject", {"drop": "after"})
    s3 = aws.client("s3")
    with pytest.raises(BotoCoreError):
        s3.put_object(Bucket=bucket, Key="lost", Body=b"x" * 3_000_000)
    assert s3.head_object(Bucket=bucket, Key="lost")["ContentLength"] == 3_000_000


# ---------------------------------------------------------------------- who calls
def test_an_agent_dies_in_the_middle_of_its_call_and_is_started_again(
    control: WorldClient, fleet: Fleet
) -> None:
    instance_id = fleet.launch()
    before = _pid(control, instance_id)
    control.add_fault("sts", "*", {"kill": "after"}, instance_id=instance_id)
    (fleet.state_dir(instance_id) / "call").touch()

    (call,) = eventually(lambda: control.calls(service="sts", fault="kill after"))

    assert call["killed"] == before
    eventually(lambda: _pid(control, instance_id) not in {None, before})


def test_nobody_else_is_killed(aws: Aws, control: WorldClient) -> None:
    control.add_fault("sts", "*", {"kill": "before"})
    script = "import boto3; boto3.client('sts').get_caller_identity()"
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={**aws.cloud.environ(), "AWS_MAX_ATTEMPTS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "Connection was closed" in process.stderr
    (call,) = control.calls(service="sts", fault="kill before")[-1:]
    assert call["killed"] is None


def test_an_agent_that_crashes_is_started_again(control: WorldClient, fleet: Fleet) -> None:
    instance_id = fleet.launch()
    before = _pid(control, instance_id)
    control.crash(instance_id)
    eventually(lambda: _pid(control, instance_id) not in {None, before})
    assert fleet.state(instance_id) == "running"


def _pid(control: WorldClient, instance_id: str) -> int | None:
    return next(host.pid for host in control.hosts() if host.instance_id == instance_id)


# ---------------------------------------------------------------------- the world's own events
@pytest.mark.parametrize(
    ("then", "deliveries"), [({"drop": "before"}, 0), ({"duplicate": 2}, 3), ({"pass": True}, 1)]
)
def test_an_event_of_the_world_is_lost_or_doubled(
    aws: Aws, control: WorldClient, fleet: Fleet, then: dict[str, Any], deliveries: int
) -> None:
    instance_id = fleet.launch()
    since = control.log()[-1]["n"]
    control.add_fault("eventbridge", "EC2 Instance Rebalance*", then, instance_id=instance_id)
    control.rebalance(instance_id)

    kind = "EC2 Instance Rebalance Recommendation"
    wanted = max(deliveries, 1)  # a lost one is noted too

    def told() -> list[dict[str, Any]] | None:
        entries = control.log(since=since, kind="event", detail_type=kind)
        return entries if len(entries) == wanted else None

    lost = [entry for entry in eventually(told) if "error" in entry]
    assert bool(lost) is (deliveries == 0)


def test_a_late_event_comes_later(control: WorldClient, fleet: Fleet) -> None:
    instance_id = fleet.launch()
    control.add_fault("eventbridge", "EC2 Instance Rebalance*", {"delay_seconds": 0.5})
    since, began = control.log()[-1]["n"], time.monotonic()
    control.rebalance(instance_id)
    eventually(lambda: control.log(since=since, kind="event"))
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    "then",
    [[], {"kill": "during"}, {"error": {"codes": "x"}}],
)
def test_an_effect_that_makes_no_sense_is_refused(control: WorldClient, then: Any) -> None:
    with pytest.raises(ControlError, match="fault"):
        control.add_fault("sqs", "*", then)


def test_an_event_can_only_be_lost_late_or_doubled(control: WorldClient) -> None:
    with pytest.raises(ControlError, match="then takes delay_seconds, drop, duplicate, pass"):
        control.add_fault("eventbridge", "*", {"error": {"code": "x"}})
