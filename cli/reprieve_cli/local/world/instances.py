"""Instances: what EC2 knows of a host, and how it describes and filters them."""

from __future__ import annotations

import base64
import datetime as dt
import fnmatch
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.market import ON_DEMAND, SPOT, Pool
from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    from collections.abc import Iterable


class State(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"


STATE_CODES = {
    State.PENDING: 0,
    State.RUNNING: 16,
    State.SHUTTING_DOWN: 32,
    State.TERMINATED: 48,
    State.STOPPING: 64,
    State.STOPPED: 80,
}
LIVE = frozenset({State.PENDING, State.RUNNING})
GONE = frozenset({State.SHUTTING_DOWN, State.TERMINATED})


@dataclass(frozen=True, slots=True)
class Template:
    """What a launch template version says; ``data`` is its LaunchTemplateData."""

    template_id: str
    version: str
    data: dict[str, Any]

    @property
    def user_data(self) -> str:
        return base64.b64decode(self.data.get("UserData", "")).decode()

    @property
    def terminates_on_shutdown(self) -> bool:
        return bool(self.data.get("InstanceInitiatedShutdownBehavior") == "terminate")

    @property
    def profile(self) -> str | None:
        """The instance profile, as its name or its ARN."""
        profile = self.data.get("IamInstanceProfile", {})
        found = profile.get("Arn") or profile.get("Name")
        return str(found) if found else None

    @property
    def shows_tags(self) -> bool:
        """Whether the metadata service serves the instance's tags; off unless asked for."""
        return bool(self.data.get("MetadataOptions", {}).get("InstanceMetadataTags") == "enabled")

    def tags(self, resource: str = "instance") -> dict[str, str]:
        return tags_for(self.data.get("TagSpecifications", []), resource)


def tags_for(specifications: list[dict[str, Any]], resource: str) -> dict[str, str]:
    """Collect the tags that *specifications* give to *resource*."""
    return {
        tag["Key"]: tag.get("Value", "")
        for specification in specifications
        if specification.get("ResourceType") == resource
        for tag in specification.get("Tags", [])
    }


@dataclass(slots=True)
class Instance:
    pool: Pool
    subnet_id: str
    template: Template
    fleet_id: str
    tags: dict[str, str]
    instance_id: str = field(default_factory=lambda: f"i-{secrets.token_hex(9)[:17]}")
    spot_request_id: str = field(default_factory=lambda: f"sir-{secrets.token_hex(4)}")
    private_ip: str = field(
        default_factory=lambda: f"10.0.{secrets.randbelow(250) + 1}.{secrets.randbelow(250) + 4}"
    )
    state: State = State.PENDING
    launched_at: dt.datetime = field(default_factory=now)
    running_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    state_reason: tuple[str, str] | None = None
    """Code and message, once it is gone."""
    spot_status: tuple[str, str] = ("active", "fulfilled")
    """State and status code of its spot request."""
    action: tuple[str | None, dt.datetime] | None = None
    """spot/instance-action of its metadata: what will happen, if it says so, and when."""
    rebalance_at: dt.datetime | None = None
    """When its metadata began to show a rebalance recommendation."""

    @property
    def is_spot(self) -> bool:
        return self.pool.market == SPOT

    @property
    def lifecycle(self) -> str:
        return self.pool.lifecycle

    @property
    def region(self) -> str:
        return self.pool.zone[:-1]

    def describe(self) -> dict[str, Any]:
        """Describe it as DescribeInstances does."""
        described: dict[str, Any] = {
            "InstanceId": self.instance_id,
            "ImageId": self.template.data.get("ImageId", "ami-00000000"),
            "InstanceType": self.pool.type,
            "State": {"Code": STATE_CODES[self.state], "Name": self.state.value},
            "LaunchTime": self.launched_at,
            "Placement": {"AvailabilityZone": self.pool.zone, "Tenancy": "default"},
            "SubnetId": self.subnet_id,
            "Architecture": "x86_64",
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())],
        }
        if self.state not in GONE:
            described["PrivateIpAddress"] = self.private_ip
        if self.template.profile:
            described["IamInstanceProfile"] = {"Arn": self.template.profile, "Id": "AIPAREPRIEVE"}
        if self.is_spot:
            described["InstanceLifecycle"] = SPOT
            described["SpotInstanceRequestId"] = self.spot_request_id
        elif self.lifecycle != ON_DEMAND:
            described["InstanceLifecycle"] = self.lifecycle
        if self.pool.reservation:
            described["CapacityReservationId"] = self.pool.reservation
        if self.state_reason:
            code, message = self.state_reason
            described["StateReason"] = {"Code": code, "Message": message}
            ended = (self.ended_at or now()).strftime("%Y-%m-%d %H:%M:%S GMT")
            described["StateTransitionReason"] = f"{message.partition(':')[0]} ({ended})"
        return described

    def summary(self, *, pid: int | None) -> dict[str, Any]:
        """Describe it for the control API."""
        return {
            "instance_id": self.instance_id,
            "type": self.pool.type,
            "zone": self.pool.zone,
            "market": self.pool.market,
            "state": self.state.value,
            "pid": pid,
            "launched_at": self.launched_at.isoformat(),
            "price": self.pool.price,
            "tags": dict(self.tags),
        }


def state_change(instance: Instance, previous: State) -> dict[str, Any]:
    """Describe a change of state as TerminateInstances does."""
    return {
        "InstanceId": instance.instance_id,
        "CurrentState": {"Code": STATE_CODES[instance.state], "Name": instance.state.value},
        "PreviousState": {"Code": STATE_CODES[previous], "Name": previous.value},
    }


def not_found(instance_ids: Iterable[str]) -> AwsError:
    """Word the error as EC2 does: one id or several, malformed or unknown."""
    ids = sorted(instance_ids)
    text = ", ".join(ids)
    if any(not found.startswith("i-") for found in ids):
        return AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{text}"')
    if len(ids) == 1:
        return AwsError("InvalidInstanceID.NotFound", f"The instance ID '{text}' does not exist")
    return AwsError("InvalidInstanceID.NotFound", f"The instance IDs '{text}' do not exist")


def matches(instance: Instance, filters: list[dict[str, Any]]) -> bool:
    """Tell whether *instance* passes every filter; an unknown filter is EC2's error."""
    return all(_passes(instance, one["Name"], one.get("Values", [])) for one in filters)


def _passes(instance: Instance, name: str, wanted: list[str]) -> bool:
    return any(like(value, pattern) for value in _values(instance, name) for pattern in wanted)


def _values(instance: Instance, name: str) -> list[str]:
    if name.startswith("tag:"):
        tag = instance.tags.get(name.removeprefix("tag:"))
        return [] if tag is None else [tag]
    if name == "tag-key":
        return list(instance.tags)
    own = _filters(instance)
    if name not in own:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return [value for value in (own[name],) if value]


def _filters(instance: Instance) -> dict[str, str | None]:
    """Map each filter to the value that *instance* has for it, if any."""
    return {
        "instance-state-name": instance.state.value,
        "instance-id": instance.instance_id,
        "instance-type": instance.pool.type,
        "availability-zone": instance.pool.zone,
        "subnet-id": instance.subnet_id,
        "instance-lifecycle": None if instance.lifecycle == ON_DEMAND else instance.lifecycle,
        "spot-instance-request-id": instance.spot_request_id if instance.is_spot else None,
        "capacity-reservation-id": instance.pool.reservation,
    }


def like(value: str, pattern: str) -> bool:
    """Match as EC2 filters do: ``*`` and ``?`` are wildcards, brackets are not."""
    return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))
