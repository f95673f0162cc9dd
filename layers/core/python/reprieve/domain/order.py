"""Orders: the wish for a host for one attempt, and what became of each try to fill it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from reprieve.domain.host import CapacityPool, Market
from reprieve.domain.needs import NOTHING, Needs

if TYPE_CHECKING:
    from reprieve.domain.job import Job


class OrderState(StrEnum):
    """Only an OPEN order counts as supply on its way."""

    OPEN = "OPEN"
    LANDED = "LANDED"  # EC2 gave a host; the host now counts by itself
    NOT_NEEDED = "NOT_NEEDED"  # idle or booting hosts cover the demand
    UNFILLED = "UNFILLED"  # every tier said no; a later try is due


@dataclass(frozen=True, slots=True)
class Order:
    """
    The head row of (job, attempt to be hosted): notice, rebalance and requeue converge on it.

    ``at_risk`` is how many steps the job had run beyond its last durable one when this was
    ordered: when hosts are short, who stands to lose most comes first. A ``spare`` is
    wanted before anybody needs it, on advice. A ``switch`` is a Spot host that shall relieve
    an on-demand one whose job has time again. ``waited_for_quota``: EC2 refused a Spot host
    for want of quota, and the next refusal won't be waited out.
    """

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
    needs: Needs = NOTHING
    at_risk: int = 0
    spare: bool = False
    waited_for_quota: bool = False
    switch: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return its name in the table."""
        return self.job, self.attempt

    @property
    def member(self) -> Member:
        """Return its current try, as a plan names it."""
        return Member(self.job, self.attempt, self.try_n)

    def reopened(self, *, now: datetime) -> Order:
        """Return the order at its next try, all tiers ahead of it again."""
        return replace(
            self,
            state=OrderState.OPEN,
            try_n=self.try_n + 1,
            tier=0,
            outcome="",
            next_try_at=None,
            updated_at=now,
        )


def order_for(
    job: Job,
    attempt: int,
    *,
    reason: str,
    now: datetime,
    at_risk: int = 0,
    spare: bool = False,
    switch: bool = False,
) -> Order:
    """Return a new order for a host for *attempt* of *job*."""
    return Order(
        job=job.id,
        attempt=attempt,
        pool=job.pool,
        reason=reason,
        created_at=now,
        updated_at=now,
        needs=job.spec.needs,
        at_risk=at_risk,
        spare=spare,
        switch=switch,
    )


@dataclass(frozen=True, slots=True)
class Member:
    """One order's try, as one of those that a plan is for."""

    job: str
    attempt: int
    try_n: int

    def __str__(self) -> str:
        """Return the value of the instance tag ``reprieve:order``."""
        return f"{self.job}#{self.attempt}#{self.try_n}"


