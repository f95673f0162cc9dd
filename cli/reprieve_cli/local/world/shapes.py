"""
Events as AWS sends them, field by field.

An interruption warning's ARN has the zone where the region belongs and no account: that is
what EC2 sends. None of them carries a deadline except where AWS says so.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any

from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    from reprieve_cli.local.world.instances import Instance


def second(moment: dt.datetime) -> str:
    """Write *moment* in whole seconds, rounded down, as EC2 does."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(
    detail_type: str,
    detail: dict[str, Any],
    *,
    source: str,
    account: str,
    region: str,
    resources: list[str],
) -> dict[str, Any]:
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": second(now()),
        "region": region,
        "resources": resources,
        "detail": detail,
    }


def interruption(instance: Instance, action: str | None, *, account: str) -> dict[str, Any]:
    return event(
        "EC2 Spot Instance Interruption Warning",
        {
            "instance-id": instance.instance_id,
            **({} if action is None else {"instance-action": action}),
        },
        source="aws.ec2",
        account=account,
        region=instance.region,
        resources=[f"arn:aws:ec2:{instance.pool.zone}:instance/{instance.instance_id}"],
    )


def reservation_interruption(
    instance: Instance, deadline: dt.datetime, *, account: str
) -> dict[str, Any]:
    """Describe the end of reserved capacity for one host: this one says when."""
    return event(
        "EC2 Capacity Reservation Instance Interruption Warning",
        {
            "instance-id": instance.instance_id,
            "instance-action": "terminate",
            "instance-termination-time": second(deadline),
            "availability-zone-id": zone_id(instance.pool.zone),
            "instance-lifecycle": instance.lifecycle,
        },
        source="aws.ec2",
        account=account,
        region=instance.region,
        resources=[_arn(instance, account)],
    )


def zone_id(zone: str) -> str:
    """Name a zone by its id, the same in every account (``use1-az1``)."""
    region, letter = zone[:-1], zone[-1]
    area, direction, number = region.split("-")
    return f"{area}{direction[0]}{number}-az{ord(letter) - ord('a') + 1}"


def rebalance(instance: Instance, *, account: str) -> dict[str, Any]:
    return event(
        "EC2 Instance Rebalance Recommendation",
        {"instance-id": instance.instance_id},
        source="aws.ec2",
        account=account,
        region=instance.region,
        resources=[_arn(instance, account)],
    )


def state_change(instance: Instance, *, account: str) -> dict[str, Any]:
    return event(
        "EC2 Instance State-change Notification",
        {"instance-id": instance.instance_id, "state": instance.state.value},
        source="aws.ec2",
        account=account,
        region=instance.region,
        resources=[_arn(instance, account)],
    )


def command_status(
    *,
    command_id: str,
    document: str,
    instance_id: str,
    status: str,
    requested: dt.datetime,
    account: str,
    region: str,
) -> dict[str, Any]:
    """Describe how a command ended on one host (EC2 Command Invocation …)."""
    return event(
        "EC2 Command Invocation Status-change Notification",
        {
            "command-id": command_id,
            "document-name": document,
            "instance-id": instance_id,
            "requested-date-time": second(requested),
            "status": status,
        },
        source="aws.ssm",
        account=account,
        region=region,
        resources=[f"arn:aws:ec2:{region}:{account}:instance/{instance_id}"],
    )


def _arn(instance: Instance, account: str) -> str:
    return f"arn:aws:ec2:{instance.region}:{account}:instance/{instance.instance_id}"
