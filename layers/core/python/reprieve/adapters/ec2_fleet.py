"""EC2: instant fleets, and what became of their instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from reprieve.adapters.chunks import chunks
from reprieve.adapters.outcome import (
    NO_ANSWER,
    code_of,
    is_unknown,
    message_of,
    no_answer_is_unknown,
)
from reprieve.domain.catalogue import on_demand_usd
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Instance, InstanceState, Market
from reprieve.domain.order import ERROR_CLASSES, FleetAnswer, FleetError, Launched, Plan

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

FILTER_VALUES = 200  # EC2's limit on the values of one filter
STACK_TAG, POOL_TAG, ORDER_TAG = "reprieve:stack", "reprieve:pool", "reprieve:order"

TARGETS = {
    Market.SPOT: "spot",
    Market.ON_DEMAND: "on-demand",
    Market.RESERVED: "reserved-capacity",
}
RESERVATION_TYPES = frozenset(
    {"on-demand-capacity-reservation", "capacity-block", "interruptible-capacity-reservation"}
)

STATES = {
    "pending": InstanceState.ALIVE,
    "running": InstanceState.ALIVE,
    "stopping": InstanceState.ALIVE,
    "shutting-down": InstanceState.GONE,
    "terminated": InstanceState.GONE,
    "stopped": InstanceState.GONE,
}
ALIVE = [name for name, state in STATES.items() if state is InstanceState.ALIVE]

# Spot request status codes that EC2 sets at the moment it takes an instance back, while
# the instance itself still runs (EC2 user guide, "Spot request status").
RECLAIMED = ("marked-for-", "instance-terminated-", "instance-stopped-")
OURS = "-by-user"


class Ec2Fleet:
    """
    ``Fleet``.

    *connect* makes the client when it is first needed: it is the slowest to load.
    *zones* are those of the stack's subnets; on-demand prices hold in each of them.
    """

    def __init__(
        self, connect: Callable[[], EC2Client], *, stack: str, zones: Sequence[str]
    ) -> None:
        self._connect = connect
        self._stack = stack
        self._zones = zones

    def launch(self, plan: Plan) -> FleetAnswer:
        try:
            answer: Any = self._connect().create_fleet(**fleet_request(plan))
        except ClientError as error:
            # Of codes that have a class, also the throttles and EC2's own failures are an
            # answer: the class says when to replay the plan.
            if code_of(error) not in ERROR_CLASSES and is_unknown(error):
                raise UnknownOutcomeError(f"launch {plan.tag}: {code_of(error)}") from error
            return FleetAnswer(
                errors=(FleetError(code_of(error), message_of(error)),), refused=True
            )
        except NO_ANSWER as error:
            raise UnknownOutcomeError(f"launch {plan.tag}: {error}") from error
        return read_answer(answer, plan)

    def states(self, instance_ids: Iterable[str]) -> dict[str, InstanceState]:
        found: dict[str, InstanceState] = {}
        for chunk in chunks(list(instance_ids), FILTER_VALUES):
            found |= self._states(chunk)
        return found

    def ours(self) -> Sequence[Instance]:
        return [_instance(raw) for raw in self._ours()]

    def in_reservation(self, reservation_id: str) -> frozenset[str]:
        asked = {"Name": "capacity-reservation-id", "Values": [reservation_id]}
        return frozenset(
            raw["InstanceId"]
            for raw in self._ours(asked)
            if raw.get("CapacityReservationId") == reservation_id
        )

    def _ours(self, *more: Any) -> list[Any]:
        filters = [
            {"Name": f"tag:{STACK_TAG}", "Values": [self._stack]},
            {"Name": "instance-state-name", "Values": ALIVE},
            *more,
        ]
        try:
            return list(self._describe(filters))
        except ClientError as error:
            raise UnknownOutcomeError(f"list instances: {code_of(error)}") from error

    def launched_for(self, tag: str) -> Sequence[Instance]:
        filters = [
            {"Name": f"tag:{STACK_TAG}", "Values": [self._stack]},
            {"Name": f"tag:{ORDER_TAG}", "Values": [tag]},
            {"Name": "instance-state-name", "Values": ALIVE},
        ]
        try:
            return [_instance(raw) for raw in self._describe(filters)]
        except ClientError as error:
            raise UnknownOutcomeError(f"look for {tag}: {code_of(error)}") from error

    def marked(self, instance_ids: Iterable[str]) -> frozenset[str]:
        """Return those whose Spot request says that EC2 takes them back, page by page."""
        found: set[str] = set()
        for chunk in chunks(list(instance_ids), FILTER_VALUES):
            filters: Any = [{"Name": "instance-id", "Values": list(chunk)}]
            pages = self._connect().get_paginator("describe_spot_instance_requests")
            try:
                for page in pages.paginate(Filters=filters):
                    found |= {
                        request["InstanceId"]
                        for request in page["SpotInstanceRequests"]
                        if _reclaimed(request.get("Status", {}).get("Code", ""))
                    }
            except ClientError as error:
                # A right that is missing is told like an outage: a detector that is blind for
                # good must not look like one that sees nothing.
                raise UnknownOutcomeError(f"spot requests: {code_of(error)}") from error
            except NO_ANSWER as error:
                raise UnknownOutcomeError(f"spot requests: {error}") from error
        return frozenset(found)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Terminate; one id that EC2 doesn't know fails the whole call, so it is isolated."""
        if not instance_ids:
            return
        try:
            with no_answer_is_unknown("terminate"):
                self._connect().terminate_instances(InstanceIds=list(instance_ids))
        except ClientError as error:
            if not code_of(error).startswith("InvalidInstanceID"):
                raise
            if len(instance_ids) > 1:
                middle = len(instance_ids) // 2
                self.terminate(instance_ids[:middle])
                self.terminate(instance_ids[middle:])

    def usd_per_hour(self, types: Sequence[str], market: Market) -> dict[tuple[str, str], float]:
        if market is Market.SPOT:
            return self._spot_prices(types)
        return {
            (kind, zone): usd
            for kind in types
            if (usd := on_demand_usd(kind)) is not None
            for zone in self._zones
        }

    def _states(self, instance_ids: Sequence[str]) -> dict[str, InstanceState]:
        """Ask by filter: by id, one that EC2 doesn't know yet would fail the whole batch."""
        try:
            described = self._describe([{"Name": "instance-id", "Values": list(instance_ids)}])
            seen = {raw["InstanceId"]: _state(raw) for raw in described}
        except (ClientError, UnknownOutcomeError):
            return dict.fromkeys(instance_ids, InstanceState.UNKNOWN)
        return {i: seen.get(i, InstanceState.NOT_FOUND) for i in instance_ids}

    def _describe(self, filters: Any) -> Iterator[Any]:
        pages = self._connect().get_paginator("describe_instances").paginate(Filters=filters)
        with no_answer_is_unknown("describe instances"):
            for page in pages:
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]

    def _spot_prices(self, types: Sequence[str]) -> dict[tuple[str, str], float]:
        latest: dict[tuple[str, str], tuple[datetime, float]] = {}
        kinds: Any = list(types)
        pages = self._connect().get_paginator("describe_spot_price_history")
        try:
            for page in pages.paginate(
                InstanceTypes=kinds,
                ProductDescriptions=["Linux/UNIX"],
                StartTime=datetime.now(UTC),  # EC2 answers with the price in force then
            ):
                for entry in page["SpotPriceHistory"]:
                    pool = (str(entry["InstanceType"]), entry["AvailabilityZone"])
                    quote = (entry["Timestamp"], float(entry["SpotPrice"]))
                    latest[pool] = max(latest.get(pool, quote), quote)
        except (ClientError, *NO_ANSWER):
            return {}
        return {pool: price for pool, (_, price) in latest.items()}


