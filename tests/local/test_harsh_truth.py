"""
What EC2 and SSM do and emulators don't: each test quotes the rule that it holds the world to.

The rules are those of the service's user guides and API models, and of bug reports of people who
met them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from reprieve_cli.local.control import WorldClient
from reprieve_cli.local.world.market import market_from
from tests.local.support import Aws, Fleet, eventually
from tests.local.test_ec2 import A, B, described, ids, pools
from tests.local.test_ssm import DOCUMENT, send

pytestmark = pytest.mark.e2e

STRANGER = "i-0123456789abcdef0"
INSTANT = {"registration_seconds": 0, "visible_after_seconds": 0}


@pytest.fixture
def control(aws: Aws, fleet: Fleet) -> WorldClient:
    return aws.cloud.control  # the fleet fixture puts the world back


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


@pytest.fixture
def ssm(aws: Aws) -> Iterator[Any]:
    client = aws.client("ssm")
    client.create_document(
        Name="test-preempt", Content=json.dumps(DOCUMENT), DocumentType="Command"
    )
    yield client
    client.delete_document(Name="test-preempt")


def codes(answer: dict[str, Any]) -> list[str]:
    return [error["ErrorCode"] for error in answer["Errors"]]


# ---------------------------------------------------------------------- by default
@pytest.mark.parametrize(
    ("notice", "registration", "visible", "forgotten"), [(120, 30, 1, 3600), (6, 1.5, 0.05, 180)]
)
def test_the_world_lags_like_aws_unless_told_otherwise(
    notice: float, registration: float, visible: float, forgotten: float
) -> None:
    """«Registration after boot: 30 s … 6 min», «DescribeInstances just after launch may …»."""
    settings = market_from(None, region="us-east-1", notice_seconds=notice).settings
    assert settings.registration_seconds == pytest.approx(registration)
    assert settings.visible_after_seconds == pytest.approx(visible)
    assert settings.forgotten_after_seconds == pytest.approx(forgotten)


def test_changing_one_lag_leaves_the_others(control: WorldClient) -> None:
    control.put_pools({"settings": {"registration_seconds": 60}})
    after = control.put_pools({"settings": {"boot_seconds": 3}})["settings"]
    assert (after["registration_seconds"], after["boot_seconds"]) == (60, 3)


# ---------------------------------------------------------------------- SSM
def test_ssm_refuses_the_whole_command_for_one_unknown_instance(fleet: Fleet, ssm: Any) -> None:
    """«InvalidInstanceId: the specified instance ID is not valid», for all ids of the call."""
    known = fleet.launch()
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, known, STRANGER)
    assert fleet.read(known, "ctl.json") is None


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_ssm_refuses_a_terminated_instance(
    fleet: Fleet, ssm: Any, control: WorldClient, end: str
) -> None:
    """«Verify that the instance is running»: a dead one isn't in a valid state."""
    dead = fleet.launch()
    getattr(control, end)(dead)
    eventually(lambda: fleet.state(dead) == "terminated")
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, dead)


def test_ssm_refuses_an_instance_until_it_has_registered(
    fleet: Fleet, ssm: Any, control: WorldClient
) -> None:
    """«Registration after boot takes 30 s to 6 min; SendCommand before it: InvalidInstanceId»."""
    control.put_pools({"settings": {"registration_seconds": 60}})
    young = fleet.launch()
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        send(ssm, young)
    control.put_pools({"settings": {"registration_seconds": 0}})
    assert send(ssm, young)


