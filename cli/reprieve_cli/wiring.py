"""The one place where the CLI's ports meet their adapters."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from reprieve_cli.errors import BadInputError
from reprieve_cli.failures import LOOPBACK
from reprieve_cli.stack import Cloud, Stack

if TYPE_CHECKING:
    from boto3 import Session

DEFAULT_STACK = "Reprieve"
USER_AGENT_APP = "reprieve-cli"
NO_SUCH_STACK = "ValidationError"  # what DescribeStacks answers for a name it doesn't know


def stack_name() -> str:
    """Return the name of the stack in use."""
    return os.environ.get("REPRIEVE_STACK") or DEFAULT_STACK


def is_embedded() -> bool:
    """Tell whether the SDK is pointed at the embedded cloud."""
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith(LOOPBACK)


def session() -> Session:
    """Return a session for the region of the environment; raise ``BadInputError`` without one."""
    import boto3

    found = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
    if not found.region_name:
        raise BadInputError("no region: set AWS_REGION to the region of the stack")
    return found


def client(service: str, of: Session) -> Any:
    """Return a client that says who calls and gives up before a person does."""
    from botocore.config import Config

    options: dict[str, Any] = {
        "connect_timeout": 5,
        "read_timeout": 30,
        "retries": {"mode": "standard", "total_max_attempts": 3},
        "user_agent_appid": USER_AGENT_APP,
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    make: Any = of.client  # its stub knows services by literal names only
    return make(service, config=Config(**options))


def describe_stack(of: Session) -> tuple[Stack, Mapping[str, Any]]:
    """Return the stack in use and CloudFormation's description of it; ``BadInputError`` if none."""
    from botocore.exceptions import ClientError

    name, region = stack_name(), of.region_name or ""
    try:
        answer = client("cloudformation", of).describe_stacks(StackName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != NO_SUCH_STACK:
            raise
        answer = {"Stacks": []}
    if not answer["Stacks"]:
        raise BadInputError(
            f"no stack {name} in {region}: deploy it (cdk deploy), or set REPRIEVE_STACK and "
            "AWS_REGION to where it is"
        )
    described = answer["Stacks"][0]
    outputs = {out["OutputKey"]: out["OutputValue"] for out in described.get("Outputs", [])}
    return Stack.of_outputs(name, region, outputs), described


def find_cloud() -> Cloud:
    """Find the stack and wire everything that commands reach."""
    found = session()
    stack, _ = describe_stack(found)
    return wire(stack, found)


def wire(stack: Stack, of: Session) -> Cloud:
    """Return the ports of *stack*."""
    from reprieve.adapters.dynamodb import Table
    from reprieve.adapters.dynamodb_hosts import DynamoHostStore
    from reprieve.adapters.dynamodb_jobs import DynamoJobStore
    from reprieve.adapters.dynamodb_orders import DynamoOrderStore
    from reprieve.adapters.dynamodb_rows import DynamoRows
    from reprieve.adapters.dynamodb_watch import DynamoWatch
    from reprieve.adapters.ec2_fleet import Ec2Fleet
    from reprieve.adapters.s3_stored import S3Stored
    from reprieve.adapters.sqs import SqsMail
    from reprieve_cli.objects import S3Objects

    table = Table(client("dynamodb", of), stack.table)
    jobs, hosts, orders = DynamoJobStore(table), DynamoHostStore(table), DynamoOrderStore(table)
    queues = client("sqs", of)
    mail = SqsMail(
        queues,
        orders_queue_url=stack.orders_url,
        work_queues={pool.name: pool.work_queue_url for pool in stack.pools.values()},
    )
    bucket = client("s3", of)
    fleet = Ec2Fleet(lambda: client("ec2", of), stack=stack.name, zones=())
    return Cloud(
        stack=stack,
        rows=DynamoRows(table),
        jobs=jobs,
        orders=orders,
        hosts=hosts,
        mail=mail,
        objects=S3Objects(bucket, stack.bucket),
        now=now,
        fleet=fleet,
        stop_launching=lambda: _stop(client("lambda", of), stack.outputs["ReplaceHostFunction"]),
        watch=DynamoWatch(table),
        announce=lambda event: _announce(queues, stack.outputs["IntakeQueueUrl"], event),
        stored=S3Stored(lambda: bucket, stack.bucket),
    )


def _announce(queues: Any, url: str, event: Mapping[str, Any]) -> None:
    """Put *event* on the intake queue, as a rule of EventBridge would."""
    queues.send_message(QueueUrl=url, MessageBody=json.dumps(event))


def _stop(functions: Any, name: str) -> None:
    """Let the function run no more; the template sets no limit, so a new deployment lifts it."""
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
