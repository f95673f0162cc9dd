"""
CreateFleet, type instant: choose pools, sell what they have, say which failed.

The choice is pure (``ranked``); ``Fleets`` adds what makes a fleet call safe to repeat: the
same ClientToken with the same parameters gives the first answer again, errors included.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from reprieve_cli.local.world.catalogue import instance_types
from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.instances import GONE, Instance, State, Template, tags_for
from reprieve_cli.local.world.market import ON_DEMAND, RESERVED, SPOT, Market, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

_SYSTEM_PREFIX = "aws:"
_FULL = (
    "ReservationCapacityExceeded",
    "The requested reservation does not have sufficient compatible and available capacity.",
)
_NO_SPOT = "There is no Spot capacity available that matches your request."
_OPTIONS = {
    SPOT: "SpotOptions",
    ON_DEMAND: "OnDemandOptions",
    RESERVED: "ReservedCapacityOptions",
}
_RESERVED_TARGET = "reserved-capacity"
_GANG = ("SingleAvailabilityZone", "SingleInstanceType")


class Ec2Facts(Protocol):
    """What a fleet needs to know of the account: templates and subnets live in ministack."""

    async def template(self, specification: dict[str, Any]) -> Template:
        """Find a launch template version; raise EC2's error if there is none."""

    async def zone_of(self, subnet_id: str) -> str | None:
        """Name the zone of a subnet; None if there is no such subnet."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One override of the request: a type in a place, under one launch template."""

    template: Template
    override: dict[str, Any]
    type: str
    zone: str
    subnet_id: str

    @property
    def weight(self) -> float:
        return float(self.override.get("WeightedCapacity", 1.0))

    def echo(self) -> dict[str, Any]:
        specification = {
            "LaunchTemplateId": self.template.template_id,
            "Version": self.template.version,
        }
        return {
            "LaunchTemplateSpecification": specification,
            "Overrides": {**self.override, "InstanceType": self.type},
        }


@dataclass(slots=True)
class _Sale:
    """The answer to one call while it is put together."""

    sold: list[tuple[Candidate, Pool]]
    errors: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Answer:
    digest: str
    future: asyncio.Future[dict[str, Any]]


class Quota:
    """The account's limit of vCPUs in one market, counted for each class of types by itself."""

    def __init__(self, limit: int | None, market: str, used: Counter[str]) -> None:
        self._limit = limit
        self._market = market
        self._used = used

    @classmethod
    def of(cls, limit: int | None, market: str, instances: list[Instance]) -> Quota:
        """Count every instance that isn't terminated: a dying one still takes its place."""
        used: Counter[str] = Counter()
        for one in instances:
            counts = (one.pool.market == SPOT) == (market == SPOT)  # the reserved are on-demand
            if counts and one.state not in {State.TERMINATED, State.STOPPED}:
                used[_class(one.pool.type)] += instance_types()[one.pool.type].vcpus
        return cls(limit, market, used)

    def allows(self, kind: str) -> bool:
        wanted = self._used[_class(kind)] + instance_types()[kind].vcpus
        return self._limit is None or wanted <= self._limit

    def take(self, kind: str) -> None:
        self._used[_class(kind)] += instance_types()[kind].vcpus

    def give_back(self, kind: str) -> None:
        self._used[_class(kind)] -= instance_types()[kind].vcpus

    def refusal(self) -> tuple[str, str]:
        """Return EC2's code and message."""
        if self._market == SPOT:
            return "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
        message = (
            f"You have requested more vCPU capacity than your current vCPU limit of {self._limit} "
            "allows for the instance bucket that the specified instance type belongs to."
        )
        return "VcpuLimitExceeded", message


def _class(kind: str) -> str:
    """Return the quota that *kind* counts against: P, or G and VT."""
    return "P" if kind.startswith("p") else "G and VT"