@pytest.mark.parametrize(
    ("count", "seconds", "said"),
    [(51, 30, "between 1 and 50"), (0, 30, "between 1 and 50"), (1, 29, "equal to 30")],
)
def test_ssm_takes_fifty_instances_and_thirty_seconds(
    aws: Aws, ssm: Any, count: int, seconds: int, said: str
) -> None:
    """«InstanceIds: at most 50», «TimeoutSeconds: 30 to 2,592,000»."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.cloud.env.items():
            patch.setenv(name, value)
        careless = boto3.Session().client("ssm", config=Config(parameter_validation=False))
    with pytest.raises(ClientError, match=said):
        send(careless, *(f"i-{n:017x}" for n in range(count)), TimeoutSeconds=seconds)


# ---------------------------------------------------------------------- CreateFleet
def test_a_shortage_stands_in_errors_beside_the_instances(
    fleet: Fleet, control: WorldClient
) -> None:
    """«Errors can be partial and a 200: count Instances first»."""
    control.put_pools({**pools(("g5.xlarge", A, 0.3, 0), ("g5.xlarge", B, 0.4, 5))})
    control.set_pool("g5.xlarge", A, estimate=9)
    answer = fleet.create()
    assert codes(answer) == ["InsufficientInstanceCapacity"]
    assert len(ids(answer)) == 1


def test_a_client_token_with_the_same_parameters_gives_the_first_answer(
    fleet: Fleet, control: WorldClient
) -> None:
    """«Same token and same parameters: the first result»."""
    first, again = (fleet.create(ClientToken="harsh-same") for _ in range(2))
    assert ids(again) == ids(first)
    assert sum(host.instance_id in ids(first) for host in control.hosts()) == 1


def test_a_client_token_with_changed_parameters_is_refused(fleet: Fleet) -> None:
    """«Changed parameters: IdempotentParameterMismatch»."""
    fleet.create("g5.xlarge", ClientToken="harsh-changed")
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        fleet.create("g6.xlarge", ClientToken="harsh-changed")


def test_a_client_token_whose_instance_has_died_is_refused(
    fleet: Fleet, control: WorldClient
) -> None:
    """«A token whose instance has since died: IdempotentInstanceTerminated»."""
    (instance_id,) = ids(fleet.create(ClientToken="harsh-dead"))
    control.kill(instance_id)
    with pytest.raises(ClientError, match="IdempotentInstanceTerminated"):
        fleet.create(ClientToken="harsh-dead")


def test_an_unknown_instance_type_is_refused(fleet: Fleet) -> None:
    """A type that EC2 doesn't know fails the request, not one pool of it."""
    with pytest.raises(ClientError, match="Invalid instance type"):
        fleet.create("g5.xlarge", "not.a.type")


def test_two_subnets_of_one_zone_are_refused(fleet: Fleet, ec2: Any) -> None:
    """«No two subnets of the same zone in a fleet»."""
    vpc = ec2.describe_subnets(SubnetIds=[fleet.subnets[A]])["Subnets"][0]["VpcId"]
    twin = ec2.create_subnet(VpcId=vpc, CidrBlock="172.31.240.0/24", AvailabilityZone=A)
    request = fleet.request(zones="a")
    overrides = request["LaunchTemplateConfigs"][0]["Overrides"]
    overrides.append({**overrides[0], "SubnetId": twin["Subnet"]["SubnetId"]})
    try:
        with pytest.raises(ClientError, match="InvalidFleetConfig"):
            ec2.create_fleet(**request)
    finally:
        ec2.delete_subnet(SubnetId=twin["Subnet"]["SubnetId"])


def test_the_spot_quota_counts_what_is_still_dying_and_each_class_by_itself(
    fleet: Fleet, control: WorldClient
) -> None:
    """«A terminated Spot instance counts until its request closes; G and P are separate»."""
    control.put_pools({"settings": {"spot_vcpus": 4, "shutdown_seconds": 60}})
    (first,) = ids(fleet.create("g5.xlarge"))
    refused = fleet.create("g6.xlarge")
    assert set(codes(refused)) == {"MaxSpotInstanceCountExceeded"}
    assert ids(refused) == []
    on_demand = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"}
    assert ids(fleet.create(TargetCapacitySpecification=on_demand))
    control.kill(first)
    assert ids(fleet.create("g6.xlarge"))


def test_the_on_demand_quota_has_a_code_of_its_own(fleet: Fleet, control: WorldClient) -> None:
    """«VcpuLimitExceeded: park the job, alarm a human»."""
    control.put_pools({"settings": {"on_demand_vcpus": 0}})
    on_demand = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"}
    answer = fleet.create(TargetCapacitySpecification=on_demand)
    assert set(codes(answer)) == {"VcpuLimitExceeded"}


