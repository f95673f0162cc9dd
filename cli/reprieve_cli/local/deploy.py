"""
Deploy a cloud assembly to the embedded cloud with boto3 alone: no Node, no CDK CLI.

It does what ``cdk deploy`` does: assets into the bootstrap bucket, a change set, its
execution. Deploying again updates the stack.
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from reprieve_cli.local.aws import client

if TYPE_CHECKING:
    from reprieve_cli.local.cloud import Cloud

BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
_VERSION = "30"
_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
_NO_CHANGES = "didn't contain changes"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold: the same content, the same zip
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 120.0


class DeployError(Exception):
    """The stack can't be deployed: one line with CloudFormation's first reason."""


def deploy(cloud: Cloud, assembly: Path, stack: str) -> dict[str, str]:
    """Deploy *stack* of *assembly* and return its outputs; raise ``DeployError``."""
    assets = json.loads((assembly / f"{stack}.assets.json").read_text(encoding="utf-8"))
    bucket = f"cdk-hnb659fds-assets-{cloud.account}-{cloud.region}"
    _bootstrap(cloud, bucket)
    s3 = client(cloud, "s3")
    for digest, file in assets["files"].items():
        if file["source"].get("packaging") == "zip":
            source = assembly / file["source"]["path"]
            s3.put_object(Bucket=bucket, Key=f"{digest}.zip", Body=zipped(source))
    body = (assembly / f"{stack}.template.json").read_bytes()
    s3.put_object(Bucket=bucket, Key=f"{stack}.json", Body=body)
    url = f"{cloud.endpoint}/{bucket}/{stack}.json"
    try:
        return _change(client(cloud, "cloudformation"), stack, url)
    except ClientError as error:
        raise DeployError(f"{stack} can't be deployed: {error}") from error


def destroy(cloud: Cloud, stack: str) -> None:
    """Delete *stack*; fine if there is none."""
    cloudformation = client(cloud, "cloudformation")
    cloudformation.delete_stack(StackName=stack)
    _until(cloudformation, stack, {"DELETE_COMPLETE", "ABSENT"})


def _bootstrap(cloud: Cloud, bucket: str) -> None:
    """Make what ``cdk bootstrap`` makes, as far as a deployment needs it."""
    client(cloud, "s3").create_bucket(Bucket=bucket)
    client(cloud, "ssm").put_parameter(
        Name=BOOTSTRAP_VERSION, Value=_VERSION, Type="String", Overwrite=True
    )


def _change(cloudformation: Any, stack: str, url: str) -> dict[str, str]:
    status = _status(cloudformation, stack)
    name = f"reprieve-{time.time_ns()}"
    cloudformation.create_change_set(
        StackName=stack,
        ChangeSetName=name,
        ChangeSetType="CREATE" if status == "ABSENT" else "UPDATE",
        TemplateURL=url,
        Capabilities=_CAPABILITIES,
    )
    described = _described(cloudformation, stack, name)
    if described["Status"] == "FAILED":
        if _NO_CHANGES in described.get("StatusReason", ""):
            return _outputs(cloudformation, stack)
        raise DeployError(f"{stack} can't be deployed: {described.get('StatusReason')}")
    cloudformation.execute_change_set(StackName=stack, ChangeSetName=name)
    final = _until(cloudformation, stack, {"CREATE_COMPLETE", "UPDATE_COMPLETE"})
    if final not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
        raise DeployError(f"{stack} is {final}: {_first_reason(cloudformation, stack)}")
    return _outputs(cloudformation, stack)


def _described(cloudformation: Any, stack: str, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        answer: dict[str, Any] = cloudformation.describe_change_set(
            StackName=stack, ChangeSetName=name
        )
        if not answer["Status"].endswith(("PENDING", "IN_PROGRESS")):
            return answer
        if time.monotonic() > deadline:
            raise DeployError(f"{stack}: the change set is still {answer['Status']}")
        time.sleep(_POLL_SECONDS)


def _until(cloudformation: Any, stack: str, wanted: set[str]) -> str:
    """Wait until the stack stops moving, and return its status."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        status = _status(cloudformation, stack)
        if status in wanted or not status.endswith("IN_PROGRESS"):
            return status
        if time.monotonic() > deadline:
            raise DeployError(f"{stack} is still {status} after {_LIMIT_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)


def _status(cloudformation: Any, stack: str) -> str:
    try:
        found = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return "ABSENT"
        raise
    status = str(found[0]["StackStatus"])
    return "ABSENT" if status in {"DELETE_COMPLETE", "REVIEW_IN_PROGRESS"} else status


def _outputs(cloudformation: Any, stack: str) -> dict[str, str]:
    (found,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}


def _first_reason(cloudformation: Any, stack: str) -> str:
    events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    failed = [one for one in events if one["ResourceStatus"].endswith("_FAILED")]
    if not failed:
        return "no resource failed"
    first = failed[-1]  # the newest comes first
    return f"{first['LogicalResourceId']}: {first.get('ResourceStatusReason', 'no reason given')}"


def zipped(folder: Path) -> bytes:
    """Zip *folder*'s content; the same content gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(_files(folder)):
            entry = zipfile.ZipInfo(str(path.relative_to(folder)), _EPOCH)
            entry.external_attr = (path.stat().st_mode & 0xFFFF) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=1)
    return buffer.getvalue()


def _files(folder: Path) -> list[Path]:
    return [Path(directory, name) for directory, _, names in os.walk(folder) for name in names]
