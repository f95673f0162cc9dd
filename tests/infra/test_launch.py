"""What a host is launched from and what it runs at its first boot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from infra import user_data
from infra.constructs.fleet import PREEMPT_DOCUMENT
from infra.packages import UNIT_SUFFIXES
from reprieve.domain.notice import NoticeKind
from tests.infra.synthesised import ROOT, Template

ENVIRONMENT = [
    "STACK",
    "POOL",
    "JOBS_TABLE",
    "CHECKPOINTS_BUCKET",
    "WORK_QUEUE_URL",
    "REPORTS_QUEUE_URL",
    "NOTICE_SECONDS",
    "AWS_REGION",
    "STATE_DIR",
    "RUN_DIR",
    "JOB_USER",
    "SUPERVISOR",
    "JOB_PATH",
    "AWS_SDK_UA_APP_ID",
    "LOG_GROUP",
]


def _data(template: Template, pool: str = "gpu") -> Any:
    word = "".join(part.capitalize() for part in pool.split("-"))
    return template.named("AWS::EC2::LaunchTemplate", f"Template{word}")["LaunchTemplateData"]


def _script(template: Template, pool: str = "gpu") -> str:
    return template.text(_data(template, pool)["UserData"])


def _agent_env(script: str) -> dict[str, str]:
    found = re.search(
        r"^cat >/etc/reprieve/agent.env <<'REPRIEVE_AGENT_ENV'\n(.*?)\nREPRIEVE_AGENT_ENV$",
        script,
        re.DOTALL | re.MULTILINE,
    )
    assert found
    return dict(line.split("=", 1) for line in found[1].splitlines())


def test_the_metadata_service_wants_a_token_and_one_hop(template: Template) -> None:
    assert _data(template)["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "enabled",
    }


def test_a_shutdown_is_the_end_of_the_instance(template: Template) -> None:
    assert _data(template)["InstanceInitiatedShutdownBehavior"] == "terminate"


def test_the_fleet_request_decides_market_type_and_subnet(template: Template) -> None:
    data = _data(template)

    assert not {"InstanceMarketOptions", "InstanceType", "InstanceRequirements"} & set(data)
    for interface in data["NetworkInterfaces"]:
        assert "SubnetId" not in interface


def test_the_volume_is_encrypted_and_goes_with_the_instance(own_network: Template) -> None:
    (mapping,) = _data(own_network, "a100-x8")["BlockDeviceMappings"]

    assert mapping["DeviceName"] == "/dev/xvda"
    assert mapping["Ebs"]["Encrypted"] is True
    assert mapping["Ebs"]["DeleteOnTermination"] is True
    assert mapping["Ebs"]["VolumeSize"] == 500


def test_what_is_launched_is_tagged_from_the_start(own_network: Template) -> None:
    specifications = _data(own_network, "small")["TagSpecifications"]

    assert {one["ResourceType"] for one in specifications} == {
        "instance",
        "volume",
        "network-interface",  # a tag on the spot request would fail a fleet that ends on-demand
    }
    for one in specifications:
        assert {tag["Key"]: tag["Value"] for tag in one["Tags"]} == {
            "Name": "Training-small",
            "reprieve:stack": "Training",
            "reprieve:pool": "small",
            "team": "vision",
        }


def test_the_image_is_read_at_deploy_or_given(template: Template, own_network: Template) -> None:
    parameter = template.body["Parameters"][_data(template)["ImageId"]["Ref"]]

    assert parameter["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert "ubuntu-24.04" in parameter["Default"]
    assert _data(own_network, "a100-x8")["ImageId"] == "ami-0123456789abcdef0"


def test_hosts_accept_nothing(template: Template) -> None:
    (group,) = template.of("AWS::EC2::SecurityGroup").values()

    assert not group.get("SecurityGroupIngress")
    assert not template.of("AWS::EC2::SecurityGroupIngress")


def test_uploads_do_not_go_through_the_internet_gateway(template: Template) -> None:
    services = [
        template.text(endpoint["ServiceName"])
        for endpoint in template.of("AWS::EC2::VPCEndpoint").values()
    ]

    assert sorted(name.rsplit(".", 1)[1] for name in services) == ["dynamodb", "s3"]
    assert not template.of("AWS::EC2::NatGateway")


def test_a_network_of_yours_is_left_alone(own_network: Template) -> None:
    kinds = {resource["Type"] for resource in own_network.resources.values()}

    assert not {"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::VPCEndpoint"} & kinds
    assert "AssociatePublicIpAddress" not in _data(own_network, "small")["NetworkInterfaces"][0]


def test_user_data_fits(template: Template) -> None:
    assert len(_script(template).encode()) < user_data.LIMIT_BYTES / 2  # room for long names


def test_user_data_is_a_script_that_bash_reads(template: Template) -> None:
    script = _script(template)

    assert script.startswith("#!/bin/bash\n")
    assert "@" not in re.sub(r'"\$@"|\[@\]', "", script)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_user_data_writes_what_the_agent_reads(template: Template, own_network: Template) -> None:
    assert list(_agent_env(_script(template))) == ENVIRONMENT
    assert _agent_env(_script(own_network, "a100-x8")) | {
        "STACK": "Training",
        "POOL": "a100-x8",
        "AWS_REGION": "us-east-1",
        "SUPERVISOR": "systemd",
        "NOTICE_SECONDS": "120.0",
    } == _agent_env(_script(own_network, "a100-x8"))


def test_an_agent_is_told_the_jobs_role_where_one_is_configured(
    template: Template, own_network: Template
) -> None:
    assert "JOB_ROLE_ARN" not in _agent_env(_script(template))
    for pool in ("small", "a100-x8"):
        told = _agent_env(_script(own_network, pool))["JOB_ROLE_ARN"]
        assert told == "arn:aws:iam::123456789012:role/training-data"


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    return Boot(tmp_path)


class Boot:
    """Runs the real script with stand-ins for the commands that change a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = folder / "bin"
        self.commands.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()
        self.stand_in("systemd-run", 'echo "systemd-run $*" >>"$CALLS"')
        self.stand_in("sleep", "exit 0")
        bundle = folder / "bundle.zip"
        with zipfile.ZipFile(bundle, "w") as archive:
            archive.writestr("install.sh", 'echo "install $1" >>"$CALLS"\n')
        self.stand_in("aws", f'echo "aws $*" >>"$CALLS"; cp {bundle} "${{@: -1}}"')

    def stand_in(self, name: str, body: str) -> None:
        path = self.commands / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        script = user_data.render(
            region="us-east-1",
            environment={"STACK": "Reprieve", "POOL": "gpu"},
            bundle=user_data.Bundle("assets", "agent.zip"),
            boot_limit_seconds=300,
        )
        script = script.replace("/etc/reprieve", str(self.folder / "etc"))
        script = script.replace("/var/tmp", str(self.folder))
        environment = {
            "PATH": f"{self.commands}:{os.environ['PATH']}",
            "CALLS": str(self.calls),
        }
        return subprocess.run(
            ["bash"],
            input=script,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


def test_a_first_boot_sets_its_own_limit_before_anything_else(boot: Boot) -> None:
    done = boot.run()

    assert done.returncode == 0, done.stderr
    limit, fetch, install = boot.called()
    assert limit.startswith("systemd-run --quiet --unit=reprieve-boot-limit --on-active=300 ")
    assert "test -e /run/reprieve/ready || systemctl poweroff" in limit
    assert fetch.startswith("aws s3 cp --only-show-errors s3://assets/agent.zip ")
    assert install.startswith("install python3")
    assert (boot.folder / "etc" / "agent.env").read_text() == "STACK=Reprieve\nPOOL=gpu\n"


def test_a_first_boot_waits_for_credentials(boot: Boot) -> None:
    bundle = boot.folder / "bundle.zip"
    boot.stand_in(
        "aws",
        'echo "aws" >>"$CALLS"; [ "$(grep -c ^aws "$CALLS")" -gt 3 ] || exit 1\n'
        f'cp {bundle} "${{@: -1}}"',
    )

    done = boot.run()

    assert done.returncode == 0, done.stderr
    assert boot.called().count("aws") == 4


def test_a_boot_that_cannot_fetch_says_so_and_leaves_the_limit_to_end_it(boot: Boot) -> None:
    boot.stand_in("aws", 'echo "aws" >>"$CALLS"; exit 1')

    done = boot.run()

    assert done.returncode == 1
    assert "cannot fetch the agent" in done.stdout
    assert boot.called().count("aws") == 10
    assert boot.called()[0].startswith("systemd-run")


def test_an_image_without_a_new_python_says_so(boot: Boot) -> None:
    for name in ("python3.14", "python3.13", "python3.12", "python3.11", "python3"):
        boot.stand_in(name, "exit 1")

    done = boot.run()

    assert done.returncode == 1
    assert "no Python >= 3.11" in done.stdout


def test_the_document_takes_values_as_variables_and_never_as_text(template: Template) -> None:
    (document,) = template.of("AWS::SSM::Document").values()
    content = document["Content"]

    assert document["Name"] == "Reprieve-preempt"
    assert document["UpdateMethod"] == "NewVersion"
    assert content["schemaVersion"] == "2.2"
    assert set(content["parameters"]) == {"RequestId", "Kind", "NoticedAt", "Deadline"}
    for parameter in content["parameters"].values():
        assert parameter["type"] == "String"
        assert parameter["interpolationType"] == "ENV_VAR"
        assert parameter["allowedPattern"].startswith("^")
        assert parameter["allowedPattern"].endswith("$")
    assert "{{" not in json.dumps(content["mainSteps"])


def _run_document(tmp_path: Path, **parameters: str) -> subprocess.CompletedProcess[str]:
    ctl = tmp_path / "reprieve-ctl"
    ctl.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    ctl.chmod(0o755)
    (step,) = PREEMPT_DOCUMENT["mainSteps"]
    shell = shutil.which("sh") or "/bin/sh"
    return subprocess.run(
        [shell, "-c", "\n".join(step["inputs"]["runCommand"])],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **parameters},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_document_passes_its_parameters_on(tmp_path: Path) -> None:
    done = _run_document(
        tmp_path,
        SSM_RequestId="interruption:i-0123456789abcdef0",
        SSM_Kind="interruption",
        SSM_NoticedAt="2026-03-04T12:00:00Z",
        SSM_Deadline="",
    )

    assert done.stdout.splitlines() == [
        "preempt",
        "--request-id",
        "interruption:i-0123456789abcdef0",
        "--kind",
        "interruption",
        "--noticed-at",
        "2026-03-04T12:00:00Z",
        "--deadline",
        "",
        "--wait",
        "20",
        "--json",
    ]


def test_the_document_fails_closed_on_an_old_ssm_agent(tmp_path: Path) -> None:
    done = _run_document(tmp_path)

    assert done.returncode == 2
    assert "older than 3.3.2746.0" in done.stdout


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        ("RequestId", "interruption:i-0123456789abcdef0#3", "x; rm -rf /"),
        ("Kind", "interruption", "$(reboot)"),
        ("NoticedAt", "2026-03-04T12:00:00.123456+00:00", "yesterday"),
        ("Deadline", "", "2026-03-04T12:00:00Z`id`"),
    ],
)
def test_the_service_checks_what_a_command_says(parameter: str, good: str, bad: str) -> None:
    pattern = PREEMPT_DOCUMENT["parameters"][parameter]["allowedPattern"]

    assert re.fullmatch(pattern, good)
    assert not re.fullmatch(pattern, bad)


@pytest.mark.parametrize("kind", list(NoticeKind))
def test_every_kind_of_notice_may_be_told(kind: NoticeKind) -> None:
    pattern = PREEMPT_DOCUMENT["parameters"]["Kind"]["allowedPattern"]

    assert re.fullmatch(pattern, kind)


@pytest.mark.parametrize("script", sorted((ROOT / "infra" / "host").glob("*.sh")), ids=str)
def test_a_host_script_is_one_that_bash_reads(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_jobs_cannot_reach_the_metadata_service_or_nothing_runs() -> None:
    unit = (ROOT / "infra" / "host" / "reprieve-imds-guard.service").read_text()

    assert "169.254.169.254/32 -m owner --uid-owner reprieve-job -j REJECT" in unit
    assert "Before=reprieve-agent.service" in unit
    assert "RequiredBy=reprieve-agent.service" in unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize(
    "unit",
    sorted(path for path in (ROOT / "infra" / "host").iterdir() if path.suffix in UNIT_SUFFIXES),
    ids=lambda path: path.name,
)
def test_systemd_has_nothing_to_say_about_a_unit_of_ours(unit: Path) -> None:
    """Any word of it is a failure: older ones end with 0 whatever they find."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