def fleet_request(plan: Plan) -> dict[str, Any]:
    """Return the CreateFleet request that *plan* stands for: the same plan, the same words."""
    tags = [
        {"Key": STACK_TAG, "Value": plan.stack},
        {"Key": POOL_TAG, "Value": plan.pool},
        {"Key": ORDER_TAG, "Value": plan.tag},
    ]
    return {
        "ClientToken": plan.client_token,
        "Type": "instant",
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": len(plan.members),
            "DefaultTargetCapacityType": TARGETS[plan.market],
        },
        **_options(plan),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": plan.launch_template,
                    "Version": plan.launch_template_version,
                },
                "Overrides": _overrides(plan),
            }
        ],
        "TagSpecifications": [
            {"ResourceType": resource, "Tags": tags} for resource in ("fleet", "instance", "volume")
        ],
    }


def _options(plan: Plan) -> dict[str, Any]:
    """Return how EC2 is to choose; never a maximum price, which would raise interruptions."""
    match plan.market:
        case Market.SPOT:
            return {"SpotOptions": {"AllocationStrategy": plan.strategy}}
        case Market.ON_DEMAND:
            return {"OnDemandOptions": {"AllocationStrategy": plan.strategy}}
        case Market.RESERVED:
            return {"ReservedCapacityOptions": _reserved(plan)}