class Fleets:
    """Sells instances to fleet calls; *launch* brings a sold instance to life."""

    def __init__(
        self,
        *,
        market: Market,
        facts: Ec2Facts,
        launch: Callable[[Instance], None],
        instances: Callable[[], list[Instance]],
    ) -> None:
        self._market = market
        self._facts = facts
        self._launch = launch
        self._instances = instances
        self._answers: dict[str, _Answer] = {}
        self._launched: dict[str, list[Instance]] = {}

    async def create(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Answer CreateFleet; raise ``AwsError`` where EC2 refuses the whole call."""
        if parameters.get("Type", "maintain") != "instant":
            raise AwsError("InvalidParameterValue", "only fleets of type instant exist here")
        if parameters.get("DryRun"):
            raise AwsError("DryRunOperation", "Request would have succeeded", status=412)
        token = parameters.get("ClientToken")
        if token is None:
            return await self._sell(parameters)
        digest = _digest(parameters)
        known = self._answers.get(token)
        if known is not None:
            return await self._replay(token, known, digest)
        return await self._first(token, digest, parameters)

    async def _first(self, token: str, digest: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer = _Answer(digest, asyncio.get_running_loop().create_future())
        self._answers[token] = answer
        try:
            result = await self._sell(parameters)
        except BaseException:
            # A refused call sold nothing: the token is as good as new.
            del self._answers[token]
            answer.future.cancel()
            raise
        answer.future.set_result(result)
        return result

    async def _replay(self, token: str, known: _Answer, digest: str) -> dict[str, Any]:
        if known.digest != digest:
            raise AwsError(
                "IdempotentParameterMismatch",
                f"The client token {token} was used with other parameters",
            )
        result = await asyncio.shield(known.future)
        if any(instance.state in GONE for instance in self._launched[result["FleetId"]]):
            raise AwsError(
                "IdempotentInstanceTerminated",
                f"The instance launched under client token {token} has been terminated",
            )
        return result

    async def _sell(self, parameters: dict[str, Any]) -> dict[str, Any]:
        candidates = await self._candidates(parameters)
        fleet_id = f"fleet-{uuid.uuid4()}"
        launched: list[Instance] = []
        entries: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        for market, wanted in _targets(parameters["TargetCapacitySpecification"]).items():
            options = parameters.get(_OPTIONS[market], {})
            sale = self._fill(candidates, market=market, wanted=wanted, options=options)
            errors += sale.errors
            instances = [
                _instance(candidate, pool, fleet_id=fleet_id, parameters=parameters)
                for candidate, pool in sale.sold
            ]
            entries += _entries(sale.sold, instances)
            launched += instances
        self._launched[fleet_id] = launched
        for instance in launched:
            self._launch(instance)
        return {"FleetId": fleet_id, "Errors": errors, "Instances": entries}

    async def _candidates(self, parameters: dict[str, Any]) -> list[Candidate]:
        found: list[Candidate] = []
        for configuration in parameters.get("LaunchTemplateConfigs", []):
            template = await self._facts.template(configuration["LaunchTemplateSpecification"])
            overrides = configuration.get("Overrides") or [{}]
            found += [await self._candidate(template, override) for override in overrides]
        if not found:
            raise AwsError("MissingParameter", "The request must contain LaunchTemplateConfigs")
        _refuse_two_subnets_of_a_zone(found)
        return found

    async def _candidate(self, template: Template, override: dict[str, Any]) -> Candidate:
        kind = override.get("InstanceType") or template.data.get("InstanceType")
        if kind not in instance_types():
            raise AwsError("InvalidParameterValue", f"Invalid instance type: {kind}")
        subnet_id = override.get("SubnetId", "")
        zone = override.get("AvailabilityZone")
        if subnet_id:
            zone = await self._facts.zone_of(subnet_id)
            if zone is None:
                raise AwsError(
                    "InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist"
                )
        if zone is None:
            zone = min(zone for _, zone in self._market.on_demand)
        return Candidate(template, override, kind, zone, subnet_id)

    def _fill(
        self, candidates: list[Candidate], *, market: str, wanted: float, options: dict[str, Any]
    ) -> _Sale:
        pools = self._market.pools(market)
        sale = _Sale([], [])
        offered = []
        for candidate in candidates:
            pool = pools.get((candidate.type, candidate.zone))
            if market == RESERVED and (pool is None or not _may_use(pool, options)):
                sale.errors.append(_error(candidate, ON_DEMAND, *_FULL))
            elif pool is None:
                sale.errors.append(_error(candidate, market, *_unsupported(candidate)))
            else:
                offered.append((candidate, pool))
        strategy = options.get("AllocationStrategy", "lowest-price")
        order = ranked(offered, strategy=strategy, wanted=wanted)
        least = float(options.get("MinTargetCapacity", 0))
        quota = Quota.of(self._market.settings.quota(market), market, self._instances())
        for group in _groups(order, options):
            errors: list[dict[str, Any]] = []
            sold = _take(group, wanted=wanted, errors=errors, quota=quota)
            sale.errors += errors
            if sold and _weight(sold) >= least:
                sale.sold += sold
                return sale
            for candidate, pool in sold:
                pool.give_back()
                quota.give_back(candidate.type)
        return sale


def ranked(
    offered: list[tuple[Candidate, Pool]], *, strategy: str, wanted: float
) -> list[tuple[Candidate, Pool]]:
    """
    Order the pools as *strategy* would try them.

    price-capacity-optimized: the cheapest among the pools believed deep enough, then the
    shallow ones by depth. The belief may be wrong: a dry pool is found dry by trying.
    """

    def priority(pair: tuple[Candidate, Pool]) -> float:
        return float(pair[0].override.get("Priority", math.inf))

    match strategy:
        case "lowest-price":
            return sorted(offered, key=lambda pair: pair[1].price)
        case "prioritized":
            return sorted(offered, key=lambda pair: (priority(pair), pair[1].price))
        case "capacity-optimized":
            return sorted(offered, key=lambda pair: (-pair[1].depth, pair[1].price))
        case "capacity-optimized-prioritized":
            return sorted(offered, key=lambda pair: (priority(pair), -pair[1].depth))
        case "price-capacity-optimized":
            return sorted(offered, key=lambda pair: _price_and_depth(pair[1], wanted))
        case "diversified":
            return list(offered)
        case _:
            raise AwsError("InvalidParameterValue", f"Invalid allocation strategy: {strategy}")


def _price_and_depth(pool: Pool, wanted: float) -> tuple[bool, float, float]:
    shallow = pool.depth < wanted
    return shallow, -pool.depth if shallow else 0, pool.price


def _groups(
    order: list[tuple[Candidate, Pool]], options: dict[str, Any]
) -> list[list[tuple[Candidate, Pool]]]:
    """Split by what a gang must share (zone, type); without a gang there is one group."""
    groups: defaultdict[tuple[str, str], list[tuple[Candidate, Pool]]] = defaultdict(list)
    one_zone, one_type = (bool(options.get(name)) for name in _GANG)
    if options.get("MinTargetCapacity") and not (one_zone or one_type):
        raise AwsError("InvalidParameterCombination", f"MinTargetCapacity needs one of {_GANG}")
    for candidate, pool in order:
        key = (candidate.zone if one_zone else "", candidate.type if one_type else "")
        groups[key].append((candidate, pool))
    return list(groups.values())


def _take(
    group: list[tuple[Candidate, Pool]],
    *,
    wanted: float,
    errors: list[dict[str, Any]],
    quota: Quota,
) -> list[tuple[Candidate, Pool]]:
    sold: list[tuple[Candidate, Pool]] = []
    for candidate, pool in group:
        while _weight(sold) < wanted:
            if _too_dear(candidate, pool):
                message = "Your Spot request price is lower than the minimum required price."
                errors.append(_error(candidate, pool.market, "SpotMaxPriceTooLow", message))
                break
            if not quota.allows(candidate.type):
                errors.append(_error(candidate, pool.lifecycle, *quota.refusal()))
                break
            if not pool.take():
                errors.append(_error(candidate, pool.lifecycle, *_dry(candidate, pool.market)))
                break
            quota.take(candidate.type)
            sold.append((candidate, pool))
    return sold


def _weight(sold: list[tuple[Candidate, Pool]]) -> float:
    return sum(candidate.weight for candidate, _ in sold)


def _too_dear(candidate: Candidate, pool: Pool) -> bool:
    ceiling = candidate.override.get("MaxPrice")
    return pool.market == SPOT and ceiling is not None and float(ceiling) < pool.price


def _may_use(pool: Pool, options: dict[str, Any]) -> bool:
    """Tell whether the call's *options* let it take from the reservation behind *pool*."""
    target = options.get("CapacityReservationTarget", {})
    ids = target.get("CapacityReservationIds", [])
    named = not ids or pool.reservation in ids
    return named and pool.reservation_type in options.get("ReservationTypes", [])


def _dry(candidate: Candidate, market: str) -> tuple[str, str]:
    if market == RESERVED:
        return _FULL
    if market == SPOT:
        return "InsufficientInstanceCapacity", _NO_SPOT
    message = (
        f"We currently do not have sufficient {candidate.type} capacity in the Availability Zone "
        f"you requested ({candidate.zone})."
    )
    return "InsufficientInstanceCapacity", message


def _unsupported(candidate: Candidate) -> tuple[str, str]:
    message = (
        f"Your requested instance type ({candidate.type}) is not supported in your requested "
        f"Availability Zone ({candidate.zone})."
    )
    return "Unsupported", message


def _error(candidate: Candidate, market: str, code: str, message: str) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": candidate.echo(),
        "Lifecycle": market,
        "ErrorCode": code,
        "ErrorMessage": message,
    }


