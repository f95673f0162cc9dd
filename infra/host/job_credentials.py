"""
Fetch credentials of the jobs' own role and leave them where only jobs can read them.

Run as root by a timer on hosts whose deployment names such a role. Jobs cannot reach the
metadata service; their SDK finds these through ``credential_process`` in their home and asks
again before they expire.
"""

from __future__ import annotations

import grp
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

LIFETIME_SECONDS = 3600  # the longest for a role that was assumed by a role


def fetch(sts: STSClient, role_arn: str) -> str:
    """Return what ``credential_process`` has to print."""
    answer = sts.assume_role(
        RoleArn=role_arn, RoleSessionName="reprieve-job", DurationSeconds=LIFETIME_SECONDS
    )
    credentials = answer["Credentials"]
    return json.dumps(
        {
            "Version": 1,
            "AccessKeyId": credentials["AccessKeyId"],
            "SecretAccessKey": credentials["SecretAccessKey"],
            "SessionToken": credentials["SessionToken"],
            "Expiration": credentials["Expiration"].isoformat(),
        }
    )


def store(text: str, target: Path, *, group_id: int) -> None:
    """Replace *target* at once; *group_id* may read it and nobody else but us."""
    draft = target.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchown(file.fileno(), -1, group_id)
        os.fchmod(file.fileno(), 0o640)
    draft.replace(target)


def main(target: str, group: str) -> None:
    """Fetch once."""
    text = fetch(boto3.client("sts"), os.environ["JOB_ROLE_ARN"])
    store(text, Path(target), group_id=grp.getgrnam(group).gr_gid)


if __name__ == "__main__":
    main(*sys.argv[1:])
