"""
A job on hosts that are whole machines: real systemd, its own user, its own unit.

The embedded cloud's hosts are processes. Here two of them are machines that boot from the
deployed user data and run the agent as a host does; they are wired to the embedded cloud and
take the place of the processes that it started under their names.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reprieve.domain.job import JobStatus
from reprieve_cli import submission
from reprieve_cli.assembly import ROOT
from reprieve_cli.drill.stage import JobSeen, Stage, View, open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.aws import client
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.localize import localize
from reprieve_cli.provision import STACK, provision
from tests.rehearsal.box import Box, eventually
from tests.rehearsal.debian import NotHereError, tree
from tests.rehearsal.test_first_boot import AGENT, SUITE, UNITS, USER_DATA, prepared
from tests.rehearsal.wire import Wire

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(900)]

NOTICE_SECONDS = 20.0
STEPS = 400
STEP_SECONDS = 0.05
JOB = ("python3", "chain_job.py", "--steps", str(STEPS), "--step-seconds", str(STEP_SECONDS))
PATIENCE = 60.0
# Nothing listens there: the processes that stand for the hosts never learn who they are.
MUTE = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9/"}

WIRED = """\
[Service]
Environment=AWS_ENDPOINT_URL={endpoint}
Environment=AWS_EC2_METADATA_SERVICE_ENDPOINT={endpoint}/imds/{instance_id}/
"""


@dataclass
class Site:
    cloud: Cloud
    stage: Stage
    view: View
    root_tree: Path
    bundle: tuple[str, bytes]
    scratch: Path

    def wait(self, what: str, condition: object) -> None:
        assert callable(condition)
        self.cloud.control.wait_for(what, condition, seconds=PATIENCE)

    def instance(self, number: int) -> str:
        """Wait for the *number*-th host, and keep the world from taking it for a dead one."""
        self.wait(f"host {number}", lambda: len(self.cloud.control.hosts()) >= number)
        found = self.cloud.control.hosts()[number - 1].instance_id
        run = self.cloud.run_dir / "hosts" / found / "run"
        self.wait("its directory", run.is_dir)
        (run / "ready").touch()
        return found

    def machine(self, instance_id: str) -> Box:
        """Return a machine, off, that will come up as *instance_id*."""
        (template,) = client(self.cloud, "ec2").describe_launch_templates()["LaunchTemplates"]
        (version,) = client(self.cloud, "ec2").describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"]
        )["LaunchTemplateVersions"]
        user_data = base64_text(version["LaunchTemplateData"]["UserData"])
        box = prepared(self.root_tree, self.scratch / instance_id, self.bundle, user_data)
        wired = WIRED.format(endpoint=self.cloud.endpoint, instance_id=instance_id)
        box.write(f"{UNITS}/{AGENT}.d/wired.conf", wired)
        return box

    def wire(self, box: Box) -> Wire:
        pid = box.init_pid()
        port = urlsplit(self.cloud.endpoint).port
        assert pid
        assert port
        return Wire(pid, port)

    def seen(self, job: str) -> JobSeen:
        return self.view.job(job)

    def submit(self, code: Path) -> str:
        request = submission.Request(command=JOB, pool="gpu", name="chain", code=code)
        return submission.submit(request, lambda: self.stage.cloud, warn=lambda _line: None).id

    def log(self, job: str, attempt: int) -> str:
        bucket, key = self.stage.cloud.stack.bucket, f"jobs/{job}/logs/{attempt:06d}.log"
        body: bytes = client(self.cloud, "s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        return body.decode()


def base64_text(text: str) -> str:
    return base64.b64decode(text).decode()


@pytest.fixture(scope="module")
def site(
    original: Path, bundle: tuple[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    try:
        root_tree = tree(SUITE)
    except NotHereError as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("machines")
    localized = localize(original, STACK, scratch / "app", notice_seconds=NOTICE_SECONDS)
    with embedded.start(notice_seconds=NOTICE_SECONDS, agent_environment=MUTE) as cloud:
        provision(cloud, localized)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=NOTICE_SECONDS)
        yield Site(cloud, stage, View.of(stage), root_tree, bundle, scratch)


FIND_JOB = """
import os, pathlib
for one in pathlib.Path("/proc").glob("[0-9]*"):
    words = (one / "cmdline").read_bytes().split(b"\\0")
    if b"chain_job.py" in words and words[0].endswith(b"python3"):
        print(one.name, one.stat().st_uid, (one / "cgroup").read_text().strip().split("/")[-1])
"""


@dataclass(frozen=True)
class Process:
    pid: str
    uid: str
    unit: str


def job_process(box: Box) -> Process:
    (line,) = box.run("python3", "-c", FIND_JOB).stdout.splitlines()
    return Process(*line.split())


@dataclass(frozen=True)
class Played:
    first: str
    second: str
    process: Process
    job_uid: str
    process_after_agent: Process
    seen: JobSeen
    log: str


@pytest.fixture(scope="module")
def played(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Interrupt the job on the first machine, after its agent was killed; end it on another."""
    code = tmp_path_factory.mktemp("code")
    shutil.copy(ROOT / "tests" / "examples" / "chain_job.py", code)
    shutil.copytree(ROOT / "agent" / "reprieve_job", code / "reprieve_job")
    with ExitStack() as machines:
        job = site.submit(code)
        first = site.instance(1)
        box = boot(site, first, machines)
        site.wait("the first steps", lambda: (lease_step(site, job) or 0) > STEPS / 20)
        process, job_uid = job_process(box), box.run("id", "-u", "reprieve-job").stdout.strip()
        box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", AGENT)
        assert eventually(lambda: box.property(AGENT, "NRestarts") == "1", PATIENCE)
        assert box.wait_for(AGENT, "active", seconds=PATIENCE)
        after = job_process(box)
        site.cloud.control.notice(first)
        site.wait("the next attempt", lambda: site.seen(job).job.attempt == 2)
        box.stop()
        second = site.instance(2)
        boot(site, second, machines)
        site.wait("the end", lambda: site.seen(job).job.terminal)
        yield Played(first, second, process, job_uid, after, site.seen(job), site.log(job, 2))


def boot(site: Site, instance_id: str, machines: ExitStack) -> Box:
    """Boot the machine for *instance_id*, wire it to the cloud, and give it its user data."""
    box = site.machine(instance_id)
    try:
        machines.enter_context(box)
    except NotHereError as error:
        pytest.skip(str(error))
    machines.enter_context(site.wire(box))
    done = box.run("/bin/bash", USER_DATA, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return box


def lease_step(site: Site, job: str) -> int | None:
    lease = site.seen(job).lease
    return lease.step if lease else None


def expected_digest() -> str:
    digest = b"start"
    for step in range(1, STEPS + 1):
        digest = hashlib.sha256(digest + str(step).encode()).digest()
    return digest.hex()


def test_the_job_succeeds_on_the_second_machine(played: Played) -> None:
    job = played.seen.job
    first, second = played.seen.attempts

    assert job.status is JobStatus.SUCCEEDED
    assert job.attempt == 2
    assert (first.instance_id, second.instance_id) == (played.first, played.second)
    assert second.restored_step


def test_no_step_is_lost_or_done_twice(played: Played) -> None:
    assert f"digest {expected_digest()}" in played.log


def test_the_job_runs_as_its_own_user_in_its_own_unit(played: Played) -> None:
    assert played.process.uid == played.job_uid != "0"
    assert played.process.unit.startswith("reprieve-job-chain")
    assert played.process.unit.endswith(".service")


def test_the_job_outlives_its_agent(played: Played) -> None:
    assert played.process_after_agent == played.process