@dataclass(frozen=True, slots=True)
class Override:
    """One line of a fleet request."""

    capacity: CapacityPool
    subnet: str


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A fleet request for one host or several alike, stored before it is sent, replayed verbatim.

    Its hash is the ClientToken, so a redelivery gets the first call's answer and a
    changed request always carries another token. In a mass reclaim like orders share one
    plan: *followers* are the others', the first in line first, and each of their tries
    keeps this same plan. Whoever replays it lands all of them: the answer's instances go
    to its members in this order.
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
    followers: tuple[Member, ...] = ()
    reservations: tuple[str, ...] = ()

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
        raw["followers"] = tuple(Member(**entry) for entry in raw.get("followers", ()))
        raw["reservations"] = tuple(raw.get("reservations", ()))
        return cls(**raw)

    @property
    def members(self) -> tuple[Member, ...]:
        """Return all whom it is for, who is served first coming first."""
        return Member(self.job, self.attempt, self.try_n), *self.followers

    @property
    def client_token(self) -> str:
        """64 characters, EC2's limit."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @property
    def tag(self) -> str:
        """Value of the instance tag ``reprieve:order``: finds what a lost answer launched."""
        return str(self.members[0])


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
    """
    What EC2 gave and what it refused; both may be non-empty, and instances count first.

    *refused*: it took no such request at all, so its client token is as good as new. An
    answer without an instance that isn't one is expected to be repeated under its token.
    """

    instances: tuple[Launched, ...] = ()
    errors: tuple[FleetError, ...] = ()
    refused: bool = False

    def text(self) -> str:
        """Return one line for the timeline."""
        parts = [f"{i.capacity.type} in {i.capacity.zone}: {i.instance_id}" for i in self.instances]
        parts += [
            f"{e.capacity.type} in {e.capacity.zone}: {e.code}" if e.capacity else e.code
            for e in self.errors
        ]
        return "; ".join(parts) or "nothing"


class ErrorClass(StrEnum):
    """What an EC2 error code is about; each class has one action."""

    CAPACITY = "capacity"  # the pool is dry
    PLACE = "place"  # that type isn't sold in that zone
    SUBNET = "subnet"  # no free address in it
    PRICE = "price"  # our ceiling is below the market's; we never send one
    SPOT_LIMIT = "Spot quota"
    LIMIT = "quota"
    ENDED = "ended"  # what this try launched has lived and died
    THROTTLE = "throttle"  # also EC2's own failures
    CONFIGURATION = "configuration"
    PERMISSION = "permission"
    OURS = "our defect"  # never mistaken for missing capacity


class Action(StrEnum):
    """What is done about it."""

    ASK_OTHERS = "leave the capacity pool out for minutes; then the next tier"
    ASK_ELSEWHERE = "leave that type in that zone out for hours; then the next tier"
    DROP_SUBNET = "leave the whole zone out for half an hour, and tell a person"
    NEXT_TIER = "ask the next tier"
    WAIT_FOR_QUOTA = "once more when the old host is gone; then on demand"
    OTHER_QUOTA = "ask the next market; then park, and tell a person"
    TRY_AGAIN = "another try of the same tier"
    REPLAY = "the same plan again, later"
    ONCE_MORE = "the same plan once more, for what spreads slowly; then a person"
    ASK_A_PERSON = "park until a person has seen to it"
    LOOK_FIRST = "look by tag for what was launched; only then another try, and tell a person"


ACTIONS: dict[ErrorClass, Action] = {
    ErrorClass.CAPACITY: Action.ASK_OTHERS,
    ErrorClass.PLACE: Action.ASK_ELSEWHERE,
    ErrorClass.SUBNET: Action.DROP_SUBNET,
    ErrorClass.PRICE: Action.NEXT_TIER,
    ErrorClass.SPOT_LIMIT: Action.WAIT_FOR_QUOTA,
    ErrorClass.LIMIT: Action.OTHER_QUOTA,
    ErrorClass.ENDED: Action.TRY_AGAIN,
    ErrorClass.THROTTLE: Action.REPLAY,
    ErrorClass.CONFIGURATION: Action.ONCE_MORE,
    ErrorClass.PERMISSION: Action.ASK_A_PERSON,
    ErrorClass.OURS: Action.LOOK_FIRST,
}

# EC2 API reference, error codes; Karpenter's and ParallelCluster's lists agree.
ERROR_CLASSES: dict[str, ErrorClass] = {
    "InsufficientInstanceCapacity": ErrorClass.CAPACITY,
    "UnfulfillableCapacity": ErrorClass.CAPACITY,
    "InsufficientCapacity": ErrorClass.CAPACITY,
    "InsufficientCapacityOnHost": ErrorClass.CAPACITY,
    "InsufficientHostCapacity": ErrorClass.CAPACITY,
    "InsufficientReservedInstanceCapacity": ErrorClass.CAPACITY,
    "ReservationCapacityExceeded": ErrorClass.CAPACITY,
    "Unsupported": ErrorClass.PLACE,
    "UnsupportedHostConfiguration": ErrorClass.PLACE,
    "InsufficientFreeAddressesInSubnet": ErrorClass.SUBNET,
    "SpotMaxPriceTooLow": ErrorClass.PRICE,
    "MaxSpotInstanceCountExceeded": ErrorClass.SPOT_LIMIT,
    "VcpuLimitExceeded": ErrorClass.LIMIT,
    "InstanceLimitExceeded": ErrorClass.LIMIT,
    "MaxFleetCountExceeded": ErrorClass.LIMIT,
    "VolumeLimitExceeded": ErrorClass.LIMIT,
    "PendingVerification": ErrorClass.LIMIT,
    "IdempotentInstanceTerminated": ErrorClass.ENDED,
    "RequestLimitExceeded": ErrorClass.THROTTLE,
    "Throttling": ErrorClass.THROTTLE,
    "ThrottlingException": ErrorClass.THROTTLE,
    "Unavailable": ErrorClass.THROTTLE,
    "InternalError": ErrorClass.THROTTLE,
    "InternalFailure": ErrorClass.THROTTLE,
    "ServiceUnavailable": ErrorClass.THROTTLE,
    "InvalidFleetConfig": ErrorClass.CONFIGURATION,
    "InvalidFleetConfiguration": ErrorClass.CONFIGURATION,
    "InvalidParameter": ErrorClass.CONFIGURATION,
    "InvalidParameterValue": ErrorClass.CONFIGURATION,
    "InvalidParameterCombination": ErrorClass.CONFIGURATION,
    "InvalidAMIID.NotFound": ErrorClass.CONFIGURATION,
    "InvalidAMIID.Malformed": ErrorClass.CONFIGURATION,
    "InvalidAMIID.Unavailable": ErrorClass.CONFIGURATION,
    "InvalidSubnetID.NotFound": ErrorClass.CONFIGURATION,
    "InvalidLaunchTemplateId.NotFound": ErrorClass.CONFIGURATION,
    "InvalidLaunchTemplateId.VersionNotFound": ErrorClass.CONFIGURATION,
    "InvalidLaunchTemplateName.NotFoundException": ErrorClass.CONFIGURATION,
    "InvalidCapacityReservationId.NotFound": ErrorClass.CONFIGURATION,
    "Invalid IAM Instance Profile": ErrorClass.CONFIGURATION,
    "UnauthorizedOperation": ErrorClass.PERMISSION,
    "AccessDenied": ErrorClass.PERMISSION,
    "AuthFailure": ErrorClass.PERMISSION,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ErrorClass.PERMISSION,
    "OptInRequired": ErrorClass.PERMISSION,
    "Blocked": ErrorClass.PERMISSION,
    "IdempotentParameterMismatch": ErrorClass.OURS,
}
CONFIGURATION_PREFIXES = ("Invalid", "Missing", "UnknownParameter", "Malformed")


def classify(code: str) -> ErrorClass:
    """Return the class of an EC2 error code; a code nobody knows is capacity, so it is bounded."""
    if code in ERROR_CLASSES:
        return ERROR_CLASSES[code]
    if code.startswith(CONFIGURATION_PREFIXES):
        return ErrorClass.CONFIGURATION
    return ErrorClass.CAPACITY


def action_for(code: str) -> Action:
    """Return what is done about an EC2 error code."""
    return ACTIONS[classify(code)]


@dataclass(frozen=True, slots=True)
class Try:
    """One try's row: the stored plan and EC2's answer to it."""

    job: str
    attempt: int
    n: int
    plan: Plan
    at: datetime
    answer: FleetAnswer | None = None
