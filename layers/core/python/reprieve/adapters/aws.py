"""One session, the clients made from it when first used, and the adapters over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from reprieve.adapters import sdk
from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import DynamoHostStore
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.adapters.dynamodb_orders import DynamoOrderStore
from reprieve.adapters.dynamodb_rows import DynamoRows
from reprieve.adapters.dynamodb_watch import DynamoWatch
from reprieve.adapters.ec2_fleet import Ec2Fleet
from reprieve.adapters.s3_manifests import S3Manifests
from reprieve.adapters.s3_stored import S3Stored
from reprieve.adapters.sqs import SqsMail
from reprieve.adapters.ssm import SsmSignals

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient

CONNECT_SECONDS = 2
READ_SECONDS = 5
LAUNCH_SECONDS = 20  # an instant fleet answers after EC2 has placed it
SIGNAL_SECONDS = 2  # a notice has 120 s, and its function 10 s for a whole batch
TRIES = 3


class Clients:
    """
    botocore clients with short timeouts and few retries, each made when it is first used.

    The SDK's own environment variables decide about endpoints and credentials. boto3 would
    only stand between: it costs a function a sixth of its cold start.
    """

    def __init__(self, region: str | None = None, *, session: Session | None = None) -> None:
        self._session = session or sdk.session(region)

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        client: DynamoDBClient = self._client("dynamodb")
        return client

    @cached_property
    def sqs(self) -> SQSClient:
        client: SQSClient = self._client("sqs")
        return client

    @cached_property
    def ssm(self) -> SSMClient:
        """Return a client without retries: the signal is worth seconds, and repeats itself."""
        client: SSMClient = self._client("ssm", SIGNAL_SECONDS, tries=1)
        return client

    @cached_property
    def ec2(self) -> EC2Client:
        client: EC2Client = self._client("ec2", LAUNCH_SECONDS, tries=2)
        return client

    @cached_property
    def s3(self) -> S3Client:
        client: S3Client = self._client("s3")
        return client

    def _client(
        self, service: str, read_seconds: float = READ_SECONDS, *, tries: int = TRIES
    ) -> Any:
        return self._session.create_client(service, config=_config(read_seconds, tries=tries))


@dataclass(frozen=True, slots=True)
class Adapters:
    """Every port that functions use, on AWS; fields are named as in the use cases' wiring."""

    rows: DynamoRows
    jobs: DynamoJobStore
    hosts: DynamoHostStore
    orders: DynamoOrderStore
    watch: DynamoWatch
    fleet: Ec2Fleet
    signals: SsmSignals
    mail: SqsMail
    manifests: S3Manifests | None
    stored: S3Stored | None


def connect(
    clients: Clients,
    *,
    table: str,
    stack: str,
    zones: Sequence[str],
    orders_queue_url: str,
    work_queues: Mapping[str, str],
    ssm_document: str | None = None,
    bucket: str | None = None,
) -> Adapters:
    """Return the adapters of one stack; EC2 and SSM clients are made when first used."""
    jobs = Table(clients.dynamodb, table)
    return Adapters(
        rows=DynamoRows(jobs),
        jobs=DynamoJobStore(jobs),
        hosts=DynamoHostStore(jobs),
        orders=DynamoOrderStore(jobs),
        watch=DynamoWatch(jobs),
        fleet=Ec2Fleet(lambda: clients.ec2, stack=stack, zones=zones),
        signals=SsmSignals(lambda: clients.ssm, ssm_document),
        mail=SqsMail(clients.sqs, orders_queue_url=orders_queue_url, work_queues=work_queues),
        manifests=S3Manifests(lambda: clients.s3, bucket) if bucket else None,
        stored=S3Stored(lambda: clients.s3, bucket) if bucket else None,
    )


def _config(read_seconds: float, *, tries: int) -> Config:
    return Config(
        connect_timeout=min(CONNECT_SECONDS, read_seconds),
        read_timeout=read_seconds,
        retries={"mode": "standard", "total_max_attempts": tries},
    )