def reserved(**reservation: Any) -> dict[str, Any]:
    one = {"type": "g5.xlarge", "zone": A, "capacity": 1, "reservation": "cr-1"}
    return {"reserved": [one | reservation]}


def from_reservation(fleet: Fleet, *ids: str, kind: str) -> dict[str, Any]:
    return fleet.create(
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "reserved-capacity",
        },
        ReservedCapacityOptions={
            "AllocationStrategy": "prioritized",
            "ReservationTypes": [kind],
            "CapacityReservationTarget": {"CapacityReservationIds": list(ids)},
        },
    )


def test_reserved_capacity_is_there_for_who_names_it_until_it_is_used_up(
    fleet: Fleet, control: WorldClient, ec2: Any
) -> None:
    """«reserved-capacity: instant only», «ReservationCapacityExceeded: pool dry»."""
    ordinary = "on-demand-capacity-reservation"
    control.put_pools(reserved())
    assert set(codes(from_reservation(fleet, "cr-2", kind=ordinary))) == {
        "ReservationCapacityExceeded"
    }
    (instance_id,) = ids(from_reservation(fleet, "cr-1", kind=ordinary))
    full = from_reservation(fleet, "cr-1", kind=ordinary)
    assert (ids(full), set(codes(full))) == ([], {"ReservationCapacityExceeded"})
    asked = [{"Name": "capacity-reservation-id", "Values": ["cr-1"]}]
    (found,) = described(ec2.describe_instances(Filters=asked))
    assert (found["InstanceId"], found["CapacityReservationId"]) == (instance_id, "cr-1")
    assert "InstanceLifecycle" not in found
    asked[0]["Values"] = ["cr-9"]
    assert described(ec2.describe_instances(Filters=asked)) == []


def test_the_end_of_reserved_capacity_is_an_event_that_says_when(
    fleet: Fleet, control: WorldClient
) -> None:
    """«EC2 Capacity Reservation Instance Interruption Warning … carries a deadline»."""
    kind = "interruptible-capacity-reservation"
    control.put_pools(reserved(reservation_type=kind))
    (instance_id,) = ids(from_reservation(fleet, "cr-1", kind=kind))
    eventually(lambda: fleet.state(instance_id) == "running")
    control.notice(instance_id)

    def told() -> Any:
        detail_type = "EC2 Capacity Reservation Instance Interruption Warning"
        entries = control.log(kind="event", detail_type=detail_type)
        return [entry["event"]["detail"] for entry in entries]

    (detail,) = eventually(told)
    assert detail["instance-id"] == instance_id
    assert detail["instance-lifecycle"] == kind
    assert detail["instance-termination-time"].endswith("Z")
    assert detail["availability-zone-id"] == "use1-az1"
    eventually(lambda: fleet.state(instance_id) == "terminated")


# ---------------------------------------------------------------------- instances
def test_a_new_instance_is_not_to_be_seen_at_once(
    fleet: Fleet, ec2: Any, control: WorldClient
) -> None:
    """«DescribeInstances just after launch may say InvalidInstanceID.NotFound»."""
    control.put_pools({"settings": {"visible_after_seconds": 60}})
    (young,) = ids(fleet.create())
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.describe_instances(InstanceIds=[young])
    control.put_pools({"settings": {"visible_after_seconds": 0}})
    assert described(ec2.describe_instances(InstanceIds=[young]))


def test_a_terminated_instance_is_forgotten_after_a_while(
    fleet: Fleet, ec2: Any, control: WorldClient
) -> None:
    """«Terminated instances remain visible for a short time, about an hour, then are gone»."""
    (dead,) = ids(fleet.create())
    control.kill(dead)
    (seen,) = described(ec2.describe_instances(InstanceIds=[dead]))
    assert seen["State"]["Name"] == "terminated"
    control.put_pools({"settings": {"forgotten_after_seconds": 0}})
    for call in (ec2.describe_instances, ec2.terminate_instances):
        with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
            call(InstanceIds=[dead])


def test_one_unknown_id_refuses_the_whole_description(fleet: Fleet, ec2: Any) -> None:
    """«If you specify an instance ID that is not valid, an error is returned», not the others."""
    (known,) = ids(fleet.create())
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.describe_instances(InstanceIds=[known, STRANGER])
