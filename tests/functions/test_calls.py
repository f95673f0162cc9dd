"""What one interruption costs: each AWS call of the real handlers, over real HTTP, by name."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from functions.handle_notice import handler as handle_notice
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from reprieve.adapters import sdk
from reprieve.adapters.aws import Clients
from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.adapters.dynamodb_leases import DynamoHostLeases
from reprieve.adapters.dynamodb_rows import DynamoRows
from reprieve.domain.capacity import Quotes
from reprieve.domain.host import HostState
from reprieve.domain.job import Job, JobStatus
from reprieve.domain.lease import Cause, LeaseKey, Outcome, Phase
from reprieve.domain.order import Order, OrderState
from reprieve.ports.leases import Claim, Progress
from reprieve.ports.rows import PutHolds, PutHost, PutJob, PutLease, PutOrder, PutQuotes, Wanted
from reprieve.protocol import Report, ReportKind, Scalar
from tests.builders import SPOT_A, a_holder, a_host, a_job, a_lease
from tests.contract.scripted import Endpoint, Reply, ec2_reply, json_error, json_reply, serving
from tests.contract.stores import TABLE, create_table, emulator
from tests.functions.conftest import ENVIRONMENT, POOLS, Context, records

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

pytestmark = pytest.mark.e2e

QUEUES = ("intake", "orders", "reports", "work")
NEW_HOST = "i-0cccccccccccccccc"
HANDLERS = {
    "handle_notice": handle_notice,
    "replace_host": replace_host,
    "record_report": record_report,
}
SUBNETS = json.loads(ENVIRONMENT["SUBNETS"])
PRICES = {(kind, zone): 0.4 for kind in ("g5.xlarge", "g6.xlarge") for zone in SUBNETS}

SIGNAL = ["handle_notice BatchGetItem", "handle_notice SendCommand"]
DRAIN = [
    "handle_notice BatchGetItem",  # job, lease and orders of what the host holds
    "handle_notice TransactWriteItems",  # host and job DRAINING, order placed, pool cold, told
    "handle_notice SendMessage",  # the order's bell
]
TOLD_BY_THE_HOST = [
    "record_report BatchGetItem",  # the report names all of it: one read
    "record_report TransactWriteItems",
    "record_report SendMessage",
]
AND_THEN_BY_THE_EVENT = [
    "handle_notice BatchGetItem",
    "handle_notice PutItem",  # a line of the timeline: the host knows already
]
REPLACE = [
    "replace_host Query",
    "replace_host TransactWriteItems",  # the plan
    "replace_host CreateFleet",
    "replace_host TransactWriteItems",  # EC2's answer, the order landed, the host adopted
]
RELEASED = [
    "record_report BatchGetItem",
    "record_report TransactWriteItems",  # attempt ended and the next one armed, the receipt told
    "record_report SendMessage",  # the ticket
]


@dataclass
class Calls:
    """Every request that left a function; `by` is the one at work."""

    by: str = ""
    made: list[str] = field(default_factory=list)

    def note(self, **said: Any) -> None:
        """Take botocore's word: ``before-send.<service>.<operation>``."""
        self.made.append(f"{self.by} {said['event_name'].rpartition('.')[2]}")


