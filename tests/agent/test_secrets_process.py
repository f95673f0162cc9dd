"""Credentials and secrets through a real agent: what its job has, and where nothing lies."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import Ticket
from reprieve_agent.secret_values import NO_ROLE
from tests import stored
from tests.agent.harness import own_token, wait_until
from tests.agent.role_account import (
    HOST_SECRET,
    PARAMETER,
    PARAMETER_VALUE,
    ROLE,
    SECRET,
    SECRET_VALUE,
    RoleAccount,
    role_account,
)
from tests.agent.test_agent_process import Account, AgentProcess
from tests.builders import a_job, a_lease
from tests.contract.stores import emulator

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

# Says what it has in digests: a job that prints its secrets is nobody's fault but its own.
JOB = """
    import hashlib, json, os, pathlib, time
    import boto3
    from botocore.exceptions import CredentialRetrievalError

    def digest(text):
        return hashlib.sha256(text.encode()).hexdigest()

    gate = pathlib.Path(os.environ["GATE"])
    while True:
        try:
            found = boto3.Session().get_credentials()
        except CredentialRetrievalError:  # the agent is being started again
            continue
        said = {
            "secrets": {k: digest(os.environ.get(k, "")) for k in ("HF_TOKEN", "WANDB")},
            "key": found.access_key,
            "method": found.method,
            "region": boto3.Session().region_name,
        }
        print(json.dumps(said), flush=True)
        if gate.exists():
            break
        time.sleep(0.2)
"""
SETUP = """
    import boto3, os
    print("setup", boto3.Session().get_credentials().method, "HF_TOKEN" in os.environ, flush=True)
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with emulator() as address:
        yield address


@pytest.fixture
def account(address: str, request: pytest.FixtureRequest) -> Iterator[Account]:
    digits = int(hashlib.sha256(request.node.name.encode()).hexdigest(), 16) % 10**9
    account = Account(address, str(300_000_000_000 + digits))
    account.make()
    yield account
    for client in account.clients.values():
        client.close()


@pytest.fixture
def roles() -> Iterator[RoleAccount]:
    with role_account() as roles:
        yield roles


@pytest.fixture
def agent(account: Account, roles: RoleAccount, tmp_path: Path) -> Iterator[AgentProcess]:
    """Return an agent whose deployment has a role for jobs, not yet started."""
    agent = AgentProcess(account, tmp_path / "host")
    agent.environ |= {
        "JOB_ROLE_ARN": ROLE,
        "AWS_ENDPOINT_URL_STS": roles.url,
        "AWS_ENDPOINT_URL_SECRETS_MANAGER": roles.url,
        "AWS_ENDPOINT_URL_SSM": roles.url,
    }
    yield agent
    agent.close()


def submit(account: Account, spec: JobSpec) -> LeaseKey:
    job = a_job(spec=spec, token=own_token())
    stored.submit(account.rows, job, a_lease(job))
    key = job.lease_key
    account.client("sqs").send_message(
        QueueUrl=account.work, MessageBody=Ticket(key.job, key.attempt, key.token).to_json()
    )
    return key


