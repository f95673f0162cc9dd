"""
The real CDK CLI: synth of the app as it stands, then a stack's life on the embedded cloud.

One cloud, with IAM enforced: a stack that is destroyed takes the rights of its hosts away, and
that is how they notice. Nobody sweeps here (``reconcile`` is off), so whatever leaves, leaves
by itself. The tests follow each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.job import JobStatus
from reprieve.usecases.submit import Cancel
from reprieve_cli import submission
from reprieve_cli.drill.stage import ALIVE, Stage, open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local import processes
from reprieve_cli.local.aws import client
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.local.localize import complete, localize
from reprieve_cli.provision import STACK
from tests.rehearsal.cdk import Cdk

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(300)]

NOTICE_SECONDS = 2.0
# Ten minutes of EC2's clock, and what a busy machine adds.
TEN_MINUTES = 5 * NOTICE_SECONDS
TWENTY_MINUTES = 10 * NOTICE_SECONDS
SLACK = 20.0
OUTPUTS = {
    "JobsTable",
    "CheckpointsBucket",
    "OrdersQueueUrl",
    "ReportsQueueUrl",
    "IntakeQueueUrl",
    "HandleNoticeFunction",
    "ReplaceHostFunction",
    "RecordReportFunction",
    "ReconcileFunction",
    "SsmDocument",
    "AlarmTopic",
    "PoolGpu",
}


@dataclass(frozen=True)
class Site:
    cloud: Cloud
    cdk: Cdk
    app: tuple[str, str]
    """The option that names the localised assembly."""
    outputs: dict[str, str]

    def stage(self) -> Stage:
        return open_stage(self.cloud.env, self.cloud.control, notice_seconds=NOTICE_SECONDS)

    def alive(self) -> set[str]:
        return {one.instance_id for one in self.cloud.control.hosts() if one.state in ALIVE}

    def submit(self, name: str, *command: str) -> str:
        """Submit a job without a checkpoint and return its id."""
        stage = self.stage()
        request = submission.Request(command=command, pool="gpu", name=name)
        return submission.submit(request, lambda: stage.cloud, warn=lambda _line: None).id

    def wait(self, what: str, condition: Any, *, seconds: float = 60.0) -> None:
        self.cloud.control.wait_for(what, condition, seconds=seconds)

    def status(self, job: str) -> JobStatus | None:
        row = self.stage().cloud.jobs.read(job)
        return row.status if row else None

    def all_run(self, *jobs: str) -> bool:
        return all(self.status(job) is JobStatus.RUNNING for job in jobs)

    def cancel(self, job: str) -> None:
        cloud = self.stage().cloud
        Cancel(rows=cloud.rows, now=cloud.now)(job)

    def last_words(self, instance_id: str) -> str:
        log = self.cloud.run_dir / "hosts" / instance_id / "agent.log"
        return log.read_text(encoding="utf-8").splitlines()[-1]

    @contextmanager
    def hosts_that_never_boot(self) -> Iterator[None]:
        """Have the metadata service fail new hosts: their agents don't learn who they are."""
        trouble = {"error": {"code": "InternalError", "status": 500}}
        self.cloud.control.add_fault("imds", "instance-id", trouble, seconds=9999)
        try:
            yield
        finally:
            self.cloud.control.clear_faults()


def is_agent(pid: int) -> bool:
    try:
        return "reprieve_agent" in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return False


def stacks(cloud: Cloud) -> dict[str, str]:
    summaries = client(cloud, "cloudformation").list_stacks()["StackSummaries"]
    return {one["StackName"]: one["StackStatus"] for one in summaries}


