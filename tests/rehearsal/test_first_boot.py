"""
The rendered user data on a machine that boots: real systemd, real units, real iptables.

The machine is a Debian 13 in a container of our own: the image of a deployment, Ubuntu 24.04
with NVIDIA's drivers, is not to be had here. Stand-ins are what lies outside the machine: its
metadata service, and ``aws s3 cp``, which brings the assembly's own host bundle.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.constructs.fleet import PREEMPT_DOCUMENT
from reprieve_cli.provision import STACK
from tests.infra.synthesised import Template
from tests.rehearsal import metadata_stub
from tests.rehearsal.box import Box, eventually
from tests.rehearsal.debian import NotHereError, program, tree

pytestmark = [pytest.mark.deep, pytest.mark.rehearsal, pytest.mark.timeout(1200)]

SUITE = "trixie"
USER_DATA = "/var/lib/cloud/user-data"
AGENT = "reprieve-agent.service"
BOOT_LIMIT = "reprieve-boot-limit.timer"
UNITS = "/etc/systemd/system"
STATUS, COMMITTED, NO_JOB, USAGE = 0, 0, 11, 2

METADATA_UNIT = """\
[Unit]
Description=Stand-in for the metadata service
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=exec
ExecStart=/usr/bin/python3 /srv/metadata.py
[Install]
WantedBy=sysinit.target
"""
# The one command of `aws` that a first boot uses.
AWS = """\
#!/bin/sh -eu
[ "$1 $2 $3" = "s3 cp --only-show-errors" ]
echo "$*" >>/var/log/aws
cp "/srv/${4##*/}" "$5"
"""


@pytest.fixture(scope="module")
def template(original: Path) -> Template:
    return Template(json.loads((original / f"{STACK}.template.json").read_text()))


@pytest.fixture(scope="module")
def user_data(template: Template) -> str:
    (found,) = template.of("AWS::EC2::LaunchTemplate").values()
    return template.text(found["LaunchTemplateData"]["UserData"])


@pytest.fixture(scope="module")
def root_tree() -> Path:
    try:
        return tree(SUITE)
    except NotHereError as error:
        pytest.skip(str(error))


def prepared(root_tree: Path, disk: Path, bundle: tuple[str, bytes], user_data: str) -> Box:
    """Return a machine that is off: as EC2 makes it, with what lies outside it inside."""
    box = Box(root_tree, disk)
    key, archive = bundle
    box.write(f"/srv/{key}", archive)
    box.write("/usr/local/bin/aws", AWS, mode=0o755)
    box.write("/srv/metadata.py", Path(metadata_stub.__file__).read_bytes())
    box.write(f"{UNITS}/metadata.service", METADATA_UNIT)
    box.link(f"{UNITS}/sysinit.target.wants/metadata.service", "../metadata.service")
    box.write(USER_DATA, user_data, mode=0o700)
    return box


@dataclass(frozen=True)
class Boot:
    box: Box
    done: subprocess.CompletedProcess[str]
    """Of user data: cloud-init runs it as root, late in the first boot."""


@pytest.fixture(scope="module")
def boot(
    root_tree: Path,
    bundle: tuple[str, bytes],
    user_data: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Boot]:
    disk = tmp_path_factory.mktemp("disk")
    try:
        with prepared(root_tree, disk, bundle, user_data) as box:
            yield Boot(box, box.run("/bin/bash", USER_DATA, seconds=180))
    except NotHereError as error:
        pytest.skip(str(error))


def test_user_data_fits_into_what_ec2_takes(user_data: str) -> None:
    assert len(user_data.encode()) < 16_384 * 3 // 4  # references grow when they are filled in
    subprocess.run(["bash", "-n"], input=user_data, text=True, check=True)


def test_shellcheck_has_nothing_to_say(user_data: str, tmp_path: Path) -> None:
    try:
        shellcheck = program("shellcheck", "usr/bin/shellcheck")
    except NotHereError as error:
        pytest.skip(str(error))
    script = tmp_path / "user-data"
    script.write_text(user_data)
    install = Path(__file__).parents[2] / "infra" / "host" / "install.sh"

    done = subprocess.run(
        # SC2174: the mode of mkdir -p is for the last folder alone, as it is meant.
        [shellcheck, "--shell=bash", "--exclude=SC2174", script, install],
        capture_output=True,
        text=True,
        check=False,
    )

    assert not done.stdout, done.stdout


def test_user_data_runs_to_its_end(boot: Boot) -> None:
    assert boot.done.returncode == 0, boot.done.stdout + boot.done.stderr
    assert "reprieve: installed" in boot.done.stdout
    assert not boot.done.stderr


def test_the_bundle_is_fetched_once_and_removed(boot: Boot, bundle: tuple[str, bytes]) -> None:
    assert boot.box.path("/var/log/aws").read_text().count(bundle[0]) == 1
    assert not list(boot.box.path("/var/tmp").glob("reprieve-bundle*"))


def test_the_agent_is_told_exactly_what_the_template_says(boot: Boot, template: Template) -> None:
    (table,) = template.of("AWS::DynamoDB::GlobalTable")
    lines = boot.box.path("/etc/reprieve/agent.env").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines)

    assert len(told) == len(lines)
    assert told["STACK"] == STACK
    assert told["POOL"] == "gpu"
    assert told["JOBS_TABLE"] == f"<{table}>"
    assert re.fullmatch(r"<StateCheckpoints\w+>", told["CHECKPOINTS_BUCKET"])
    assert re.fullmatch(r"<StateWorkGpu\w+>", told["WORK_QUEUE_URL"])
    assert re.fullmatch(r"<StateReports\w+>", told["REPORTS_QUEUE_URL"])
    assert float(told["NOTICE_SECONDS"]) == 120
    assert told["AWS_REGION"] == "us-east-1"
    assert told["JOB_USER"] == "reprieve-job"
    assert told["SUPERVISOR"] == "systemd"
    assert told["AWS_SDK_UA_APP_ID"] == "reprieve-agent"


def test_the_agent_runs_and_says_that_it_is_ready(boot: Boot) -> None:
    assert boot.box.wait_for(AGENT, "active"), boot.box.run("journalctl", "-u", AGENT).stdout
    assert boot.box.run("test", "-e", "/run/reprieve/ready").returncode == 0


def test_the_boot_limit_stands_from_the_first_second(boot: Boot) -> None:
    assert boot.box.property(BOOT_LIMIT, "ActiveState") == "active"
    assert "OnActiveUSec=5min" in boot.box.property(BOOT_LIMIT, "TimersMonotonic")


@pytest.fixture
def units(boot: Boot) -> list[str]:
    listed = boot.box.run("find", UNITS, "-maxdepth", "1", "-type", "f", "-printf", "%f\n").stdout
    return sorted(set(listed.split()) - {"metadata.service"})


def test_every_unit_is_enabled(boot: Boot, units: list[str]) -> None:
    assert {AGENT, "reprieve-imds-guard.service", "var-lib-reprieve.mount"} <= set(units)
    for unit in units:
        assert boot.box.run("systemctl", "is-enabled", unit).stdout.strip() == "enabled", unit
    wanted = boot.box.path(f"{UNITS}/multi-user.target.wants/{AGENT}")
    required = boot.box.path(f"{UNITS}/{AGENT}.requires/reprieve-imds-guard.service")
    assert wanted.is_symlink()
    assert required.is_symlink()


def test_systemd_has_nothing_to_say_of_a_unit(boot: Boot, units: list[str]) -> None:
    paths = [f"{UNITS}/{unit}" for unit in units]

    done = boot.box.run("systemd-analyze", "verify", "--man=no", *paths)

    assert done.returncode == 0
    assert not done.stdout + done.stderr


def test_reprieve_ctl_finds_the_agent(boot: Boot) -> None:
    done = boot.box.run("/opt/reprieve/bin/reprieve-ctl", "status")

    assert done.returncode == STATUS, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])


def command(box: Box, **parameters: str) -> tuple[int, Any]:
    """Run the SSM document's script as SSM's agent does; return its exit code and its answer."""
    (step,) = PREEMPT_DOCUMENT["mainSteps"]
    variables = {f"SSM_{name}": value for name, value in parameters.items()}
    done = box.run("/bin/sh", "-c", "\n".join(step["inputs"]["runCommand"]), env=variables)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


NOTICE = {
    "RequestId": "interruption",
    "Kind": "interruption",
    "NoticedAt": "2026-03-04T12:00:00Z",
    "Deadline": "",
}


def test_the_ssm_document_reaches_the_agent(boot: Boot) -> None:
    status, answer = command(boot.box, **NOTICE)

    assert status == NO_JOB, answer
    assert answer["result"] == "no job"


def test_the_ssm_document_fails_closed_without_its_parameters(boot: Boot) -> None:
    status, answer = command(boot.box)

    assert status == USAGE
    assert "error" in answer


ASK_METADATA = (
    "import http.client as h; c = h.HTTPConnection('169.254.169.254', timeout=2); "
    "c.request('PUT', '/latest/api/token', headers={'X-aws-ec2-metadata-token-ttl-seconds': '60'});"
    " print(c.getresponse().status)"
)


def test_jobs_cannot_reach_the_metadata_service_and_the_host_can(boot: Boot) -> None:
    ask = ("/usr/bin/python3", "-c", ASK_METADATA)

    host = boot.box.run(*ask)
    job = boot.box.run("setpriv", "--reuid=reprieve-job", "--clear-groups", *ask)

    assert host.stdout.strip() == "200", host.stderr
    assert job.returncode != 0
    assert "ConnectionRefusedError" in job.stderr


def test_an_agent_that_is_killed_comes_back(boot: Boot) -> None:
    before = boot.box.property(AGENT, "MainPID")

    boot.box.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", AGENT)

    assert eventually(lambda: boot.box.property(AGENT, "NRestarts") == "1", 30)
    assert boot.box.wait_for(AGENT, "active")
    assert boot.box.property(AGENT, "MainPID") != before


def test_a_host_that_reboots_needs_no_user_data(boot: Boot) -> None:
    """Last, because the machine is another one afterwards."""
    boot.box.stop()
    boot.box.path(USER_DATA).unlink()

    boot.box.start()

    assert boot.box.wait_for(AGENT, "active"), boot.box.run("journalctl", "-u", AGENT).stdout
    guard = boot.box.run("iptables", "-S", "OUTPUT").stdout
    assert guard.count("-d 169.254.169.254/32") == 1
    assert boot.box.run("/opt/reprieve/bin/reprieve-ctl", "status").returncode == STATUS


def test_a_host_whose_agent_never_gets_ready_powers_off(
    root_tree: Path, bundle: tuple[str, bytes], user_data: str, tmp_path: Path
) -> None:
    """The boot limit is five minutes; only its length is changed here."""
    hasty = user_data.replace("--on-active=300", "--on-active=3")
    assert hasty != user_data
    box = prepared(root_tree, tmp_path, bundle, hasty)
    box.path(f"{UNITS}/sysinit.target.wants/metadata.service").unlink()
    try:
        with box:
            box.run("systemd-run", "--quiet", "/bin/bash", USER_DATA)

            assert box.wait_off(seconds=90)
    except NotHereError as error:
        pytest.skip(str(error))