def a_spec(gate: Path, **changes: object) -> JobSpec:
    spec = JobSpec(
        ("python", "-c", textwrap.dedent(JOB)),
        env={"GATE": str(gate), "AWS_DEFAULT_REGION": "eu-west-3"},  # its own word counts
        secrets={"HF_TOKEN": SECRET, "WANDB": PARAMETER},
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def finished(account: Account, key: LeaseKey) -> Lease:
    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released", seconds=60)
    return account.lease(key)


def said(agent: AgentProcess) -> list[str]:
    logs = list((agent.folder / "state" / "attempts").glob("*/job.log"))
    return logs[0].read_text().splitlines() if logs else []


def everything_stored(account: Account) -> Iterator[tuple[str, bytes]]:
    """Yield every object of the bucket, every row of the table and every report."""
    s3 = account.client("s3")
    for entry in s3.list_objects_v2(Bucket=account.bucket).get("Contents", []):
        yield entry["Key"], s3.get_object(Bucket=account.bucket, Key=entry["Key"])["Body"].read()
    rows = account.client("dynamodb").scan(TableName="Jobs")["Items"]
    yield "the table", json.dumps(rows, default=str).encode()
    yield "the reports", "".join(report.to_json() for report in account.said()).encode()


def everything_on_disk(agent: AgentProcess) -> Iterator[tuple[str, bytes]]:
    for path in sorted(agent.folder.rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_job_has_its_secrets_and_its_role_and_neither_lies_anywhere(
    account: Account, agent: AgentProcess, roles: RoleAccount, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    setup = ("python", "-c", textwrap.dedent(SETUP))
    key = submit(account, a_spec(gate, setup=setup))
    agent.start()
    wait_until(lambda: len(said(agent)) >= 2, "the job runs", seconds=60)
    setup_said, job_said, *_ = said(agent)

    while_it_runs = dict(everything_on_disk(agent))
    gate.touch()
    lease = finished(account, key)

    assert setup_said == "setup container-role False"
    assert json.loads(job_said) == {
        "secrets": {"HF_TOKEN": digest(SECRET_VALUE), "WANDB": digest(PARAMETER_VALUE)},
        "key": "ASIAJOB1",
        "method": "container-role",
        "region": "eu-west-3",
    }
    assert (lease.outcome, lease.exit_code) == (Outcome.FINISHED, 0)
    assert len(roles.called("AssumeRole")) == 1
    assert {call.access_key for call in roles.called("GetSecretValue")} == {"ASIAJOB1"}
    assert any(name.endswith("order.json") for name in while_it_runs)
    assert any(name.endswith("agent.log") for name in while_it_runs)
    places = [*while_it_runs.items(), *everything_on_disk(agent), *everything_stored(account)]
    words = [SECRET_VALUE, PARAMETER_VALUE, "role-secret-1", "role-session-1"]
    assert [(name, word) for name, body in places for word in words if word.encode() in body] == []
    assert agent.end() == 0


def test_a_job_finds_its_credentials_again_after_the_agents_crash(
    account: Account, agent: AgentProcess, roles: RoleAccount, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    key = submit(account, a_spec(gate))
    agent.start()
    wait_until(lambda: any("ASIAJOB1" in line for line in said(agent)), "credentials", seconds=60)

    agent.kill()
    agent.start()

    wait_until(lambda: any("ASIAJOB2" in line for line in said(agent)), "again", seconds=60)
    gate.touch()
    assert finished(account, key).outcome is Outcome.FINISHED
    assert account.log(key).count(digest(SECRET_VALUE)) > 1
    assert len(roles.called("GetSecretValue")) == 1  # the job that runs has it already


def test_a_secret_that_is_not_the_jobs_fails_the_attempt_before_it_starts(
    account: Account, agent: AgentProcess, roles: RoleAccount, tmp_path: Path
) -> None:
    roles.refusals["GetParameter"] = [("AccessDeniedException", 400)]
    key = submit(account, a_spec(tmp_path / "gate"))
    agent.start()

    lease = finished(account, key)

    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert lease.detail == "secret WANDB: GetParameter: AccessDeniedException"
    assert not said(agent)
    stored = [*everything_on_disk(agent), *everything_stored(account)]
    assert [name for name, body in stored if SECRET_VALUE.encode() in body] == []


def test_without_a_role_a_job_with_secrets_fails_with_what_to_configure(
    account: Account, agent: AgentProcess, roles: RoleAccount, tmp_path: Path
) -> None:
    del agent.environ["JOB_ROLE_ARN"]
    key = submit(account, a_spec(tmp_path / "gate"))
    agent.start()

    lease = finished(account, key)

    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert lease.detail == NO_ROLE
    assert roles.calls == []


def test_on_the_emulators_own_services_a_job_reads_what_was_stored_there(
    account: Account, agent: AgentProcess, tmp_path: Path
) -> None:
    for service in ("STS", "SECRETS_MANAGER", "SSM"):
        del agent.environ[f"AWS_ENDPOINT_URL_{service}"]
    role = account.client("iam").create_role(
        RoleName="training", AssumeRolePolicyDocument=json.dumps(_trust(account.number))
    )
    secret = account.client("secretsmanager").create_secret(Name="hf", SecretString=SECRET_VALUE)
    account.client("ssm").put_parameter(
        Name="/team/wandb", Value=PARAMETER_VALUE, Type="SecureString"
    )
    parameter = f"arn:aws:ssm:us-east-1:{account.number}:parameter/team/wandb"
    agent.environ["JOB_ROLE_ARN"] = role["Role"]["Arn"]
    gate = tmp_path / "gate"
    gate.touch()
    key = submit(account, a_spec(gate, secrets={"HF_TOKEN": secret["ARN"], "WANDB": parameter}))
    agent.start()

    lease = finished(account, key)

    assert (lease.outcome, lease.detail) == (Outcome.FINISHED, "")
    answer = json.loads(account.log(key))
    assert answer["secrets"] == {"HF_TOKEN": digest(SECRET_VALUE), "WANDB": digest(PARAMETER_VALUE)}
    assert answer["key"].startswith("ASIA")


def _trust(account_number: str) -> dict[str, object]:
    principal = {"AWS": f"arn:aws:iam::{account_number}:root"}
    allow = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [allow]}


def test_the_hosts_own_credentials_are_not_in_the_jobs_environment(
    account: Account, agent: AgentProcess, tmp_path: Path
) -> None:
    del agent.environ["JOB_ROLE_ARN"]
    agent.environ["AWS_SECRET_ACCESS_KEY"] = HOST_SECRET
    key = submit(account, JobSpec(("sh", "-c", "env | sort")))
    agent.start()

    assert finished(account, key).outcome is Outcome.FINISHED
    assert HOST_SECRET not in account.log(key)
    assert "AWS_" not in account.log(key)
