"""The agent as it is started on a host: ``python -m reprieve_agent``, on real AWS clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import DynamoHostStore
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import Report, Ticket
from tests.agent.fakes import MetadataService
from tests.agent.harness import chain_job, chain_state, soon, wait_until
from tests.builders import NOON, a_host, a_job, a_lease
from tests.contract.stores import TABLE, create_table, emulator

pytestmark = pytest.mark.e2e

INSTANCE = "i-0aaaaaaaaaaaaaaaa"
CTL = Path(__file__).parents[2] / "agent" / "reprieve_agent" / "bin" / "reprieve-ctl"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with emulator() as address:
        yield address


@dataclass
class Account:
    """One AWS account with what an agent needs, and the functions' side of it."""

    address: str
    number: str
    clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        if service not in self.clients:
            maker: Any = boto3.client
            self.clients[service] = maker(
                service,
                endpoint_url=self.address,
                region_name="us-east-1",
                aws_access_key_id=self.number,
                aws_secret_access_key="test",
            )
        return self.clients[service]

    def make(self) -> None:
        create_table(self.client("dynamodb"))
        self.client("s3").create_bucket(Bucket=self.bucket)
        self.work, self.reports = (
            self.client("sqs").create_queue(QueueName=name)["QueueUrl"]
            for name in ("work", "reports")
        )
        table = Table(self.client("dynamodb"), TABLE)
        self.jobs = DynamoJobStore(table)
        DynamoHostStore(table, clock=lambda: NOON).adopt(a_host(INSTANCE))

    @property
    def bucket(self) -> str:
        return f"bucket-{self.number}"

    def submit(self, spec: JobSpec) -> LeaseKey:
        job = a_job(spec=spec)
        self.jobs.submit(job, a_lease(job))
        key = job.lease_key
        self.client("sqs").send_message(
            QueueUrl=self.work, MessageBody=Ticket(key.job, key.attempt, key.token).to_json()
        )
        return key

    def lease(self, key: LeaseKey) -> Lease:
        lease = self.jobs.lease(key)
        assert lease
        return lease

    def said(self) -> list[Report]:
        answer = self.client("sqs").receive_message(QueueUrl=self.reports, MaxNumberOfMessages=10)
        return [Report.from_json(message["Body"]) for message in answer.get("Messages", [])]

    def log(self, key: LeaseKey) -> str:
        name = f"jobs/{key.job}/logs/{key.attempt:06d}.log"
        answer = self.client("s3").get_object(Bucket=self.bucket, Key=name)
        return str(answer["Body"].read().decode())

    def manifests(self) -> list[str]:
        answer = self.client("s3").list_objects_v2(Bucket=self.bucket, Prefix="jobs/job-1/manif")
        return [entry["Key"] for entry in answer.get("Contents", [])]


@pytest.fixture
def account(address: str, request: pytest.FixtureRequest) -> Iterator[Account]:
    number = str(200_000_000_000 + abs(hash(request.node.name)) % 10**9)
    account = Account(address, number)
    account.make()
    yield account
    for client in account.clients.values():
        client.close()


class AgentProcess:
    """``python -m reprieve_agent`` with a host's environment."""

    def __init__(self, account: Account, folder: Path, notice_seconds: float = 8.0) -> None:
        self.folder = folder
        self.metadata = MetadataService(INSTANCE)
        folder.mkdir(exist_ok=True)
        (folder / "boot_id").write_text("boot-1\n")
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "STACK": "Reprieve",
            "POOL": "small",
            "JOBS_TABLE": TABLE,
            "CHECKPOINTS_BUCKET": account.bucket,
            "WORK_QUEUE_URL": account.work,
            "REPORTS_QUEUE_URL": account.reports,
            "NOTICE_SECONDS": str(notice_seconds),
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": account.address,
            "AWS_ACCESS_KEY_ID": account.number,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.endpoint,
            "STATE_DIR": str(folder / "state"),
            "RUN_DIR": str(folder / "run"),
            "SUPERVISOR": "child",
            "BOOT_ID_FILE": str(folder / "boot_id"),
        }
        self.log_path = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_path.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reprieve_agent"],
                env=self.environ,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End the agent alone, without a word."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def end(self, signum: int = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(signum)
        return self.process.wait(20)

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.end()
        self.metadata.close()

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def ctl(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CTL), *arguments],
            env={
                "PATH": os.defpath,
                "REPRIEVE_SOCKET": str(self.folder / "run" / "agent.sock"),
                "REPRIEVE_STATE_DIR": str(self.folder / "state"),
            },
            capture_output=True,
            check=False,
            timeout=30,
        )
        assert len(done.stdout) < 2000
        return done.returncode, json.loads(done.stdout.splitlines()[-1])

    def job(self) -> dict[str, Any]:
        status = self.ctl("status")[1]
        assert isinstance(status, dict)
        return status


@pytest.fixture
def agent(account: Account, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(account, tmp_path)
    agent.start()
    yield agent
    agent.close()


def test_a_job_is_interrupted_saved_and_released_on_real_clients(
    account: Account, agent: AgentProcess
) -> None:
    key = account.submit(chain_job(TOTAL=500))
    wait_until(lambda: (account.lease(key).step or 0) >= 5, "training")

    agent.metadata.interrupt(time=soon(8))

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released")
    lease = account.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_manifest in account.manifests()
    assert agent.end() == 0


def test_an_agent_killed_without_a_word_finds_its_job_again(
    account: Account, agent: AgentProcess
) -> None:
    key = account.submit(chain_job(TOTAL=100, PAUSE=0.03, EVERY=20))
    wait_until(lambda: (account.lease(key).committed_step or 0) >= 20, "first commit")
    pid = agent.job()["pid"]

    agent.kill()
    agent.start()

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "finished")
    lease = account.lease(key)
    assert (lease.outcome, lease.exit_code, lease.committed_step) == (Outcome.FINISHED, 0, 100)
    assert chain_state(100) in account.log(key)
    assert account.log(key).count("first step 1\n") == 1
    assert pid
    assert [line["message"] for line in agent.log].count("going on after a restart") == 1