@dataclass
class Region:
    """Tables and queues on the emulator; EC2 and SSM answer from a script."""

    dynamodb: DynamoDBClient
    sqs: SQSClient
    urls: dict[str, str]
    endpoint: Endpoint
    calls: Calls
    unknown_to_ssm: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        table = Table(self.dynamodb, TABLE)
        self.rows = DynamoRows(table)
        self.jobs = DynamoJobStore(table)
        self.leases = DynamoHostLeases(table)
        self.endpoint.answers = self._answer

    def call(self, function: str, *bodies: object, sender: str = "") -> list[str]:
        """Hand records to the real handler; return which of them come back."""
        self.calls.by = function
        event = records(*bodies, sender=f"AROAEXAMPLE:{sender}")
        reply = HANDLERS[function].lambda_handler(event, Context(function_name=function))
        return [item["itemIdentifier"] for item in reply["batchItemFailures"]]

    def running(self, nth: int = 0) -> LeaseKey:
        """Return the lease of a job that runs on its host, number *nth*, since a minute."""
        begun = datetime.now(UTC) - timedelta(minutes=1)
        made = {"created_at": begun, "updated_at": begun, "ticket_at": begun}
        job = a_job(f"job-{nth}", status=JobStatus.RUNNING, **made)
        host = a_host(host_id(nth), launched_at=begun, capacity=SPOT_A)
        first = Order(job.id, 1, job.pool, "submitted", begun, begun, state=OrderState.LANDED)
        lease = a_lease(job)
        self.rows.commit(
            [
                PutJob(job, new=True),
                PutLease(lease),
                PutHost(host, new=True),
                PutHolds(host.instance_id),
                PutOrder(first, was=None),
                PutQuotes(job.pool, Quotes.of(PRICES, at=begun)),  # kept by that first launch
            ]
        )
        holder = a_holder(host.instance_id)
        assert self.leases.claim(lease.key, holder) is Claim.WON
        self.leases.seal(lease.key, holder, None)
        self.leases.renew(lease.key, holder, Progress(Phase.RUNNING, step=40))
        return lease.key

    def release(self, key: LeaseKey, nth: int = 0) -> Report:
        """Let the host commit, release and say so, all of it in one report."""
        manifest = f"jobs/{key.job}/manifests/000001-000000000060.json"
        saved = Progress(Phase.UPLOADING, step=60, committed_step=60, committed_manifest=manifest)
        self.leases.release(
            key,
            a_holder(host_id(nth)),
            outcome=Outcome.INTERRUPTED,
            cause=Cause.NOTICE,
            exit_code=75,
            progress=saved,
        )
        data: dict[str, Scalar] = {
            "accepted_s": 0.1,
            "saved_s": 2.0,
            "quiesced_s": 2.5,
            "uploaded_s": 3.5,
            "committed_s": 4.0,
            "released_s": 4.5,
            "step": 60,
            "saved_step": 60,
            "committed_step": 60,
            "manifest": manifest,
            "bytes": 1064,
            "upload_s": 1.5,
            "digest": "ab" * 32,
            "heard_ssm_s": 0.0,
            "lead_seconds": 110.0,
        }
        at = datetime.now(UTC) + timedelta(seconds=5)
        return Report(ReportKind.INTERRUPTED, host_id(nth), at, 9, key, data)

    def taken(self, queue: str) -> list[Any]:
        """Receive what lies on a queue."""
        answer = self.sqs.receive_message(QueueUrl=self.urls[queue], MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in answer.get("Messages", [])]

    def job(self, key: LeaseKey) -> Job:
        job = self.jobs.read(key.job)
        assert job
        return job

    def _answer(self, asked: dict[str, Any]) -> Reply:
        if "DocumentName" in asked:
            unknown = self.unknown_to_ssm & set(asked["InstanceIds"])
            if unknown:
                return json_error("InvalidInstanceId", f"Instances [[{min(unknown)}]] not valid")
            return json_reply(Command={"CommandId": "c-1"})
        assert asked["Action"] == "CreateFleet"
        return ec2_reply("CreateFleet", landed(asked))


def host_id(nth: int) -> str:
    return f"i-0aaaaaaaaaaaa{nth:04x}"


def landed(asked: dict[str, Any]) -> str:
    """Return the fleet's answer: one host of the first override."""
    first = "LaunchTemplateConfigs.1.Overrides.1"
    kind, subnet = asked[f"{first}.InstanceType"], asked[f"{first}.SubnetId"]
    return (
        "<fleetId>fleet-1</fleetId><fleetInstanceSet><item><launchTemplateAndOverrides>"
        f"<overrides><instanceType>{kind}</instanceType><subnetId>{subnet}</subnetId></overrides>"
        f"</launchTemplateAndOverrides><instanceIds><item>{NEW_HOST}</item></instanceIds>"
        f"<instanceType>{kind}</instanceType></item></fleetInstanceSet>"
    )


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    with emulator() as address:
        yield address


