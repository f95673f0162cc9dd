"""The agent as it is started on a host: ``python -m reprieve_agent``, on real AWS clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import DynamoHostStore
from reprieve.adapters.dynamodb_jobs import DynamoJobStore
from reprieve.adapters.dynamodb_rows import DynamoRows
from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import Report, Ticket
from tests.agent.fakes import MetadataService
from tests.agent.harness import chain_job, chain_state, own_token, soon, wait_until
from tests.builders import NOON, a_host, a_job, a_lease
from tests.contract.stores import TABLE, create_table, emulator
from tests.stored import submit

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

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
        self.client("logs").create_log_group(logGroupName=self.log_group)
        table = Table(self.client("dynamodb"), TABLE)
        self.jobs, self.rows = DynamoJobStore(table), DynamoRows(table)
        DynamoHostStore(table, clock=lambda: NOON).adopt(a_host(INSTANCE))

    @property
    def bucket(self) -> str:
        return f"bucket-{self.number}"

    @property
    def log_group(self) -> str:
        return f"jobs-{self.number}"

    def streamed(self, key: LeaseKey) -> list[str]:
        logs = self.client("logs")
        try:
            answer = logs.get_log_events(
                logGroupName=self.log_group,
                logStreamName=f"{key.job}/{key.attempt:06d}",
                startFromHead=True,
            )
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [event["message"] for event in answer["events"]]

    def submit(self, spec: JobSpec) -> LeaseKey:
        job = a_job(spec=spec, token=own_token())
        submit(self.rows, job, a_lease(job))
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
        self.environ["LOG_GROUP"] = account.log_group
        self.log_path = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *program: str) -> None:
        with self.log_path.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *(program or ("-m", "reprieve_agent"))],
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
def notice_seconds() -> float:
    return 8.0


@pytest.fixture
def agent(account: Account, tmp_path: Path, notice_seconds: float) -> Iterator[AgentProcess]:
    agent = AgentProcess(account, tmp_path, notice_seconds)
    agent.start()
    yield agent
    agent.close()


def test_a_job_is_interrupted_saved_and_released_on_real_clients(
    account: Account, agent: AgentProcess
) -> None:
    key = account.submit(chain_job(TOTAL=500))
    wait_until(lambda: (account.lease(key).step or 0) >= 5, "training")

    agent.metadata.interrupt(time=soon(20))

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released")
    lease = account.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_manifest in account.manifests()
    wait_until(lambda: account.streamed(key)[:1] == ["first step 1"], "its output is streamed")
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


SLOW_SAVER = """
    import hashlib, os, pathlib, time
    import reprieve_job
    job = reprieve_job.connect(total_steps=1000)
    gate = pathlib.Path(os.environ["GATE"])
    print("first step", (job.resume_step or 0) + 1, flush=True)
    for step in range((job.resume_step or 0) + 1, 1000):
        time.sleep(0.02)
        request = job.step(step)
        if request is not None:
            with job.checkpoint(step) as folder:
                (folder / "state").write_text(str(step))
                print("saving", flush=True)
                while not gate.exists():
                    time.sleep(0.01)
            if request.must_exit:
                raise SystemExit(reprieve_job.REQUEUE)
"""


def slow_saver(gate: Path) -> JobSpec:
    return JobSpec(("python", "-c", textwrap.dedent(SLOW_SAVER)), env={"GATE": str(gate)})


def local_log(agent: AgentProcess) -> str:
    logs = list((agent.folder / "state" / "attempts").glob("*/job.log"))
    return logs[0].read_text() if logs else ""


@pytest.mark.parametrize("notice_seconds", [30.0])  # a busy machine starts an agent slowly
def test_an_agent_killed_during_the_save_finishes_the_same_request(
    account: Account, agent: AgentProcess, tmp_path: Path, notice_seconds: float
) -> None:
    gate = tmp_path / "gate"
    key = account.submit(slow_saver(gate))
    wait_until(lambda: (account.lease(key).step or 0) >= 5, "training")
    agent.metadata.interrupt(time=soon(notice_seconds))
    wait_until(lambda: "saving" in local_log(agent), "saving")

    agent.kill()
    agent.start()
    wait_until(lambda: agent.job().get("request"), "the request stands")
    gate.touch()

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released")
    lease = account.lease(key)
    assert (lease.outcome, lease.cause, lease.exit_code) == (
        Outcome.INTERRUPTED,
        Cause.NOTICE,
        75,
    )
    assert len(account.manifests()) == 1
    asked = {line["request"] for line in agent.log if line["message"] == "asked the job"}
    assert asked == {f"interruption:{INSTANCE}:1"}


def test_an_agent_killed_during_the_setup_waits_for_the_same_setup(
    account: Account, agent: AgentProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    setup = ("sh", "-c", f"echo setting up; while [ ! -e {gate} ]; do sleep 0.05; done")
    key = account.submit(JobSpec(("echo", "the job"), setup=setup))
    wait_until(lambda: "setting up" in local_log(agent), "setting up")

    agent.kill()
    agent.start()
    wait_until(lambda: agent.job().get("stage") == "PREPARING", "adopted")
    gate.touch()

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "finished")
    assert account.lease(key).outcome is Outcome.FINISHED
    assert account.log(key) == "setting up\nthe job\n"


def test_a_job_that_ends_while_nobody_watches_is_accounted_for(
    account: Account, agent: AgentProcess
) -> None:
    key = account.submit(chain_job(TOTAL=40, PAUSE=0.02))
    wait_until(lambda: (account.lease(key).step or 0) >= 5, "training")

    agent.kill()
    wait_until(lambda: "state" in local_log(agent), "the job ends")
    agent.start()

    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "finished")
    lease = account.lease(key)
    assert (lease.outcome, lease.exit_code, lease.committed_step) == (Outcome.FINISHED, 0, 40)


def test_with_the_agent_down_the_command_asks_the_job_itself(
    account: Account, agent: AgentProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    key = account.submit(slow_saver(gate))
    wait_until(lambda: (account.lease(key).step or 0) >= 5, "training")
    agent.kill()

    code, answer = agent.ctl(
        "preempt",
        *("--request-id", "interruption", "--kind", "interruption"),
        *("--noticed-at", soon(0), "--deadline", soon(20), "--wait", "8", "--json"),
    )

    assert code == 40
    assert answer["woken"] == 1
    assert answer["saved_step"] >= 5
    assert not answer["agent_restarted"]
    agent.start()
    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released")
    assert account.lease(key).committed_step == answer["saved_step"]


def test_the_agent_says_in_one_line_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reprieve_agent"],
        env={"PATH": os.defpath, "STACK": "Reprieve", "POOL": "small"},
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "not set: JOBS_TABLE, CHECKPOINTS_BUCKET" in json.loads(line)["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("preempt",),
        ("preempt", "--kind", "interruption"),
        ("preempt", "--request-id", "x", "--kind", "interruption", "--wait", "soon"),
        ("preempt", "--request-id"),
        ("dance",),
    ],
)
def test_a_usage_error_of_the_command_exits_2(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CTL), *arguments], capture_output=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, b"")


def test_without_agent_and_job_the_command_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "reprieve_agent.ctl", "preempt"),
            *("--request-id", "interruption", "--kind", "interruption"),
        ],
        env={
            "PATH": os.defpath,
            "REPRIEVE_SOCKET": str(tmp_path / "agent.sock"),
            "REPRIEVE_STATE_DIR": str(tmp_path),
        },
        capture_output=True,
        check=False,
    )

    assert done.returncode == 11
    assert json.loads(done.stdout)["result"] == "agent down, no job"