@pytest.fixture(scope="module")
def site(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Bootstrap and deploy with the CLI, and turn ``reconcile`` off."""
    folder = tmp_path_factory.mktemp("deployed")
    localized = localize(original, STACK, folder / "app", notice_seconds=NOTICE_SECONDS)
    app = ("--app", str(localized.assembly_dir))
    with embedded.start(notice_seconds=NOTICE_SECONDS, tls=True, auth=True) as cloud:
        cdk = Cdk(cloud.env)
        done = cdk("bootstrap", f"aws://{cloud.account}/{cloud.region}", *app)
        assert done.returncode == 0, done.stderr
        told = folder / "outputs.json"
        done = cdk("deploy", *app, "--require-approval", "never", "--outputs-file", str(told))
        assert done.returncode == 0, done.stderr
        outputs = json.loads(told.read_text())[STACK]
        complete(cloud, localized)
        client(cloud, "lambda").put_function_concurrency(
            FunctionName=outputs["ReconcileFunction"], ReservedConcurrentExecutions=0
        )
        yield Site(cloud, cdk, app, outputs)


def test_synth_works_in_the_activated_environment(tmp_path: Path) -> None:
    """Nothing but the environment: no account, no region, no option but where to write."""
    done = Cdk({"AWS_EC2_METADATA_DISABLED": "true"})("synth", "--output", str(tmp_path))

    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / f"{STACK}.template.json").read_text())
    kinds = {one["Type"] for one in template["Resources"].values()}
    assert {"AWS::SSM::Document", "AWS::EC2::LaunchTemplate", "AWS::Lambda::Function"} <= kinds
    assert not [kind for kind in kinds if kind.startswith("Custom::")]
    assert "Resources:" in done.stdout
    assert "[Error]" not in done.stdout + done.stderr
    assert "[Warning]" not in done.stdout + done.stderr


def test_deploy_says_what_people_and_tools_need(site: Site) -> None:
    described = client(site.cloud, "cloudformation").describe_stacks(StackName=STACK)
    deployed = described["Stacks"][0]

    assert deployed["StackStatus"] == "CREATE_COMPLETE"
    assert site.outputs == {one["OutputKey"]: one["OutputValue"] for one in deployed["Outputs"]}
    assert set(site.outputs) >= OUTPUTS
    assert json.loads(site.outputs["PoolGpu"])["launch_template"].startswith("lt-")


def test_diff_finds_no_difference(site: Site) -> None:
    done = site.cdk("diff", *site.app, "--fail")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "There were no differences" in done.stdout + done.stderr


def test_deploying_again_changes_nothing(site: Site) -> None:
    before = client(site.cloud, "cloudformation").describe_stacks(StackName=STACK)["Stacks"]

    done = site.cdk("deploy", *site.app, "--require-approval", "never")

    assert done.returncode == 0, done.stderr
    assert "(no changes)" in done.stdout + done.stderr
    after = client(site.cloud, "cloudformation").describe_stacks(StackName=STACK)["Stacks"]
    assert after == before


def test_hosts_leave_by_themselves_while_nobody_sweeps(site: Site, tmp_path: Path) -> None:
    """One host runs out of work, the agent of the other never boots: both go."""
    enough = tmp_path / "enough"
    short = site.submit("short", "sh", "-c", f"until [ -e {enough} ]; do sleep 0.1; done")
    site.wait("the short job's start", lambda: site.status(short) is JobStatus.RUNNING)
    (idle,) = site.alive()
    with site.hosts_that_never_boot():
        waiting = site.submit("waiting", "sleep", "600")
        site.wait("the second host", lambda: len(site.alive()) > 1)
        (mute,) = site.alive() - {idle}
        site.cancel(waiting)
        enough.touch()
        site.wait("the short job's end", lambda: site.status(short) is JobStatus.SUCCEEDED)

        site.wait("every host's end", lambda: not site.alive(), seconds=TEN_MINUTES + SLACK)

    assert "no work" in site.last_words(idle)
    assert site.cloud.control.log(kind="not ready in time", instance_id=mute)
    assert site.cloud.control.log(kind="shut itself down", instance_id=idle)


def test_destroy_leaves_no_host_that_is_idle_or_never_booted(site: Site) -> None:
    """One host is idle, one trains, the agent of the third never boots."""
    cancelled, busy = site.submit("cancelled", "sleep", "600"), site.submit("busy", "sleep", "600")
    site.wait("two jobs' start", lambda: site.all_run(cancelled, busy))
    with site.hosts_that_never_boot():
        waiting = site.submit("waiting", "sleep", "600")
        site.wait("the third host", lambda: len(site.alive()) == 3)
        site.cancel(waiting)
        site.cancel(cancelled)

        done = site.cdk("destroy", *site.app, "--force")

        assert done.returncode == 0, done.stderr
        assert stacks(site.cloud)[STACK] == "DELETE_COMPLETE"
        site.wait("the others' end", lambda: len(site.alive()) == 1, seconds=TEN_MINUTES + SLACK)


def test_a_host_that_trains_learns_that_its_stack_is_gone(site: Site) -> None:
    """Run after ``destroy``: nobody can ever take the job's result, and the host costs money."""
    assert len(site.alive()) == 1

    site.wait("the last host's end", lambda: not site.alive(), seconds=TWENTY_MINUTES + SLACK)

    assert not [one for one in processes.descendants(site.cloud.pid) if is_agent(one)]


def test_what_holds_the_jobs_is_kept(site: Site) -> None:
    """Run after ``destroy``: table and bucket are still there, and with them every checkpoint."""
    table = client(site.cloud, "dynamodb").describe_table(TableName=site.outputs["JobsTable"])
    buckets = client(site.cloud, "s3").list_buckets()["Buckets"]

    assert table["Table"]["TableStatus"] == "ACTIVE"
    assert site.outputs["CheckpointsBucket"] in {one["Name"] for one in buckets}
    assert not client(site.cloud, "lambda").list_functions()["Functions"]
    assert not client(site.cloud, "sqs").list_queues().get("QueueUrls")