def _reserved(plan: Plan) -> dict[str, Any]:
    """Return which reservations may be used; without a fallback, since tiers are ours."""
    kinds = [name for name in plan.reservations if name in RESERVATION_TYPES]
    groups = [name for name in plan.reservations if name.startswith("arn:")]
    ids = [name for name in plan.reservations if name not in {*kinds, *groups}]
    target = {"CapacityReservationResourceGroupArns": groups} if groups else {}
    target |= {"CapacityReservationIds": ids} if ids else {}
    return {
        "AllocationStrategy": plan.strategy,
        "ReservationTypes": kinds,
        "CapacityReservationTarget": target,
    }


def _overrides(plan: Plan) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"InstanceType": override.capacity.type, "SubnetId": override.subnet}
        for override in plan.overrides
    ]
    if plan.market is Market.RESERVED:  # its one strategy wants to be told an order
        return [line | {"Priority": float(n)} for n, line in enumerate(lines)]
    return lines


def read_answer(answer: Mapping[str, Any], plan: Plan) -> FleetAnswer:
    """Return what EC2 gave and refused; its overrides name subnets, the plan knows their zones."""
    return FleetAnswer(
        instances=tuple(
            Launched(instance_id, _capacity(entry, plan) or plan.overrides[0].capacity)
            for entry in answer.get("Instances", [])
            for instance_id in entry.get("InstanceIds", [])
        ),
        errors=tuple(
            FleetError(
                entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""), _capacity(entry, plan)
            )
            for entry in answer.get("Errors", [])
        ),
    )


def _capacity(entry: Mapping[str, Any], plan: Plan) -> CapacityPool | None:
    """Return the pool that *entry* is about: EC2 echoes the override, lately also the zone."""
    override = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    kind = entry.get("InstanceType") or override.get("InstanceType")
    subnet = entry.get("SubnetId") or override.get("SubnetId")
    zones = {line.subnet: line.capacity.zone for line in plan.overrides}
    zone = zones.get(subnet) or entry.get("AvailabilityZone") or override.get("AvailabilityZone")
    return CapacityPool(kind, zone, plan.market) if kind and zone else None


def _instance(raw: Mapping[str, Any]) -> Instance:
    return Instance(
        instance_id=raw["InstanceId"],
        type=raw["InstanceType"],
        zone=raw["Placement"]["AvailabilityZone"],
        market=_market(raw),
        state=_state(raw),
        launched_at=raw["LaunchTime"],
        tags={tag["Key"]: tag["Value"] for tag in raw.get("Tags", [])},
    )


def _market(raw: Mapping[str, Any]) -> Market:
    if raw.get("InstanceLifecycle") == "spot":
        return Market.SPOT
    return Market.RESERVED if raw.get("CapacityReservationId") else Market.ON_DEMAND


def _state(raw: Mapping[str, Any]) -> InstanceState:
    return STATES.get(raw["State"]["Name"], InstanceState.UNKNOWN)


def _reclaimed(code: str) -> bool:
    return code.startswith(RECLAIMED) and not code.endswith(OURS)