def _targets(specification: dict[str, Any]) -> dict[str, float]:
    """Split the target capacity by market; what is not named goes to the default market."""
    total = float(specification["TotalTargetCapacity"])
    default = specification.get("DefaultTargetCapacityType", SPOT)
    default = RESERVED if default == _RESERVED_TARGET else default
    targets = {
        ON_DEMAND: float(specification.get("OnDemandTargetCapacity", 0)),
        SPOT: float(specification.get("SpotTargetCapacity", 0)),
        RESERVED: 0.0,
    }
    if default not in targets:
        raise AwsError("InvalidParameterValue", f"no capacity of type {default} exists here")
    targets[default] += max(total - sum(targets.values()), 0)
    return {market: wanted for market, wanted in targets.items() if wanted > 0}


def _instance(
    candidate: Candidate, pool: Pool, *, fleet_id: str, parameters: dict[str, Any]
) -> Instance:
    template = candidate.template
    tags = {
        **template.tags(),
        **tags_for(parameters.get("TagSpecifications", []), "instance"),
        f"{_SYSTEM_PREFIX}ec2:fleet-id": fleet_id,
        f"{_SYSTEM_PREFIX}ec2launchtemplate:id": template.template_id,
        f"{_SYSTEM_PREFIX}ec2launchtemplate:version": template.version,
    }
    return Instance(pool, candidate.subnet_id, template, fleet_id, tags)


