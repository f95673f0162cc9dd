"""
One metadata service per host, version 2: a token first, then what the host may know.

A host that is under no notice gets 404 for it, as on EC2; without a token everything is 401.
Credentials are those of the instance profile's role, from ``sts:AssumeRole`` of ministack.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web
from botocore.exceptions import BotoCoreError, ClientError

from reprieve_cli.local.world import shapes
from reprieve_cli.local.world.instances import Instance
from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    from reprieve_cli.local.world.hosts import Hosts
    from reprieve_cli.local.world.upstream import Upstream

TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER = "X-aws-ec2-metadata-token"
_LONGEST_TTL = 21_600
_SESSION = dt.timedelta(hours=1)
_RENEW_BEFORE = dt.timedelta(minutes=15)
_ROLE_PATH = "iam/security-credentials/"
_TAGS_PATH = "tags/instance"


@dataclass(frozen=True, slots=True)
class _Credentials:
    document: dict[str, str]
    expires_at: dt.datetime


class Metadata:
    def __init__(self, *, hosts: Hosts, upstream: Upstream, account: str) -> None:
        self._hosts = hosts
        self._upstream = upstream
        self._account = account
        self._tokens: dict[tuple[str, str], float] = {}
        self._roles: dict[str, str] = {}
        self._credentials: dict[str, _Credentials] = {}

    async def answer(self, method: str, path: str, headers: Any, instance_id: str) -> web.Response:
        """Answer one request of host *instance_id*; *path* starts after its prefix."""
        if not self._hosts.owns(instance_id):
            return web.Response(status=404, text=f"no host {instance_id}")
        instance = self._hosts.get(instance_id)
        path = "/".join(part for part in path.split("/") if part)
        if path == "latest/api/token":
            return self._token(method, headers, instance_id)
        if self._tokens.get((instance_id, headers.get(TOKEN_HEADER, "")), 0) < time.monotonic():
            return web.Response(status=401, text="Unauthorized")
        if method not in {"GET", "HEAD"}:
            return web.Response(status=405)
        return await self._lookup(path, instance)

    def _token(self, method: str, headers: Any, instance_id: str) -> web.Response:
        if method != "PUT":
            return web.Response(status=405)
        if "X-Forwarded-For" in headers:
            return web.Response(status=403)
        try:
            seconds = int(headers.get(TTL_HEADER, ""))
        except ValueError:
            return web.Response(status=400, text="Missing or Invalid Parameters")
        if not 1 <= seconds <= _LONGEST_TTL:
            return web.Response(status=400, text="Missing or Invalid Parameters")
        token = secrets.token_urlsafe(40)
        self._tokens[instance_id, token] = time.monotonic() + seconds
        return web.Response(text=token, headers={TTL_HEADER: str(seconds)})

    async def _lookup(self, path: str, instance: Instance) -> web.Response:
        if path == "latest/user-data":
            return _text(instance.template.user_data)
        if path == "latest/dynamic/instance-identity/document":
            return _json(self._identity(instance))
        key = path.removeprefix("latest/meta-data").removeprefix("/")
        if not path.startswith("latest/meta-data"):
            return web.Response(status=404)
        if key.startswith(_ROLE_PATH.rstrip("/")) or key == "iam/info":
            return await self._iam(key, instance)
        if key.startswith(_TAGS_PATH):
            return _tags(instance, key.removeprefix(_TAGS_PATH).removeprefix("/"))
        return _text(_facts(instance).get(key))

    def _identity(self, instance: Instance) -> dict[str, Any]:
        return {
            "accountId": self._account,
            "architecture": "x86_64",
            "availabilityZone": instance.pool.zone,
            "imageId": instance.template.data.get("ImageId", "ami-00000000"),
            "instanceId": instance.instance_id,
            "instanceType": instance.pool.type,
            "pendingTime": shapes.second(instance.launched_at),
            "privateIp": instance.private_ip,
            "region": instance.region,
            "version": "2017-09-30",
        }

    # ------------------------------------------------------------------ credentials
    async def _iam(self, key: str, instance: Instance) -> web.Response:
        profile = instance.template.profile
        if profile is None:
            return web.Response(status=404)
        try:
            role_arn = await self._role(profile)
            role = role_arn.rpartition("/")[2]
            if key == "iam/info":
                arn = f"arn:aws:iam::{self._account}:instance-profile/{profile.rpartition('/')[2]}"
                return _json(
                    {
                        "Code": "Success",
                        "LastUpdated": shapes.second(now()),
                        "InstanceProfileArn": arn,
                        "InstanceProfileId": "AIPAREPRIEVE",
                    }
                )
            asked = key.removeprefix(_ROLE_PATH.rstrip("/")).removeprefix("/")
            if not asked:
                return _text(role)
            if asked != role:
                return web.Response(status=404)
            return _json(await self._session(role_arn, instance.instance_id))
        except (BotoCoreError, ClientError) as error:
            return web.Response(status=503, text=str(error))

    async def _role(self, profile: str) -> str:
        if profile not in self._roles:
            answer = await self._upstream.call(
                "iam", "get_instance_profile", InstanceProfileName=profile.rpartition("/")[2]
            )
            self._roles[profile] = answer["InstanceProfile"]["Roles"][0]["Arn"]
        return self._roles[profile]

    async def _session(self, role_arn: str, instance_id: str) -> dict[str, str]:
        known = self._credentials.get(instance_id)
        if known is not None and known.expires_at - now() > _RENEW_BEFORE:
            return known.document
        answer = await self._upstream.call(
            "sts",
            "assume_role",
            RoleArn=role_arn,
            RoleSessionName=instance_id,
            DurationSeconds=int(_SESSION.total_seconds()),
        )
        issued = answer["Credentials"]
        self._hosts.remember_key(issued["AccessKeyId"], instance_id)
        document = {
            "Code": "Success",
            "LastUpdated": shapes.second(now()),
            "Type": "AWS-HMAC",
            "AccessKeyId": issued["AccessKeyId"],
            "SecretAccessKey": issued["SecretAccessKey"],
            "Token": issued["SessionToken"],
            "Expiration": shapes.second(issued["Expiration"]),
        }
        self._credentials[instance_id] = _Credentials(document, issued["Expiration"])
        return document


def _facts(instance: Instance) -> dict[str, str]:
    """Map each path below meta-data to its text; what has no text now is not in it."""
    facts = {
        "instance-id": instance.instance_id,
        "instance-type": instance.pool.type,
        "instance-life-cycle": instance.lifecycle,
        "ami-id": instance.template.data.get("ImageId", "ami-00000000"),
        "local-ipv4": instance.private_ip,
        "placement/availability-zone": instance.pool.zone,
        "placement/availability-zone-id": shapes.zone_id(instance.pool.zone),
        "placement/region": instance.region,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
        "events/maintenance/scheduled": "[]",
    }
    if instance.action is not None:
        action, when = instance.action
        said = {} if action is None else {"action": action}
        facts["spot/instance-action"] = json.dumps({**said, "time": shapes.second(when)})
        if action == "terminate":
            facts["spot/termination-time"] = shapes.second(when)
    if instance.rebalance_at is not None:
        facts["events/recommendations/rebalance"] = json.dumps(
            {"noticeTime": shapes.second(instance.rebalance_at)}
        )
    return facts


def _tags(instance: Instance, name: str) -> web.Response:
    if not instance.template.shows_tags:
        return web.Response(status=404)
    own = {key: value for key, value in instance.tags.items() if not key.startswith("aws:")}
    return _text("\n".join(own)) if not name else _text(own.get(name))


def _text(text: str | None) -> web.Response:
    return web.Response(status=404, text="Not Found") if text is None else web.Response(text=text)


def _json(document: dict[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(document, indent=2))
