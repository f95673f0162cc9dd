"""What the tests of the embedded cloud share: a stand-in agent, clients, a launch template."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from reprieve_cli.local import cloud as local_cloud
from reprieve_cli.local.cloud import Cloud

HERE = Path(__file__).parent
NOTICE_SECONDS = 2.0
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": ["ec2.amazonaws.com", "lambda.amazonaws.com"]},
            "Action": "sts:AssumeRole",
        }
    ],
}
USER_DATA = """#!/bin/bash
set -e
systemd-run --unit=reprieve-boot-limit --on-active=60 /bin/sh -c 'test -e X || systemctl poweroff'
cat >/etc/reprieve/agent.env <<'REPRIEVE_AGENT_ENV'
STACK=Test
POOL=gpu
NOTICE_SECONDS=2
STATE_DIR=/var/lib/reprieve
RUN_DIR=/run/reprieve
JOB_USER=reprieve-job
SUPERVISOR=systemd
AWS_SDK_UA_APP_ID=reprieve-agent
REPRIEVE_AGENT_ENV
systemctl start reprieve-agent
"""


T = TypeVar("T")


def eventually(look: Callable[[], T | None], *, seconds: float = 10.0) -> T:
    """Poll *look* until it returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing true in {seconds:g} s: last answer {found!r}")
        time.sleep(0.02)
    return found


@dataclass(frozen=True, eq=False)
class Aws:
    """Clients for a cloud, as product code would make them."""

    cloud: Cloud

    def client(self, service: str, *, app: str = "tests", attempts: int = 1) -> Any:
        """Return a client; the same arguments give the same one."""
        return _client(tuple(sorted(self.cloud.env.items())), service, app, attempts)

    def try_as(
        self, credentials: dict[str, str], service: str, operation: str, **parameters: Any
    ) -> str:
        """Call *operation* with these credentials; return the error's code or kind, or ``ok``."""
        make: Any = boto3.Session().client
        client = make(
            service,
            endpoint_url=self.cloud.env["AWS_ENDPOINT_URL"],
            region_name=self.cloud.env["AWS_REGION"],
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"],
            verify=self.cloud.env.get("AWS_CA_BUNDLE"),
            config=Config(retries={"total_max_attempts": 1}),
        )
        try:
            getattr(client, operation)(**parameters)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        except BotoCoreError as error:
            return type(error).__name__
        return "ok"


@cache
def _client(env: tuple[tuple[str, str], ...], service: str, app: str, attempts: int) -> Any:
    """Make a client as product code does: from the environment alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env:
            patch.setenv(name, value)
        make: Any = boto3.Session().client
        return make(
            service,
            config=Config(user_agent_extra=f"app/{app}", retries={"total_max_attempts": attempts}),
        )


@dataclass(frozen=True)
class Fleet:
    """A launch template and a way to launch hosts from it."""

    aws: Aws
    template_id: str
    subnets: dict[str, str]

    def request(self, *types: str, zones: str = "ab", **overrides: Any) -> dict[str, Any]:
        places = [self.subnets[f"us-east-1{letter}"] for letter in zones]
        return {
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": self.template_id,
                        "Version": "1",
                    },
                    "Overrides": [
                        {"InstanceType": name, "SubnetId": place}
                        for name in types or ("g5.xlarge",)
                        for place in places
                    ],
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "spot",
            },
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": "reprieve:order", "Value": "job-1#1#1"}],
                }
            ],
            **overrides,
        }

    def create(self, *types: str, **overrides: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.aws.client("ec2").create_fleet(
            **self.request(*types, **overrides)
        )
        return result

    def launch_only(self, *types: str, **overrides: Any) -> str:
        """Launch one host and wait for nothing."""
        return str(self.create(*types, **overrides)["Instances"][0]["InstanceIds"][0])

    def launch(self, *types: str, **overrides: Any) -> str:
        """Launch one host and wait until its agent runs."""
        instance_id = self.launch_only(*types, **overrides)
        eventually(lambda: self.read(instance_id, "beat.json"))
        return instance_id

    def metadata(self, instance_id: str, path: str) -> str:
        """Ask the metadata service of the host, as a process on it would."""
        base = f"{self.aws.cloud.control.url}/imds/{instance_id}/latest"
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        asked = urllib.request.Request(f"{base}/api/token", method="PUT", headers=ttl)
        with urllib.request.urlopen(asked) as answer:
            token = answer.read().decode()
        told = urllib.request.Request(
            f"{base}/meta-data/{path}", headers={"X-aws-ec2-metadata-token": token}
        )
        with urllib.request.urlopen(told) as answer:
            return str(answer.read().decode())

    def credentials(self, instance_id: str) -> dict[str, str]:
        """Return the credentials of the host's role, in the words of ``sts:AssumeRole``."""
        role = self.metadata(instance_id, "iam/security-credentials/")
        told = json.loads(self.metadata(instance_id, f"iam/security-credentials/{role}"))
        return {**told, "SessionToken": told["Token"]}

    def state_dir(self, instance_id: str) -> Path:
        return self.aws.cloud.run_dir / "hosts" / instance_id / "state"

    def read(self, instance_id: str, name: str) -> Any:
        """Read what the stand-in agent wrote; None if it has not."""
        path = self.state_dir(instance_id) / name
        return json.loads(path.read_text()) if path.exists() else None

    def state(self, instance_id: str) -> str:
        found = {host.instance_id: host.state for host in self.aws.cloud.control.hosts()}
        return found[instance_id]


def start(**settings: Any) -> Cloud:
    """Start a cloud whose hosts run the stand-in agent."""
    return local_cloud.start(
        **{
            "notice_seconds": NOTICE_SECONDS,
            "agent_module": "fake_agent",
            "agent_environment": {"PYTHONPATH": str(HERE)},
            # How far EC2 and SSM lag behind is for the tests that are about it.
            "market": {"settings": {"registration_seconds": 0, "visible_after_seconds": 0}},
            **settings,
        }
    )


def make_template(aws: Aws) -> str:
    """Make a role, its profile and a launch template, as the stack would."""
    iam = aws.client("iam")
    iam.create_role(RoleName="host", AssumeRolePolicyDocument=json.dumps(TRUST))
    iam.create_instance_profile(InstanceProfileName="host")
    iam.add_role_to_instance_profile(InstanceProfileName="host", RoleName="host")
    return make_launch_template(aws)


def make_launch_template(aws: Aws, **changes: Any) -> str:
    """Make another launch template, with *changes* to its data."""
    answer = aws.client("ec2").create_launch_template(
        LaunchTemplateName=f"pool-{uuid.uuid4()}",
        LaunchTemplateData={
            "UserData": base64.b64encode(USER_DATA.encode()).decode(),
            "IamInstanceProfile": {"Name": "host"},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "reprieve:pool", "Value": "gpu"}]}
            ],
            **changes,
        },
    )
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def subnets_of(aws: Aws) -> dict[str, str]:
    found = aws.client("ec2").describe_subnets()["Subnets"]
    return {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in found}