@pytest.fixture
def region(cloud: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    with serving() as endpoint:
        credentials = {
            "AWS_ACCESS_KEY_ID": str(random.randrange(10**11, 10**12)),
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        endpoints = {
            "AWS_ENDPOINT_URL": cloud,
            "AWS_ENDPOINT_URL_SSM": endpoint.url,
            "AWS_ENDPOINT_URL_EC2": endpoint.url,
        }
        for name, value in (credentials | endpoints).items():
            monkeypatch.setenv(name, value)
        account = boto3.Session()  # the default one keeps the first account that it saw
        dynamodb, sqs = account.client("dynamodb"), account.client("sqs")
        create_table(dynamodb)
        urls = {name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in QUEUES}
        pools = {"small": POOLS["small"] | {"work_queue_url": urls["work"], "max_hosts": 100}}
        settings = ENVIRONMENT | {
            "JOBS_TABLE": TABLE,
            "POOLS": json.dumps(pools),
            "INTAKE_QUEUE_URL": urls["intake"],
            "ORDERS_QUEUE_URL": urls["orders"],
            "REPORTS_QUEUE_URL": urls["reports"],
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        calls = Calls()
        with counted(calls, monkeypatch):
            yield Region(dynamodb, sqs, urls, endpoint, calls)
        dynamodb.close()
        sqs.close()


@contextmanager
def counted(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wire each handler anew, with clients whose every request is noted."""
    made: list[Clients] = []

    def clients() -> Clients:
        session = sdk.session()
        session.register("before-send", calls.note)
        made.append(Clients(session=session))
        return made[-1]

    monkeypatch.setattr("reprieve.edge.wiring.Clients", clients)
    for handler in HANDLERS.values():
        handler.wired.cache_clear()
    yield
    for handler in HANDLERS.values():
        handler.wired.cache_clear()
    for one in made:
        for client in ("dynamodb", "sqs", "ssm", "ec2"):
            if client in vars(one):
                getattr(one, client).close()


def warning(nth: int = 0, *, seconds: float = 0) -> dict[str, Any]:
    """Return EC2's event about host number *nth*, made *seconds* ago."""
    at = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")
    return {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "time": at,
        "detail": {"instance-id": host_id(nth), "instance-action": "terminate"},
    }


def seen_by_the_host(key: LeaseKey) -> Report:
    data: dict[str, Scalar] = {
        "notice": "interruption",
        "channel": "metadata",
        "seconds_left": 118.5,
    }
    return Report(ReportKind.NOTICED, host_id(0), datetime.now(UTC), 3, key, data)


def replaced_and_released(region: Region, key: LeaseKey) -> None:
    """Play the rest of an interruption: the order, then the host's last report."""
    (order,) = region.taken("orders")
    assert region.call("replace_host", order) == []
    assert region.call("record_report", region.release(key).to_json(), sender=host_id(0)) == []


def assert_moved_on(region: Region, key: LeaseKey) -> None:
    """Check that the next attempt is armed, its ticket sent and its host adopted."""
    job = region.job(key)
    assert (job.status, job.attempt) == (JobStatus.QUEUED, 2)
    assert job.checkpoint
    assert job.checkpoint.step == 60
    (ticket,) = region.taken("work")
    assert (ticket["job"], ticket["attempt"], ticket["token"]) == (job.id, 2, job.token)
    seen = region.rows.read(
        Wanted(hosts=frozenset({NEW_HOST, host_id(0)}), orders=frozenset({(job.id, 2)}))
    )
    assert seen.hosts[NEW_HOST].state is HostState.READY
    assert seen.hosts[host_id(0)].state is HostState.DRAINING
    assert seen.orders[job.id, 2].state is OrderState.LANDED


def test_the_signal_leaves_after_two_calls(region: Region) -> None:
    region.running()
    assert region.call("handle_notice", warning()) == []
    assert region.calls.made[:2] == SIGNAL


def test_an_interruption_that_the_event_tells_first(region: Region) -> None:
    key = region.running()
    assert region.call("handle_notice", warning()) == []
    replaced_and_released(region, key)

    expected = [*SIGNAL, *DRAIN, *REPLACE, *RELEASED]
    assert region.calls.made == expected
    assert len(expected) <= 12
    assert_moved_on(region, key)


def test_an_interruption_that_the_host_tells_first(region: Region) -> None:
    key = region.running()
    noticed = seen_by_the_host(key).to_json()
    assert region.call("record_report", noticed, sender=host_id(0)) == []
    assert region.call("handle_notice", warning()) == []
    replaced_and_released(region, key)

    expected = [*TOLD_BY_THE_HOST, *AND_THEN_BY_THE_EVENT, *REPLACE, *RELEASED]
    assert region.calls.made == expected
    assert len(expected) <= 12
    assert_moved_on(region, key)


def test_the_timeline_keeps_every_stage_of_the_receipt(region: Region) -> None:
    key = region.running()
    region.call("handle_notice", warning())
    region.call("record_report", region.release(key).to_json(), sender=host_id(0))

    told = {event.kind: event for event in region.jobs.events(key.job)}
    assert set(told) == {"notice", "saved", "committed", "receipt", "interrupted", "ended"}
    assert told["committed"].text == "checkpoint committed at step 60"
    assert told["interrupted"].at - told["committed"].at == timedelta(seconds=0.5)
    for fact in ("seconds", "bytes", "step", "digest"):
        assert told["committed"].data[fact] is not None
    assert told["receipt"].text == (
        "receipt, from the request on: accepted 0.1 s, quiesced 2.5 s, saved 2.0 s, "
        "uploaded 3.5 s, committed 4.0 s, released 4.5 s; heard by ssm 0.0 s"
    )


def test_what_a_host_says_of_itself_costs_nothing(region: Region) -> None:
    region.running()
    for kind in (ReportKind.READY, ReportKind.IDLE):
        report = Report(kind, host_id(0), datetime.now(UTC))
        assert region.call("record_report", report.to_json(), sender=host_id(0)) == []
    assert region.calls.made == []


def test_a_stranger_costs_one_read(region: Region) -> None:
    assert region.call("handle_notice", *(warning(nth) for nth in range(50))) == []
    assert region.calls.made == ["handle_notice BatchGetItem"]


def test_sixty_hosts_are_two_commands_and_two_calls_each(region: Region) -> None:
    keys = [region.running(nth) for nth in range(60)]
    first = [warning(nth, seconds=nth % 3) for nth in range(50)]  # EC2 takes seconds to tell all
    assert region.call("handle_notice", *first) == []
    assert region.call("handle_notice", *(warning(nth) for nth in range(50, 60))) == []

    assert Counter(call.split()[1] for call in region.calls.made) == {
        "SendCommand": 2,
        "BatchGetItem": 5,  # hosts with what they hold: 100 rows, 20; then 151 and 31
        "TransactWriteItems": 60,
        "SendMessage": 60,
    }
    assert region.calls.made.index("handle_notice SendCommand") == 1
    assert {region.job(key).status for key in keys} == {JobStatus.DRAINING}


def test_one_host_that_ssm_does_not_know_costs_one_command_more(region: Region) -> None:
    for nth in range(50):
        region.running(nth)
    region.unknown_to_ssm = {host_id(7)}
    assert region.call("handle_notice", *(warning(nth) for nth in range(50))) == []

    commands = [asked["InstanceIds"] for asked in region.endpoint.asked if "DocumentName" in asked]
    assert [len(ids) for ids in commands] == [50, 49]
    assert host_id(7) not in commands[1]
