"""What a plan says to EC2: how many, in which market, from which reservations, at no price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reprieve.adapters.ec2_fleet import Ec2Fleet, fleet_request, read_answer
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Market
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Member, Override
from tests.builders import HOST, OTHER_HOST, SPOT_A, a_plan
from tests.contract.scripted import DROP, Endpoint, client, ec2_error, ec2_reply, serving

GROUP = "arn:aws:resource-groups:us-east-1:111122223333:group/ours"
CR = "cr-0aaaaaaaaaaaaaaaa"
RESERVED = replace(SPOT_A, market=Market.RESERVED)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def fleet(endpoint: Endpoint) -> Iterator[Ec2Fleet]:
    ec2 = client("ec2", endpoint)
    yield Ec2Fleet(lambda: ec2, stack="Reprieve", zones=["us-east-1a"])
    ec2.close()


def test_a_plan_for_several_asks_for_so_many_at_once_and_never_names_a_price() -> None:
    request = fleet_request(a_plan(followers=(Member("job-2", 1, 1), Member("job-3", 4, 2))))

    assert request["TargetCapacitySpecification"]["TotalTargetCapacity"] == 3
    assert "MaxPrice" not in str(request)
    assert "MaxTotalPrice" not in str(request)


@pytest.mark.parametrize(
    ("names", "target"),
    [
        ((CR,), {"CapacityReservationIds": [CR]}),
        ((GROUP,), {"CapacityReservationResourceGroupArns": [GROUP]}),
    ],
)
def test_a_reserved_plan_names_its_reservations_and_falls_back_to_nothing(
    names: tuple[str, ...], target: dict[str, list[str]]
) -> None:
    plan = a_plan(
        market=Market.RESERVED,
        strategy="prioritized",
        overrides=(Override(RESERVED, "subnet-a"),),
        reservations=(*names, "on-demand-capacity-reservation"),
    )
    request = fleet_request(plan)

    capacity = request["TargetCapacitySpecification"]
    assert capacity["DefaultTargetCapacityType"] == "reserved-capacity"
    assert request["ReservedCapacityOptions"] == {
        "AllocationStrategy": "prioritized",
        "ReservationTypes": ["on-demand-capacity-reservation"],
        "CapacityReservationTarget": target,
    }
    (config,) = request["LaunchTemplateConfigs"]
    assert config["Overrides"] == [
        {"InstanceType": "g5.xlarge", "SubnetId": "subnet-a", "Priority": 0.0}
    ]
    assert not {"SpotOptions", "OnDemandOptions"} & request.keys()


def test_a_reserved_request_is_one_that_botocore_accepts(
    fleet: Ec2Fleet, endpoint: Endpoint
) -> None:
    endpoint.says(ec2_reply("CreateFleet", "<fleetId>fleet-1</fleetId>"))
    plan = a_plan(
        market=Market.RESERVED,
        strategy="prioritized",
        overrides=(Override(RESERVED, "subnet-a"),),
        reservations=(CR, "capacity-block"),
    )

    assert fleet.launch(plan) == FleetAnswer()

    asked = endpoint.asked[0]
    reserved = {k: v for k, v in asked.items() if k.startswith("ReservedCapacityOptions")}
    assert set(reserved.values()) == {"prioritized", "capacity-block", CR}


def test_several_instances_of_one_entry_are_as_many_hosts() -> None:
    plan = a_plan(followers=(Member("job-2", 1, 1),))
    entry = {
        "InstanceIds": [HOST, OTHER_HOST],
        "InstanceType": "g5.xlarge",
        "LaunchTemplateAndOverrides": {"Overrides": {"SubnetId": "subnet-0aaaaaaaaaaaaaaaa"}},
    }
    error = {"ErrorCode": "RequestLimitExceeded"}

    assert read_answer({"Instances": [entry], "Errors": [error]}, plan) == FleetAnswer(
        (Launched(HOST, SPOT_A), Launched(OTHER_HOST, SPOT_A)),
        (FleetError("RequestLimitExceeded"),),
    )


def an_instance(*facts: str) -> str:
    return (
        f"<item><instancesSet><item><instanceId>{HOST}</instanceId>"
        "<instanceType>g5.xlarge</instanceType>"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        "<placement><availabilityZone>us-east-1a</availabilityZone></placement>"
        f"<launchTime>2026-03-04T12:00:00.000Z</launchTime>{''.join(facts)}"
        "</item></instancesSet></item>"
    )


def test_what_a_plan_launched_is_found_by_its_tag(fleet: Ec2Fleet, endpoint: Endpoint) -> None:
    found = ec2_reply("DescribeInstances", f"<reservationSet>{an_instance()}</reservationSet>")
    endpoint.says(found)

    (instance,) = fleet.launched_for("job-1#1#1")

    assert instance.instance_id == HOST
    asked = endpoint.asked[0]
    filters = {asked[f"Filter.{n}.Name"]: asked[f"Filter.{n}.Value.1"] for n in (1, 2)}
    assert filters == {"tag:reprieve:stack": "Reprieve", "tag:reprieve:order": "job-1#1#1"}


@pytest.mark.parametrize("reply", [ec2_error("UnauthorizedOperation", status=403), DROP])
def test_what_could_not_be_looked_for_is_unknown_and_not_nothing(
    fleet: Ec2Fleet, endpoint: Endpoint, reply: object
) -> None:
    endpoint.says(reply)  # type: ignore[arg-type]

    with pytest.raises(UnknownOutcomeError):
        fleet.launched_for("job-1#1#1")


@pytest.mark.parametrize(
    ("facts", "market"),
    [
        ("<instanceLifecycle>spot</instanceLifecycle>", Market.SPOT),
        (f"<capacityReservationId>{CR}</capacityReservationId>", Market.RESERVED),
        ("", Market.ON_DEMAND),
    ],
)
def test_an_instance_says_how_it_is_paid_for(
    fleet: Ec2Fleet, endpoint: Endpoint, facts: str, market: Market
) -> None:
    listed = f"<reservationSet>{an_instance(facts)}</reservationSet>"
    endpoint.says(ec2_reply("DescribeInstances", listed))

    (instance,) = fleet.ours()

    assert CapacityPool(instance.type, instance.zone, instance.market) == replace(
        SPOT_A, market=market
    )