def _entries(sold: list[tuple[Candidate, Pool]], instances: list[Instance]) -> list[dict[str, Any]]:
    """Group what was sold by override, as the answer's Instances do."""
    entries: dict[int, dict[str, Any]] = {}
    for (candidate, pool), instance in zip(sold, instances, strict=True):
        entry = entries.setdefault(
            id(candidate),
            {
                "LaunchTemplateAndOverrides": candidate.echo(),
                "Lifecycle": pool.lifecycle,
                "InstanceIds": [],
                "InstanceType": candidate.type,
                "AvailabilityZone": candidate.zone,
                "SubnetId": candidate.subnet_id or None,
            },
        )
        entry["InstanceIds"].append(instance.instance_id)
    return list(entries.values())


def _refuse_two_subnets_of_a_zone(candidates: list[Candidate]) -> None:
    subnets: defaultdict[str, set[str]] = defaultdict(set)
    for candidate in candidates:
        subnets[candidate.zone].add(candidate.subnet_id)
    for zone, found in subnets.items():
        if len(found - {""}) > 1:
            raise AwsError(
                "InvalidFleetConfig", f"The fleet configuration names two subnets in {zone}"
            )


def _digest(parameters: dict[str, Any]) -> str:
    kept = {
        name: value for name, value in parameters.items() if name not in {"ClientToken", "DryRun"}
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()
