"""
The agent as its unit on a machine that boots, with a job in a unit of its own.

The machine is set up by the host bundle's own script and wired to an emulator of AWS; its clock is
a notice of twenty seconds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.packages import host_bundle
from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from tests.agent.fakes import MetadataService
from tests.agent.harness import soon
from tests.agent.test_agent_process import INSTANCE, Account
from tests.contract.stores import TABLE, emulator
from tests.rehearsal.box import Box, eventually
from tests.rehearsal.debian import NotHereError, tree
from tests.rehearsal.wire import Wire
from tests.systemd.test_contract import SUITE

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(600)]

AGENT = "reprieve-agent.service"
JOB_UNIT = "reprieve-job-job-1-000001.service"
NOTICE_SECONDS = 20.0
PATIENCE = 60.0
SAVE_SECONDS = 3

# Knows nothing of SIGTERM, as most jobs; its saves take a while.
TRAINER = """
import os, time
import reprieve_job

job = reprieve_job.connect(total_steps=100_000)
print("up", os.getpid(), os.getuid(), flush=True)
for step in range((job.resume_step or 0) + 1, 100_001):
    time.sleep(0.05)
    job.step(step)
    if job.should_save():
        with job.checkpoint(step) as folder:
            print("saving", step, flush=True)
            time.sleep(float(os.environ["SAVE_SECONDS"]))
            (folder / "state").write_text(str(step))
        print("saved", step, flush=True)
    if job.should_exit():
        raise SystemExit(reprieve_job.REQUEUE)
"""
WATCHDOG = """\
[Service]
WatchdogSec=12
"""


@dataclass
class Machine:
    box: Box
    account: Account
    metadata: MetadataService
    key: LeaseKey

    def lease(self) -> Lease:
        return self.account.lease(self.key)

    def log(self) -> list[str]:
        return self.box.run("sh", "-c", "cat /var/lib/reprieve/attempts/*/job.log").stdout.split()

    def said(self, word: str) -> int:
        return self.log().count(word)

    def job(self) -> tuple[str, str]:
        """Return the job's pid and user, as the job sees them."""
        _, pid, uid = self.log()[:3]
        return pid, uid

    def wait(self, what: str, condition: object) -> None:
        assert callable(condition)
        journal = self.box.run if not self.box.is_off() else None
        assert eventually(condition, PATIENCE), (
            what,
            journal and journal("journalctl", "--no-pager", "-n", "40").stdout,
        )

    def wait_released(self) -> Lease:
        self.wait("released", lambda: self.lease().state is LeaseState.DONE)
        return self.lease()

    def status(self) -> dict[str, object]:
        done = self.box.run("/opt/reprieve/bin/reprieve-ctl", "status")
        answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def left(self, pid: str) -> bool:
        return self.box.run("test", "-e", f"/proc/{pid}").returncode == 0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with emulator() as address:
        yield address


@pytest.fixture
def machine(address: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Return a machine whose agent runs a job that is asked to save every two seconds."""
    number = str(400_000_000_000 + sum(request.node.name.encode()))
    account = Account(address, number)
    account.make()
    key = account.submit(
        JobSpec(
            ("python3", "-c", TRAINER),
            env={"SAVE_SECONDS": str(SAVE_SECONDS)},
            save_every=timedelta(seconds=2),
        )
    )
    metadata = MetadataService(INSTANCE)
    try:
        box = Box(tree(SUITE), tmp_path / "disk")
        shutil.copytree(host_bundle().folder, box.path("/srv/bundle"))
        environment = agent_environment(account, metadata)
        lines = "".join(f"{name}={value}\n" for name, value in environment.items())
        box.write("/etc/reprieve/agent.env", lines)
        box.write(f"/etc/systemd/system/{AGENT}.d/watchdog.conf", WATCHDOG)
        with box, ExitStack() as wires:
            pid = box.init_pid()
            assert pid
            for url in (address, metadata.endpoint):
                port = urlsplit(url).port
                assert port
                wires.enter_context(Wire(pid, port))
            done = box.run("bash", "/srv/bundle/install.sh", "python3", seconds=120)
            assert done.returncode == 0, done.stdout + done.stderr
            machine = Machine(box, account, metadata, key)
            machine.wait("the job runs", lambda: machine.said("up"))
            yield machine
    except NotHereError as error:
        pytest.skip(str(error))
    finally:
        metadata.close()
        for client in account.clients.values():
            client.close()


def agent_environment(account: Account, metadata: MetadataService) -> dict[str, str]:
    return {
        "STACK": "Reprieve",
        "POOL": "small",
        "JOBS_TABLE": TABLE,
        "CHECKPOINTS_BUCKET": account.bucket,
        "WORK_QUEUE_URL": account.work,
        "REPORTS_QUEUE_URL": account.reports,
        "NOTICE_SECONDS": str(NOTICE_SECONDS),
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": account.address,
        "AWS_ACCESS_KEY_ID": account.number,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.endpoint,
        "JOB_USER": "reprieve-job",
        "SUPERVISOR": "systemd",
        "JOB_PATH": "/usr/bin:/bin",
    }


def test_a_job_outlives_a_killed_and_a_hung_agent_and_is_handed_over_on_notice(
    machine: Machine,
) -> None:
    box, (pid, uid) = machine.box, machine.job()
    assert uid == box.run("id", "-u", "reprieve-job").stdout.strip() != "0"
    assert AGENT in box.property(JOB_UNIT, "After").split()

    box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", AGENT)
    machine.wait("started again", lambda: box.property(AGENT, "NRestarts") == "1")
    machine.wait("adopted", lambda: machine.status().get("stage") == "RUNNING")
    box.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", AGENT)
    machine.wait("and by its watchdog", lambda: int(box.property(AGENT, "NRestarts")) >= 2)
    machine.wait("adopted again", lambda: machine.status().get("stage") == "RUNNING")

    assert machine.left(pid)
    assert machine.said("up") == 1
    machine.metadata.interrupt(time=soon(NOTICE_SECONDS))
    lease = machine.wait_released()
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_step
    assert not machine.left(pid)
    machine.wait("its unit is forgotten", lambda: not units(box))


def units(box: Box) -> str:
    return box.run("systemctl", "list-units", "--all", "--no-legend", "reprieve-job*").stdout


def in_the_middle_of_a_save(machine: Machine) -> int:
    """Wait for one; return how many there were."""
    machine.wait("it saves", lambda: machine.said("saving") > machine.said("saved"))
    return machine.said("saving")


def test_a_stop_of_the_agents_unit_lets_a_save_end(machine: Machine) -> None:
    nth = in_the_middle_of_a_save(machine)
    log = machine.account.log

    machine.box.run("systemctl", "stop", AGENT, seconds=120)
    lease = machine.lease()

    assert lease.state is LeaseState.DONE
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.STOP)
    saved = [int(step) for step in steps(log(machine.key), "saved")]
    assert len(saved) >= nth
    assert lease.committed_step == saved[-1]
    assert not units(machine.box)


def test_a_shutdown_stops_the_job_first_and_lets_its_save_end_and_be_uploaded(
    machine: Machine,
) -> None:
    nth = in_the_middle_of_a_save(machine)

    machine.box.run("systemctl", "poweroff")
    assert machine.box.wait_off(120)

    lease = machine.lease()
    assert lease.state is LeaseState.DONE
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.STOP)
    saved = [int(step) for step in steps(machine.account.log(machine.key), "saved")]
    assert len(saved) >= nth
    assert lease.committed_step == saved[-1]


def steps(log: str, word: str) -> list[str]:
    words = log.split()
    return [step for said, step in pairwise(words) if said == word]
