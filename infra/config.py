"""What a deployment may choose: one validated model, read from the CDK context ``reprieve``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

ENVIRONMENT_LIMIT = 4096  # bytes: Lambda's limit for all variables of one function together
OUTPUT_LIMIT = 1024  # characters: CloudFormation's limit for one stack output
ENVIRONMENT_RESERVE = 1024  # for the variables that don't grow with the configuration

# AWS's own image: Ubuntu 24.04 brings Python 3.12 (the agent needs 3.11; Amazon Linux 2023 has
# 3.9), the open NVIDIA driver serves every type from g4dn to p6, and the SSM agent is new enough
# for environment-variable parameters since early 2026.
DEFAULT_AMI_PARAMETER = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)

# 24 GB x 1: what one A10G or L4 holds also fits the larger cards of g6e and g7.
DEFAULT_TYPES = (
    "g5.xlarge",
    "g5.2xlarge",
    "g5.4xlarge",
    "g5.8xlarge",
    "g6.xlarge",
    "g6.2xlarge",
    "g6.4xlarge",
    "g6.8xlarge",
    "gr6.4xlarge",
    "gr6.8xlarge",
    "g6e.xlarge",
    "g6e.2xlarge",
)


class ConfigError(Exception):
    """The configuration is wrong; the message is one line: where, what, and what to do."""


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("name each one once")
    return values


InstanceType = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", examples=["g5.xlarge"])
]
Tier = Literal["spot", "on-demand"]


class _Model(BaseModel):
    """Immutable; a key that nobody knows is an error, because it is a misspelt one."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageConfig(_Model):
    """The machine image of a pool's hosts: Python >= 3.11, systemd, iptables, the SSM agent."""

    parameter: Annotated[str, Field(pattern=r"^/[\w./-]+$")] = DEFAULT_AMI_PARAMETER
    """Public or own SSM parameter, read at each deploy."""
    id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")] | None = None
    """Takes precedence over *parameter*."""
    root_device: Annotated[str, Field(pattern=r"^/dev/[a-z0-9]+$")] = "/dev/sda1"
    """Ubuntu's; Amazon Linux wants /dev/xvda. A wrong one adds a second, empty volume."""


class PoolConfig(_Model):
    """Hosts that can stand in for each other, and what they may cost together."""

    types: Annotated[tuple[InstanceType, ...], Field(min_length=1), AfterValidator(_unique)] = (
        DEFAULT_TYPES
    )
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1), AfterValidator(_unique)] = (
        "spot",
        "on-demand",
    )
    max_hosts: Annotated[int, Field(ge=1, le=1000)] = 2
    max_usd_per_hour: Annotated[float, Field(gt=0, le=100_000)] = 5.0
    on_demand_base: Annotated[int, Field(ge=0)] = 0
    buffer: Annotated[int, Field(ge=0)] = 0
    image: ImageConfig = ImageConfig()
    volume_gb: Annotated[int, Field(ge=30, le=16_384)] = 100
    volume_mib_per_second: Annotated[int, Field(ge=125, le=2000)] = 250

    @model_validator(mode="after")
    def _caps(self) -> Self:
        if self.on_demand_base > self.max_hosts:
            raise ValueError("on_demand_base exceeds max_hosts: raise max_hosts or lower the base")
        if self.on_demand_base and "on-demand" not in self.tiers:
            raise ValueError("on_demand_base needs the tier on-demand: add it to tiers")
        return self


