"""EC2 as the world plays it: harsh where EC2 is harsh."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve_cli.local.control import WorldClient
from tests.local.support import Aws, Fleet, eventually

pytestmark = pytest.mark.e2e

A, B = "us-east-1a", "us-east-1b"


@pytest.fixture(autouse=True)
def slow_boots(fleet: Fleet, control: WorldClient) -> None:
    """Keep the hosts pending: most tests here need none to run."""
    control.put_pools({"settings": {"boot_seconds": 60}})


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


def pools(*rows: tuple[str, str, float, int | None]) -> dict[str, Any]:
    names = ("type", "zone", "price", "capacity")
    return {"pools": [dict(zip(names, row, strict=True)) for row in rows]}


def ids(answer: dict[str, Any]) -> list[str]:
    return [found for entry in answer["Instances"] for found in entry["InstanceIds"]]


def described(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for group in answer["Reservations"] for one in group["Instances"]]


# ---------------------------------------------------------------------- CreateFleet
def test_a_dry_pool_is_an_error_entry_beside_the_instance_from_the_next(
    fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 0), ("g5.xlarge", B, 0.4, 5)))

    answer = fleet.create("g5.xlarge")

    (entry,) = answer["Instances"]
    assert entry["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"] == fleet.subnets[B]
    assert entry["InstanceType"] == "g5.xlarge"
    assert entry["Lifecycle"] == "spot"
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "InsufficientInstanceCapacity"
    assert error["LaunchTemplateAndOverrides"]["Overrides"] == {
        "InstanceType": "g5.xlarge",
        "SubnetId": fleet.subnets[A],
    }


def test_every_pool_dry_is_a_success_with_errors_only(fleet: Fleet, control: WorldClient) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 0), ("g5.xlarge", B, 0.4, 0)))

    answer = fleet.create("g5.xlarge")

    assert answer["Instances"] == []
    assert len(answer["Errors"]) == 2


def test_a_type_that_a_zone_does_not_offer_is_unsupported_there(
    fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 1)))

    answer = fleet.create("g5.xlarge", "g6.xlarge", zones="a")

    assert [error["ErrorCode"] for error in answer["Errors"]] == ["Unsupported"]
    assert len(ids(answer)) == 1


def test_a_type_that_does_not_exist_refuses_the_whole_call(fleet: Fleet) -> None:
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        fleet.create("not.a.type")


def test_an_unknown_template_or_subnet_refuses_the_whole_call(fleet: Fleet) -> None:
    with pytest.raises(ClientError, match=r"InvalidSubnetID\.NotFound"):
        Fleet(fleet.aws, fleet.template_id, {A: "subnet-99"}).create(zones="a")
    with pytest.raises(ClientError, match=r"InvalidLaunchTemplateId\.NotFound"):
        Fleet(fleet.aws, "lt-0123456789abcdef0", fleet.subnets).create()


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("lowest-price", "g4dn.xlarge"),
        ("price-capacity-optimized", "g5.xlarge"),
        ("capacity-optimized", "g6.xlarge"),
    ],
)
def test_each_strategy_picks_its_own_pool(
    fleet: Fleet, control: WorldClient, strategy: str, expected: str
) -> None:
    control.put_pools(
        pools(
            ("g4dn.xlarge", A, 0.1, 1),
            ("g5.xlarge", A, 0.3, 5),
            ("g6.xlarge", A, 0.4, 50),
        )
    )

    answer = fleet.create(
        *("g4dn.xlarge", "g5.xlarge", "g6.xlarge"),
        zones="a",
        SpotOptions={"AllocationStrategy": strategy},
        TargetCapacitySpecification={
            "TotalTargetCapacity": 2,
            "DefaultTargetCapacityType": "spot",
        },
    )

    assert answer["Instances"][0]["InstanceType"] == expected
    assert len(ids(answer)) == 2


def test_a_fleet_without_a_minimum_is_filled_as_far_as_it_goes(
    fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 2)))

    answer = fleet.create(
        zones="a",
        TargetCapacitySpecification={
            "TotalTargetCapacity": 3,
            "DefaultTargetCapacityType": "spot",
        },
    )

    assert len(ids(answer)) == 2
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InsufficientInstanceCapacity"]


def test_a_gang_below_its_minimum_launches_nothing_and_gives_back_what_it_took(
    fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 2), ("g5.xlarge", B, 0.4, 1)))
    gang = {
        "AllocationStrategy": "capacity-optimized",
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": 3,
    }

    answer = fleet.create(
        SpotOptions=gang,
        TargetCapacitySpecification={
            "TotalTargetCapacity": 3,
            "DefaultTargetCapacityType": "spot",
        },
    )

    assert ids(answer) == []
    assert [pool["capacity"] for pool in control.pools()["pools"]] == [2, 1]


def test_on_demand_capacity_is_sold_and_described_without_a_lifecycle(
    fleet: Fleet, ec2: Any
) -> None:
    (instance_id,) = ids(
        fleet.create(
            TargetCapacitySpecification={
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "on-demand",
            }
        )
    )

    (instance,) = described(ec2.describe_instances(InstanceIds=[instance_id]))
    assert "InstanceLifecycle" not in instance


def test_tags_come_from_the_template_and_from_the_call(fleet: Fleet, ec2: Any) -> None:
    answer = fleet.create()

    (instance,) = described(ec2.describe_instances(InstanceIds=ids(answer)))
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["reprieve:pool"] == "gpu"
    assert tags["reprieve:order"] == "job-1#1#1"
    assert tags["aws:ec2:fleet-id"] == answer["FleetId"]
    assert instance["InstanceLifecycle"] == "spot"


# ---------------------------------------------------------------------- ClientToken
def test_the_same_token_and_parameters_give_the_first_answer_again(fleet: Fleet) -> None:
    first = fleet.create(ClientToken="same")
    again = fleet.create(ClientToken="same")

    assert (again["FleetId"], ids(again)) == (first["FleetId"], ids(first))


def test_an_answer_of_errors_only_is_repeated_even_when_there_is_capacity_again(
    fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 0)))
    first = fleet.create(ClientToken="errors", zones="a")
    control.set_pool("g5.xlarge", A, capacity=5)

    again = fleet.create(ClientToken="errors", zones="a")

    assert again["Errors"] == first["Errors"] != []
    assert ids(again) == []


def test_a_token_with_other_parameters_is_refused(fleet: Fleet) -> None:
    fleet.create("g5.xlarge", ClientToken="other")

    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        fleet.create("g6.xlarge", ClientToken="other")


def test_a_token_whose_instance_died_is_refused(fleet: Fleet, control: WorldClient) -> None:
    (instance_id,) = ids(fleet.create(ClientToken="dead"))
    control.kill(instance_id)

    with pytest.raises(ClientError, match="IdempotentInstanceTerminated"):
        fleet.create(ClientToken="dead")


# ---------------------------------------------------------------------- capacity over time
def test_a_terminated_host_frees_its_slot_and_a_reclaimed_one_does_not(
    fleet: Fleet, control: WorldClient, ec2: Any
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 2)))
    (mine,) = ids(fleet.create(zones="a"))
    (theirs,) = ids(fleet.create(zones="a"))

    def capacity() -> int:
        return int(control.pools()["pools"][0]["capacity"])

    control.notice(theirs, in_seconds=0)
    eventually(lambda: fleet.state(theirs) == "terminated")
    assert capacity() == 0
    ec2.terminate_instances(InstanceIds=[mine])
    eventually(lambda: capacity() == 1)


# ---------------------------------------------------------------------- instances
def test_an_unknown_instance_is_not_found(ec2: Any) -> None:
    for call in (ec2.describe_instances, ec2.terminate_instances):
        with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
            call(InstanceIds=["i-0123456789abcdef0"])


def test_one_unknown_id_spares_the_known_one(fleet: Fleet, ec2: Any) -> None:
    (known,) = ids(fleet.create())

    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.terminate_instances(InstanceIds=[known, "i-0123456789abcdef0"])

    assert fleet.state(known) in {"pending", "running"}


def test_filters_select_by_tag_state_and_lifecycle_and_unknown_ones_are_refused(
    fleet: Fleet, ec2: Any, control: WorldClient
) -> None:
    (alive,) = ids(fleet.create())
    (dead,) = ids(fleet.create())
    control.kill(dead)
    ec2.create_tags(Resources=[alive, dead], Tags=[{"Key": "test", "Value": "filters"}])

    def select(**filters: list[str]) -> list[str]:
        given = [{"Name": "tag:test", "Values": ["filt*"]}] + [
            {"Name": name.replace("_", "-"), "Values": values} for name, values in filters.items()
        ]
        return [one["InstanceId"] for one in described(ec2.describe_instances(Filters=given))]

    assert select() == [alive, dead]
    assert select(instance_state_name=["pending", "running"]) == [alive]
    assert select(instance_lifecycle=["spot"], instance_type=["g5.xlarge"]) == [alive, dead]
    assert select(tag_key=["nobody"]) == []
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        select(made_up=["x"])


def test_pages_are_followed_to_the_end(fleet: Fleet, ec2: Any) -> None:
    answer = fleet.create(
        TargetCapacitySpecification={
            "TotalTargetCapacity": 7,
            "DefaultTargetCapacityType": "spot",
        }
    )
    paginator = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "tag:aws:ec2:fleet-id", "Values": [answer["FleetId"]]}],
        PaginationConfig={"PageSize": 5},
    )

    sizes = [len(described(page)) for page in paginator]

    assert sizes == [5, 2]


def test_a_host_may_be_invisible_at_first(fleet: Fleet, ec2: Any, control: WorldClient) -> None:
    control.put_pools({"settings": {"visible_after_seconds": 0.5, "boot_seconds": 60}})
    (instance_id,) = ids(fleet.create())

    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        ec2.describe_instances(InstanceIds=[instance_id])

    def seen() -> bool:
        answer = ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [instance_id]}])
        return bool(described(answer))

    eventually(seen)


def test_the_reason_of_an_end_tells_who_did_it(
    fleet: Fleet, ec2: Any, control: WorldClient
) -> None:
    (mine,) = ids(fleet.create())
    (theirs,) = ids(fleet.create())
    ec2.terminate_instances(InstanceIds=[mine])
    control.kill(theirs)
    eventually(lambda: fleet.state(mine) == "terminated")

    found = {
        one["InstanceId"]: one["StateReason"]["Code"]
        for one in described(ec2.describe_instances(InstanceIds=[mine, theirs]))
    }

    assert found[mine] == "Client.UserInitiatedShutdown"
    assert found[theirs] == "Server.SpotInstanceTermination"


# ---------------------------------------------------------------------- spot
def test_the_spot_request_tells_of_a_notice_before_the_instance_ends(
    fleet: Fleet, ec2: Any, control: WorldClient
) -> None:
    (instance_id,) = ids(fleet.create())
    control.notice(instance_id, channels=[])

    (request,) = ec2.describe_spot_instance_requests(
        Filters=[{"Name": "instance-id", "Values": [instance_id]}]
    )["SpotInstanceRequests"]

    assert request["Status"]["Code"] == "instance-terminated-no-capacity"
    assert fleet.state(instance_id) == "pending"


def test_spot_prices_follow_the_market(ec2: Any, fleet: Fleet, control: WorldClient) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 5)))
    control.set_pool("g5.xlarge", A, price=0.7)

    newest = ec2.describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], AvailabilityZone=A, ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"][0]

    assert float(newest["SpotPrice"]) == 0.7


def test_placement_scores_rank_the_deeper_zone_first(
    ec2: Any, fleet: Fleet, control: WorldClient
) -> None:
    control.put_pools(pools(("g5.xlarge", A, 0.3, 1), ("g5.xlarge", B, 0.3, 90)))

    scores = ec2.get_spot_placement_scores(
        InstanceTypes=["g5.xlarge"], TargetCapacity=5, SingleAvailabilityZone=True
    )["SpotPlacementScores"]

    assert scores[0] == {"Region": "us-east-1", "AvailabilityZoneId": "use1-az2", "Score": 10}
    assert scores[-1]["Score"] == 1


# ---------------------------------------------------------------------- what is on offer
def test_instance_types_have_their_real_gpus(ec2: Any) -> None:
    (kind,) = ec2.describe_instance_types(InstanceTypes=["p5.48xlarge"])["InstanceTypes"]

    assert kind["GpuInfo"]["Gpus"][0]["Name"] == "H100"
    assert kind["GpuInfo"]["TotalGpuMemoryInMiB"] == 8 * 81920
    with pytest.raises(ClientError, match="InvalidInstanceType"):
        ec2.describe_instance_types(InstanceTypes=["p99.large"])


def test_offerings_name_the_zones_of_a_type(ec2: Any) -> None:
    offers = ec2.describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": ["g7e.2xlarge"]}],
    )["InstanceTypeOfferings"]

    assert [offer["Location"] for offer in offers] == [A, B]


def test_calls_that_the_world_does_not_own_reach_the_emulator(ec2: Any) -> None:
    assert ec2.describe_vpcs()["Vpcs"]
