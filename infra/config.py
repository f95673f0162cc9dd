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

from reprieve.domain.capacity import Strategy, Tier
from reprieve.domain.catalogue import GPU_CLASSES, excluded
from reprieve.domain.economics.switches import Policy

ENVIRONMENT_LIMIT = 4096  # bytes: Lambda's limit for all variables of one function together
OUTPUT_LIMIT = 1024  # characters: CloudFormation's limit for one stack output
ENVIRONMENT_RESERVE = 1024  # for the variables that don't grow with the configuration

# AWS's own image: Ubuntu 24.04 brings Python 3.12 (the agent needs 3.11; Amazon Linux 2023 has
# 3.9), the open NVIDIA driver serves every type from g4dn to p6, and the SSM agent is new enough
# for environment-variable parameters since early 2026.
DEFAULT_AMI_PARAMETER = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)

DEFAULT_GPU = "24GBx1"  # what one A10G or L4 holds also fits the larger cards of g6e and g7


class ConfigError(Exception):
    """The configuration is wrong; the message is one line: where, what, and what to do."""


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("name each one once")
    return values


def _runs_here(kind: str) -> str:
    why = excluded(kind)
    if why:
        raise ValueError(f"hosts of this type can't run here: {why}")
    return kind


def _gpu_class(name: str) -> str:
    if name not in GPU_CLASSES:
        raise ValueError(f"no such class of GPU hosts; known: {', '.join(GPU_CLASSES)}")
    return name


InstanceType = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", examples=["g5.xlarge"]),
    AfterValidator(_runs_here),
]
Reservation = Annotated[
    str,
    Field(pattern=r"^(cr-[0-9a-f]{8,17}|arn:aws[\w-]*:resource-groups:[\w-]+:\d{12}:group/\S+)$"),
]
ReservationType = Literal[
    "on-demand-capacity-reservation", "capacity-block", "interruptible-capacity-reservation"
]


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

    gpu: Annotated[str, AfterValidator(_gpu_class)] | None = None
    """A class of GPU hosts by name, as 24GBx1; instead of *types*, and the default."""
    types: Annotated[tuple[InstanceType, ...], Field(min_length=1), AfterValidator(_unique)] = (
        GPU_CLASSES[DEFAULT_GPU]
    )
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1), AfterValidator(_unique)] = (
        Tier.SPOT,
        Tier.ON_DEMAND,
    )
    strategy: Strategy = Strategy.PRICE_CAPACITY
    """Among Spot pools; capacity-optimized for jobs that are costly to restart."""
    reservations: Annotated[tuple[Reservation, ...], AfterValidator(_unique)] = ()
    """Capacity reservations for the tier reserved: ids, or one resource group of them."""
    reservation_types: Annotated[
        tuple[ReservationType, ...], Field(min_length=1), AfterValidator(_unique)
    ] = ("on-demand-capacity-reservation",)
    spares_per_hour: Annotated[int, Field(ge=0, le=100)] = 0
    """So many hosts an hour may be launched on advice alone; 0: none, which is cheaper."""
    off: Annotated[tuple[Policy, ...], AfterValidator(_unique)] = ()
    """Policies of money and time that this pool does without: see docs/economics.md."""
    max_hosts: Annotated[int, Field(ge=1, le=1000)] = 2
    max_usd_per_hour: Annotated[float, Field(gt=0, le=100_000)] = 5.0
    on_demand_base: Annotated[int, Field(ge=0)] = 0
    buffer: Annotated[int, Field(ge=0)] = 0
    image: ImageConfig = ImageConfig()
    volume_gb: Annotated[int, Field(ge=30, le=16_384)] = 100
    volume_mib_per_second: Annotated[int, Field(ge=125, le=2000)] = 250

    @model_validator(mode="before")
    @classmethod
    def _types_of_the_class(cls, raw: Any) -> Any:
        """Put the class's types in place of its name."""
        if not isinstance(raw, Mapping) or raw.get("gpu") is None:
            return raw
        if "types" in raw:
            raise ValueError("gpu and types say the same thing: give one of them")
        types = GPU_CLASSES.get(str(raw["gpu"]))
        return {**raw, "types": types} if types else raw

    @model_validator(mode="after")
    def _reserved(self) -> Self:
        if (Tier.RESERVED in self.tiers) != bool(self.reservations):
            raise ValueError("reservations and the tier reserved come together: give both")
        groups = [name for name in self.reservations if name.startswith("arn:")]
        if groups and len(self.reservations) > 1:
            raise ValueError("reservations takes ids or one resource group, not both")
        return self

    @model_validator(mode="after")
    def _caps(self) -> Self:
        if self.on_demand_base > self.max_hosts:
            raise ValueError("on_demand_base exceeds max_hosts: raise max_hosts or lower the base")
        if self.on_demand_base and Tier.ON_DEMAND not in self.tiers:
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
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3
    """The newest so many of a job's lineage; with 1 a damaged one leaves nothing to go back to."""
    keep_every_steps: Annotated[int, Field(ge=0)] = 0
    """Of every so many steps the first checkpoint stays, too; 0 keeps none but the newest."""
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
    """
    Return one entry of POOLS, which is also a stack output (there with its name *first*).

    What is rarely chosen is only said when it was: the environment is small.
    """
    rarely: dict[str, Any] = {}
    if pool.strategy is not Strategy.PRICE_CAPACITY:
        rarely["strategy"] = pool.strategy.value
    if pool.reservations:
        rarely["reservations"] = list(pool.reservations)
        rarely["reservation_types"] = list(pool.reservation_types)
    if pool.spares_per_hour:
        rarely["spares_per_hour"] = pool.spares_per_hour
    if pool.off:
        rarely["off"] = [policy.value for policy in pool.off]
    return first | {
        "types": list(pool.types),
        "tiers": [tier.value for tier in pool.tiers],
        "max_hosts": pool.max_hosts,
        "max_usd_per_hour": pool.max_usd_per_hour,
        "on_demand_base": pool.on_demand_base,
        "buffer": pool.buffer,
        "launch_template": launch_template,
        "launch_template_version": launch_template_version,
        "work_queue_url": work_queue_url,
        **rarely,
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