class NetworkConfig(_Model):
    """A network of our own, or subnets of yours, one a zone."""

    vpc_id: Annotated[str, Field(pattern=r"^vpc-[0-9a-f]{8,17}$")] | None = None
    subnets: dict[
        Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")],
        Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")],
    ] = {}
    """Zone name to subnet id: EC2 refuses a fleet with two subnets of one zone."""
    zones: Annotated[int, Field(ge=1, le=6)] = 3
    """For a network of our own: how many of the region's zones; more zones, more Spot pools."""
    cidr: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+\.\d+/\d+$")] = "10.82.0.0/16"
    private: bool = False
    """Hosts without public addresses, reaching AWS through interface endpoints (priced)."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.vpc_id) != bool(self.subnets):
            raise ValueError("vpc_id and subnets come together: give both or neither")
        if self.vpc_id and self.private:
            raise ValueError("private shapes a network of our own: leave it out with vpc_id")
        return self


PoolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]


class Config(_Model):
    """Everything a deployment may choose. The defaults run one job on one small GPU."""

    pools: Annotated[dict[PoolName, PoolConfig], Field(min_length=1)] = {"gpu": PoolConfig()}
    network: NetworkConfig = NetworkConfig()
    notice_seconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """EC2's is 120; smaller only on the embedded cloud, where the world keeps the same clock."""
    alarm_email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    log_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365] = 30
    undo_days: Annotated[int, Field(ge=0, le=365)] = 1
    """How long S3 keeps what was overwritten or collected; 0 turns versioning off."""
    job_role_arn: Annotated[str, Field(pattern=r"^arn:aws[\w-]*:iam::\d{12}:role/.+$")] | None = (
        None
    )
    """A role of yours that hosts may assume for jobs; its trust policy must name the host role."""
    permissions_boundary_arn: (
        Annotated[str, Field(pattern=r"^arn:aws[\w-]*:iam::(\d{12}|aws):policy/.+$")] | None
    ) = None
    """Set on every role that the stack creates, for accounts that demand one."""
    tags: dict[str, Annotated[str, Field(max_length=256)]] = {}
    """Cost tags for everything the stack creates, hosts included."""

    @field_validator("tags")
    @classmethod
    def _tags(cls, tags: dict[str, str]) -> dict[str, str]:
        for key in tags:
            if key.lower().startswith(("aws:", "reprieve:")):
                raise ValueError(f"tag {key}: the prefix is taken, choose another")
        return tags

    @field_validator("pools")
    @classmethod
    def _one_name_each(cls, pools: dict[str, PoolConfig]) -> dict[str, PoolConfig]:
        names = {pascal(name) for name in pools}
        if len(names) != len(pools):
            raise ValueError("two pools share one name once dashes are dropped: rename one")
        return pools

    @model_validator(mode="after")
    def _fits_a_function(self) -> Self:
        size = ENVIRONMENT_RESERVE + len(compact(self.example_environment()))
        if size > ENVIRONMENT_LIMIT:
            raise ValueError(
                f"the pools and subnets need {size} bytes of a function's environment and Lambda "
                f"allows {ENVIRONMENT_LIMIT}: use fewer pools or fewer types in a pool"
            )
        for name, pool in self.pools.items():
            if len(compact(pool_entry(pool, name=name, **EXAMPLE_IDS))) > OUTPUT_LIMIT:
                raise ValueError(
                    f"pools.{name} needs a stack output of over {OUTPUT_LIMIT} characters, "
                    "CloudFormation's limit: use fewer types"
                )
        return self

    def example_environment(self) -> dict[str, Any]:
        """Return POOLS and SUBNETS with values as long as real ones."""
        zones = self.network.subnets or {
            f"ap-southeast-9{letter}": "subnet-0123456789abcdef0"
            for letter in "abcdef"[: self.network.zones]
        }
        return {
            "POOLS": {name: pool_entry(pool, **EXAMPLE_IDS) for name, pool in self.pools.items()},
            "SUBNETS": zones,
        }


EXAMPLE_IDS = {
    "launch_template": "lt-0123456789abcdef0",
    "launch_template_version": "1234",
    "work_queue_url": f"https://sqs.ap-southeast-9.amazonaws.com/123456789012/{'q' * 80}",
}


def pool_entry(
    pool: PoolConfig,
    *,
    launch_template: str,
    launch_template_version: str,
    work_queue_url: str,
    **first: str,
) -> dict[str, Any]:
    """Return one entry of POOLS, which is also a stack output (there with its name *first*)."""
    return first | {
        "types": list(pool.types),
        "tiers": list(pool.tiers),
        "max_hosts": pool.max_hosts,
        "max_usd_per_hour": pool.max_usd_per_hour,
        "on_demand_base": pool.on_demand_base,
        "buffer": pool.buffer,
        "launch_template": launch_template,
        "launch_template_version": launch_template_version,
        "work_queue_url": work_queue_url,
    }


def compact(value: Any) -> str:
    """Return *value* as JSON without a space: the environment is small."""
    return json.dumps(value, separators=(",", ":"))


def pascal(name: str) -> str:
    """Return ``a-pool`` as ``APool``, which CloudFormation takes as a logical id."""
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name))


def load(context: object, *, root: Path) -> Config:
    """
    Return the configuration that *context* (the value of ``reprieve`` in cdk.json) describes.

    Its key ``config`` may name a YAML or JSON file below *root*, whose keys the other keys
    of the context override. On the command line (``-c reprieve=…``) the value is JSON text.
    Raises ``ConfigError``.
    """
    raw = _mapping(context, where="context reprieve")
    file = raw.pop("config", None)
    if file is not None:
        raw = read_file(root / str(file)) | raw
    return load_mapping(raw)


def load_mapping(raw: Mapping[str, Any]) -> Config:
    """Return the configuration that *raw* describes. Raises ``ConfigError``."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(_one_line(error)) from error


def _mapping(value: object, *, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"{where}: not JSON ({error}): quote it for the shell") from error
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {value!r} is no object: give keys and values")
    return dict(value)


def read_file(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file. Raises ``ConfigError``."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" line {where.line + 1}" if where else ""
        raise ConfigError(
            f"config: {path}{line}: not YAML: {getattr(error, 'problem', error)}"
        ) from error
    return _mapping(raw, where=f"config: {path}")


def _one_line(error: ValidationError) -> str:
    """Say the first problem (key, value, what to do) and how many more there are."""
    problems = error.errors(include_url=False)
    first = problems[0]
    path = ".".join(str(part) for part in first["loc"] if part != "[key]") or "configuration"
    what = first["msg"].removeprefix("Value error, ")
    known = _known_keys(first["loc"]) if first["type"] == "extra_forbidden" else ""
    if known:
        what = f"no such key; known: {known}"
    value = "" if isinstance(first["input"], Mapping) else f" = {_short(first['input'])}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}{value}: {what}{more}"


def _known_keys(path: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Config
    match path:
        case ("pools", _, "image", _):
            model = ImageConfig
        case ("pools", _, _):
            model = PoolConfig
        case ("network", _):
            model = NetworkConfig
        case (_,):
            pass
        case _:
            return ""
    return ", ".join(model.model_fields)


def _short(value: object, *, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
