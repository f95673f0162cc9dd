"""Orders: the wish for a host for one attempt, and what became of each try to fill it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum

from reprieve.domain.host import CapacityPool, Market


class OrderState(StrEnum):
    """Only an OPEN order counts as supply on its way."""

    OPEN = "OPEN"
    LANDED = "LANDED"  # EC2 gave a host; the host now counts by itself
    NOT_NEEDED = "NOT_NEEDED"  # idle or booting hosts cover the demand
    UNFILLED = "UNFILLED"  # every tier said no; a later try is due


@dataclass(frozen=True, slots=True)
class Order:
    """The head row of (job, attempt to be hosted): notice, rebalance and requeue converge on it."""

    job: str
    attempt: int
    pool: str
    reason: str
    created_at: datetime
    updated_at: datetime
    state: OrderState = OrderState.OPEN
    try_n: int = 1
    tier: int = 0
    outcome: str = ""
    failures: int = 0
    needs_you: bool = False
    next_try_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """One line of a fleet request."""

    capacity: CapacityPool
    subnet: str


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A fleet request for one host, stored before it is sent and replayed word for word.

    Its hash is the ClientToken, so a redelivery gets the first call's answer and a
    changed request always carries another token.
    """

    stack: str
    job: str
    attempt: int
    try_n: int
    pool: str
    market: Market
    strategy: str
    launch_template: str
    launch_template_version: str
    overrides: tuple[Override, ...]

    def to_json(self) -> str:
        """Return the canonical text that is stored and hashed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what ``to_json`` wrote."""
        raw = json.loads(text)
        raw["market"] = Market(raw["market"])
        raw["overrides"] = tuple(
            Override(
                CapacityPool(
                    entry["capacity"]["type"],
                    entry["capacity"]["zone"],
                    Market(entry["capacity"]["market"]),
                ),
                entry["subnet"],
            )
            for entry in raw["overrides"]
        )
        return cls(**raw)

    @property
    def client_token(self) -> str:
        """64 characters, EC2's limit."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def tag(self) -> str:
        """Value of the instance tag ``reprieve:order``: finds what a lost answer launched."""
        return f"{self.job}#{self.attempt}#{self.try_n}"


@dataclass(frozen=True, slots=True)
class FleetError:
    """One entry of a fleet answer's ``Errors``, or the whole request's error."""

    code: str
    message: str = ""
    capacity: CapacityPool | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """One instance of a fleet answer."""

    instance_id: str
    capacity: CapacityPool


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """What EC2 gave and what it refused; both may be non-empty, and instances count first."""

    instances: tuple[Launched, ...] = ()
    errors: tuple[FleetError, ...] = ()

    def text(self) -> str:
        """Return one line for the timeline."""
        parts = [f"{i.capacity.type} in {i.capacity.zone}: {i.instance_id}" for i in self.instances]
        parts += [
            f"{e.capacity.type} in {e.capacity.zone}: {e.code}" if e.capacity else e.code
            for e in self.errors
        ]
        return "; ".join(parts) or "nothing"


class ErrorClass(StrEnum):
    """What an EC2 error code asks for."""

    CAPACITY = "capacity"  # other pools, then the next tier
    THROTTLE = "throttle"  # the same plan again, later
    LIMIT = "limit"  # a quota: the next tier has another one; after it, a person
    CONFIGURATION = "configuration"  # a person
    PERMISSION = "permission"  # a person
    OURS = "ours"  # our defect: never mistaken for missing capacity


# EC2 API reference, error codes; Karpenter's and ParallelCluster's lists agree.
ERROR_CLASSES: dict[str, ErrorClass] = {
    "InsufficientInstanceCapacity": ErrorClass.CAPACITY,
    "UnfulfillableCapacity": ErrorClass.CAPACITY,
    "InsufficientCapacity": ErrorClass.CAPACITY,
    "InsufficientCapacityOnHost": ErrorClass.CAPACITY,
    "InsufficientHostCapacity": ErrorClass.CAPACITY,
    "InsufficientReservedInstanceCapacity": ErrorClass.CAPACITY,
    "ReservationCapacityExceeded": ErrorClass.CAPACITY,
    "Unsupported": ErrorClass.CAPACITY,
    "InsufficientFreeAddressesInSubnet": ErrorClass.CAPACITY,
    "SpotMaxPriceTooLow": ErrorClass.CAPACITY,
    "MaxSpotInstanceCountExceeded": ErrorClass.LIMIT,
    "VcpuLimitExceeded": ErrorClass.LIMIT,
    "InstanceLimitExceeded": ErrorClass.LIMIT,
    "MaxFleetCountExceeded": ErrorClass.LIMIT,
    "RequestLimitExceeded": ErrorClass.THROTTLE,
    "Throttling": ErrorClass.THROTTLE,
    "ThrottlingException": ErrorClass.THROTTLE,
    "Unavailable": ErrorClass.THROTTLE,
    "InternalError": ErrorClass.THROTTLE,
    "InternalFailure": ErrorClass.THROTTLE,
    "ServiceUnavailable": ErrorClass.THROTTLE,
    "UnauthorizedOperation": ErrorClass.PERMISSION,
    "AccessDenied": ErrorClass.PERMISSION,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ErrorClass.PERMISSION,
    "IdempotentParameterMismatch": ErrorClass.OURS,
    "IdempotentInstanceTerminated": ErrorClass.CAPACITY,
}
CONFIGURATION_PREFIXES = ("Invalid", "Missing", "UnknownParameter", "Malformed")


def classify(code: str) -> ErrorClass:
    """Return the class of an EC2 error code; a code nobody knows is capacity, so it is bounded."""
    if code in ERROR_CLASSES:
        return ERROR_CLASSES[code]
    if code.startswith(CONFIGURATION_PREFIXES):
        return ErrorClass.CONFIGURATION
    return ErrorClass.CAPACITY


@dataclass(frozen=True, slots=True)
class Try:
    """One try's row: the stored plan and EC2's answer to it."""

    job: str
    attempt: int
    n: int
    plan: Plan
    at: datetime
    answer: FleetAnswer | None = None
