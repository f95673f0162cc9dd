"""The same nonsense down to a real table: what is accepted can be stored, the rest never is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.handle_notice import handler as handle_notice
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from reprieve.adapters.memory import Memory
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import LeaseKey, Phase
from reprieve.domain.order import Order
from reprieve.ports.leases import Claim, Progress
from reprieve.ports.rows import PutHolds, PutHost, PutJob, PutLease, PutOrder
from reprieve.protocol import Report, ReportKind
from reprieve.usecases.wiring import Deployment, Ports, UseCases
from tests.builders import HOST, OTHER_HOST, a_holder, a_host, a_job, a_lease
from tests.contract.stores import TABLE, create_table, emulator, in_table
from tests.functions.conftest import Context, records
from tests.fuzz.stage import wired_to
from tests.fuzz.strategies import FUZZ, bodies, spelt_out
from tests.fuzz.test_handlers import COMMAND, EVENTS, NOTICED, ORDER, RECEIPT
from tests.usecases.story import CLOCK, a_pool

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.e2e

STRANGER = "i-0ff00000000000099"
# Each example is a dozen requests over HTTP.
TABLE_FUZZ = settings(
    FUZZ,
    max_examples=max(30, FUZZ.max_examples // 3),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass
class Stack:
    """Two busy hosts on a table of the emulator's; EC2, SSM and the queues are in memory."""

    client: DynamoDBClient
    keys: dict[str, LeaseKey]

    def send(self, module: Any, *said: object, sender: str = HOST) -> list[str]:
        spelt = [spelt_out(body) if isinstance(body, str) else body for body in said]
        event = records(*spelt, sender=f"AROAEXAMPLE:{sender}")
        reply = module.lambda_handler(event, Context())
        return [item["itemIdentifier"] for item in reply["batchItemFailures"]]

    def items(self) -> list[Any]:
        pages = self.client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
        found = [item for page in pages for item in page["Items"]]
        return sorted(found, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def report(self, said: ReportKind, host: str, /, **data: Any) -> dict[str, Any]:
        report = Report(said, host, datetime.now(UTC), 3, self.keys[host], data)
        body: dict[str, Any] = json.loads(report.to_json())
        return body

    def reports(self, host: str) -> list[dict[str, Any]]:
        return [
            self.report(ReportKind.INTERRUPTED, host, **RECEIPT),
            self.report(ReportKind.NOTICED, host, **NOTICED),
            self.report(ReportKind.PROGRESS, host, quarantined="jobs/m.json", reason="short"),
        ]


@pytest.fixture(scope="module")
def client() -> Iterator[DynamoDBClient]:
    with emulator() as address:
        client = boto3.client(
            "dynamodb",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        create_table(client)
        yield client
        client.close()


@pytest.fixture(scope="module")
def stack(client: DynamoDBClient) -> Iterator[Stack]:
    now = datetime.now(UTC)
    stores, memory = in_table(client, now), Memory()
    keys = {}
    for n, host in enumerate((HOST, OTHER_HOST), start=1):
        job = a_job(f"job-{n}", status=JobStatus.RUNNING, ticket_at=now)
        lease, order = a_lease(job), Order(job.id, 1, job.pool, "submitted", now, now)
        stores.rows.commit(
            [
                PutJob(job, new=True),
                PutLease(lease),
                PutHost(a_host(host, launched_at=now - timedelta(hours=1)), new=True),
                PutHolds(host),
                PutOrder(order, was=None),
            ]
        )
        holder = a_holder(host)
        assert stores.leases.claim(lease.key, holder) is Claim.WON
        stores.leases.seal(lease.key, holder, None)
        stores.leases.renew(lease.key, holder, Progress(Phase.RUNNING, step=40))
        keys[host] = lease.key
    ports = Ports(
        rows=stores.rows,
        jobs=stores.jobs,
        hosts=stores.hosts,
        orders=stores.orders,
        watch=stores.watch,
        fleet=memory.fleet,
        signals=memory.signals,
        mail=memory.mail,
    )
    deployment = Deployment("Reprieve", {"small": a_pool()}, {"us-east-1a": "subnet-a"}, CLOCK)
    with wired_to(UseCases(ports, deployment)):
        yield Stack(client, keys)


@TABLE_FUZZ
@given(body=bodies(*EVENTS))
def test_no_event_of_a_stranger_writes_an_item(body: str, stack: Stack) -> None:
    before = stack.items()
    stack.send(handle_notice, body)
    assert stack.items() == before


@TABLE_FUZZ
@given(body=bodies(ORDER))
def test_no_order_for_a_foreign_job_writes_an_item(body: str, stack: Stack) -> None:
    before = stack.items()
    stack.send(replace_host, body)
    assert stack.items() == before


@TABLE_FUZZ
@given(data=st.data())
def test_no_report_that_the_queue_does_not_attest_writes_an_item(
    data: st.DataObject, stack: Stack
) -> None:
    body = data.draw(bodies(*stack.reports(HOST), COMMAND))
    before = stack.items()
    stack.send(record_report, body, sender=STRANGER)
    assert stack.items() == before


@TABLE_FUZZ
@given(data=st.data())
def test_whatever_a_host_says_of_its_own_job_can_be_stored_or_is_refused(
    data: st.DataObject, stack: Stack
) -> None:
    """No text, number or length in it makes the table refuse; and a host that lies isn't heard."""
    body = data.draw(bodies(*stack.reports(HOST)))
    good = stack.report(ReportKind.STARTED, OTHER_HOST, restored_step=None)
    failed = stack.send(record_report, body, sender=HOST)
    assert stack.send(record_report, good, sender=OTHER_HOST) == []
    assert failed in ([], ["m1"])
    job = a_job("job-1")
    (row,) = [i for i in stack.items() if (i["pk"]["S"], i["sk"]["S"]) == (f"JOB#{job.id}", "JOB")]
    assert row["attempt"]["N"] == "1"
