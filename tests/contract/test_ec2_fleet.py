"""Fleet on EC2: what is asked for, and what each of EC2's answers means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve.adapters.ec2_fleet import Ec2Fleet
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, Instance, InstanceState, Market
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Override
from reprieve.ports.cloud import Fleet
from tests.builders import HOST, OTHER_HOST, SPOT_A, SPOT_B, a_plan
from tests.contract.scripted import (
    DROP,
    Endpoint,
    Reply,
    client,
    ec2_error,
    ec2_reply,
    serving,
)

DENIED = ec2_error("UnauthorizedOperation", status=403)
THROTTLED = ec2_error("RequestLimitExceeded", status=503)
RESERVATION = "cr-0123456789abcdef0"
SUBNET_A, SUBNET_B = "subnet-0aaaaaaaaaaaaaaaa", "subnet-0bbbbbbbbbbbbbbbb"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def fleet(endpoint: Endpoint) -> Iterator[Fleet]:
    ec2 = client("ec2", endpoint)
    yield Ec2Fleet(lambda: ec2, stack="Reprieve", zones=["us-east-1a", "us-east-1b"])
    ec2.close()


def items(*inner: str) -> str:
    return "".join(f"<item>{text}</item>" for text in inner)


def overrides(kind: str, subnet: str) -> str:
    return (
        "<launchTemplateAndOverrides><launchTemplateSpecification>"
        "<launchTemplateId>lt-0aaaaaaaaaaaaaaaa</launchTemplateId><version>1</version>"
        f"</launchTemplateSpecification><overrides><instanceType>{kind}</instanceType>"
        f"<subnetId>{subnet}</subnetId></overrides></launchTemplateAndOverrides>"
        "<lifecycle>spot</lifecycle>"
    )


def created(*, errors: str = "", instances: str = "") -> Reply:
    return ec2_reply(
        "CreateFleet",
        "<fleetId>fleet-1</fleetId>"
        f"<errorSet>{errors}</errorSet><fleetInstanceSet>{instances}</fleetInstanceSet>",
    )


def an_error(kind: str, subnet: str, code: str = "InsufficientInstanceCapacity") -> str:
    return items(
        overrides(kind, subnet)
        + f"<errorCode>{code}</errorCode><errorMessage>no {kind}</errorMessage>"
    )


def an_instance(instance_id: str, kind: str, subnet: str) -> str:
    return items(
        overrides(kind, subnet)
        + f"<instanceIds>{items(instance_id)}</instanceIds><instanceType>{kind}</instanceType>"
    )


def described(*instances: str, token: str = "") -> Reply:
    return ec2_reply(
        "DescribeInstances",
        f"<reservationSet>{items(f'<instancesSet>{items(*instances)}</instancesSet>')}"
        f"</reservationSet><nextToken>{token}</nextToken>",
    )


def an_ec2_instance(instance_id: str, state: str = "running", *, spot: bool = True) -> str:
    return (
        f"<instanceId>{instance_id}</instanceId><instanceType>g5.xlarge</instanceType>"
        f"<instanceState><code>0</code><name>{state}</name></instanceState>"
        "<placement><availabilityZone>us-east-1a</availabilityZone></placement>"
        "<launchTime>2026-03-04T12:00:00.000Z</launchTime>"
        + ("<instanceLifecycle>spot</instanceLifecycle>" if spot else "")
        + f"<tagSet>{items('<key>reprieve:order</key><value>job-1#1#1</value>')}</tagSet>"
    )


# Launch


def test_a_plan_is_one_instant_fleet_for_one_host_under_its_own_token(
    fleet: Fleet, endpoint: Endpoint
) -> None:
    endpoint.says(created(instances=an_instance(HOST, "g5.xlarge", SUBNET_A)))

    fleet.launch(a_plan())

    asked = endpoint.asked[0]
    tags = {
        "Key.1": "reprieve:stack",
        "Value.1": "Reprieve",
        "Key.2": "reprieve:pool",
        "Value.2": "small",
        "Key.3": "reprieve:order",
        "Value.3": "job-1#1#1",
    }
    config = "LaunchTemplateConfigs.1"
    assert asked == {
        "Action": "CreateFleet",
        "Version": "2016-11-15",
        "ClientToken": a_plan().client_token,
        "Type": "instant",
        "TargetCapacitySpecification.TotalTargetCapacity": "1",
        "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
        "SpotOptions.AllocationStrategy": "price-capacity-optimized",
        f"{config}.LaunchTemplateSpecification.LaunchTemplateId": "lt-0aaaaaaaaaaaaaaaa",
        f"{config}.LaunchTemplateSpecification.Version": "1",
        f"{config}.Overrides.1.InstanceType": "g5.xlarge",
        f"{config}.Overrides.1.SubnetId": SUBNET_A,
        f"{config}.Overrides.2.InstanceType": "g6.xlarge",
        f"{config}.Overrides.2.SubnetId": SUBNET_B,
        "TagSpecification.1.ResourceType": "fleet",
        "TagSpecification.2.ResourceType": "instance",
        "TagSpecification.3.ResourceType": "volume",
        **{
            f"TagSpecification.{n}.Tag.{name.split('.')[1]}.{name.split('.')[0]}": value
            for n in (1, 2, 3)
            for name, value in tags.items()
        },
    }


def test_the_same_plan_is_said_in_the_same_words(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(created(), created())

    fleet.launch(a_plan())
    fleet.launch(a_plan())

    assert endpoint.asked[0] == endpoint.asked[1]


def test_an_on_demand_plan_buys_on_demand(fleet: Fleet, endpoint: Endpoint) -> None:
    on_demand = replace(SPOT_A, market=Market.ON_DEMAND)
    plan = a_plan(
        market=Market.ON_DEMAND, strategy="lowest-price", overrides=(Override(on_demand, SUBNET_A),)
    )
    endpoint.says(created(instances=an_instance(HOST, "g5.xlarge", SUBNET_A)))

    answer = fleet.launch(plan)

    asked = endpoint.asked[0]
    assert asked["TargetCapacitySpecification.DefaultTargetCapacityType"] == "on-demand"
    assert asked["OnDemandOptions.AllocationStrategy"] == "lowest-price"
    assert not any(name.startswith("SpotOptions") for name in asked)
    assert answer == FleetAnswer((Launched(HOST, on_demand),))


def test_instances_and_errors_of_one_answer_are_both_kept(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(
        created(
            errors=an_error("g5.xlarge", SUBNET_A),
            instances=an_instance(HOST, "g6.xlarge", SUBNET_B),
        )
    )

    assert fleet.launch(a_plan()) == FleetAnswer(
        (Launched(HOST, SPOT_B),),
        (FleetError("InsufficientInstanceCapacity", "no g5.xlarge", SPOT_A),),
    )


def test_an_error_about_the_whole_fleet_names_no_pool(fleet: Fleet, endpoint: Endpoint) -> None:
    whole = "<errorCode>MaxSpotInstanceCountExceeded</errorCode><errorMessage>m</errorMessage>"
    endpoint.says(created(errors=items(whole)))

    assert fleet.launch(a_plan()) == FleetAnswer(
        errors=(FleetError("MaxSpotInstanceCountExceeded", "m", None),)
    )


def test_an_instance_is_never_dropped_for_want_of_a_zone(fleet: Fleet, endpoint: Endpoint) -> None:
    bare = f"<instanceIds>{items(HOST)}</instanceIds>"
    endpoint.says(created(instances=items(bare)))

    assert fleet.launch(a_plan()).instances == (Launched(HOST, SPOT_A),)


def test_a_zone_that_the_answer_names_itself_is_believed(fleet: Fleet, endpoint: Endpoint) -> None:
    named = (
        f"<instanceIds>{items(HOST)}</instanceIds><instanceType>g6.xlarge</instanceType>"
        "<availabilityZone>us-east-1f</availabilityZone>"
    )
    endpoint.says(created(instances=items(named)))

    expected = CapacityPool("g6.xlarge", "us-east-1f", Market.SPOT)
    assert fleet.launch(a_plan()).instances == (Launched(HOST, expected),)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UnauthorizedOperation", 403),
        ("InvalidLaunchTemplateId.NotFound", 400),
        ("IdempotentParameterMismatch", 400),
        ("RequestLimitExceeded", 503),
        ("InternalError", 500),
        ("Unavailable", 503),
    ],
)
def test_a_refused_request_is_an_answer_with_its_code(
    fleet: Fleet, endpoint: Endpoint, code: str, status: int
) -> None:
    endpoint.says(ec2_error(code, "because", status))

    refused = FleetAnswer(errors=(FleetError(code, "because"),), refused=True)
    assert fleet.launch(a_plan()) == refused


@pytest.mark.parametrize(
    "reply",
    [DROP, Reply(b"", 500), Reply(b"<html>bad gateway</html>", 502)],
    ids=["dropped", "empty", "bad-gateway"],
)
def test_a_launch_without_an_answer_is_unknown(
    fleet: Fleet, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(reply)

    with pytest.raises(UnknownOutcomeError):
        fleet.launch(a_plan())


# States


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("pending", InstanceState.ALIVE),
        ("running", InstanceState.ALIVE),
        ("stopping", InstanceState.ALIVE),
        ("shutting-down", InstanceState.GONE),
        ("terminated", InstanceState.GONE),
        ("stopped", InstanceState.GONE),
        ("levitating", InstanceState.UNKNOWN),
    ],
)
def test_ec2s_states_are_reduced_to_what_a_decision_needs(
    fleet: Fleet, endpoint: Endpoint, name: str, state: InstanceState
) -> None:
    endpoint.says(described(an_ec2_instance(HOST, name)))

    assert fleet.states([HOST]) == {HOST: state}


def test_an_instance_that_ec2_does_not_list_is_not_found(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(described(an_ec2_instance(HOST)))

    assert fleet.states([HOST, OTHER_HOST]) == {
        HOST: InstanceState.ALIVE,
        OTHER_HOST: InstanceState.NOT_FOUND,
    }
    asked = endpoint.asked[0]
    assert asked["Filter.1.Name"] == "instance-id"
    assert "InstanceId.1" not in asked


@pytest.mark.parametrize("reply", [DROP, THROTTLED], ids=["dropped", "throttled"])
def test_instances_that_ec2_could_not_be_asked_about_are_unknown(
    fleet: Fleet, endpoint: Endpoint, reply: Reply
) -> None:
    ids = [f"i-{n:017x}" for n in range(201)]
    endpoint.says(described(an_ec2_instance(ids[0])), reply)

    states = fleet.states(ids)

    assert states[ids[0]] is InstanceState.ALIVE
    assert states[ids[199]] is InstanceState.NOT_FOUND
    assert states[ids[200]] is InstanceState.UNKNOWN
    assert len(endpoint.asked) == 2


def test_nobody_is_asked_about_nothing(fleet: Fleet, endpoint: Endpoint) -> None:
    assert fleet.states([]) == {}
    assert fleet.marked([]) == frozenset()
    fleet.terminate([])

    assert endpoint.asked == []


# Ours


def test_our_instances_are_found_by_tag_on_every_page(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(
        described(an_ec2_instance(HOST), token="next"),
        described(an_ec2_instance(OTHER_HOST, "pending", spot=False)),
    )

    ours = fleet.ours()

    first = Instance(
        instance_id=HOST,
        type="g5.xlarge",
        zone="us-east-1a",
        market=Market.SPOT,
        state=InstanceState.ALIVE,
        launched_at=datetime(2026, 3, 4, 12, tzinfo=UTC),
        tags={"reprieve:order": "job-1#1#1"},
    )
    assert ours == [first, replace(first, instance_id=OTHER_HOST, market=Market.ON_DEMAND)]
    asked = endpoint.asked[0]
    assert (asked["Filter.1.Name"], asked["Filter.1.Value.1"]) == ("tag:reprieve:stack", "Reprieve")
    assert asked["Filter.2.Name"] == "instance-state-name"
    assert {asked[f"Filter.2.Value.{n}"] for n in (1, 2, 3)} == {"pending", "running", "stopping"}
    assert endpoint.asked[1]["NextToken"] == "next"


@pytest.mark.parametrize("reply", [DROP, DENIED], ids=["dropped", "denied"])
@pytest.mark.parametrize(
    "ask",
    [lambda fleet: fleet.ours(), lambda fleet: fleet.in_reservation(RESERVATION)],
    ids=["ours", "in a reservation"],
)
def test_a_list_that_ec2_did_not_give_is_unknown_and_not_empty(
    fleet: Fleet, endpoint: Endpoint, reply: Reply, ask: Callable[[Fleet], object]
) -> None:
    endpoint.says(described(an_ec2_instance(HOST), token="next"), reply)

    with pytest.raises(UnknownOutcomeError):
        ask(fleet)


def test_the_hosts_in_a_reservation_are_ours_and_in_it(fleet: Fleet, endpoint: Endpoint) -> None:
    inside = f"<capacityReservationId>{RESERVATION}</capacityReservationId>"
    outside = an_ec2_instance(OTHER_HOST, spot=False)
    endpoint.says(described(an_ec2_instance(HOST, spot=False) + inside, outside))

    assert fleet.in_reservation(RESERVATION) == {HOST}
    asked = endpoint.asked[0]
    assert (asked["Filter.1.Name"], asked["Filter.1.Value.1"]) == ("tag:reprieve:stack", "Reprieve")
    assert (asked["Filter.3.Name"], asked["Filter.3.Value.1"]) == (
        "capacity-reservation-id",
        RESERVATION,
    )


# Spot requests


def spot_requests(**codes: str) -> Reply:
    return ec2_reply(
        "DescribeSpotInstanceRequests",
        "<spotInstanceRequestSet>"
        + items(
            *(
                f"<instanceId>i-{name}</instanceId><status><code>{code}</code></status>"
                for name, code in codes.items()
            )
        )
        + "</spotInstanceRequestSet>",
    )


def test_a_spot_request_tells_which_instances_ec2_takes_back(
    fleet: Fleet, endpoint: Endpoint
) -> None:
    endpoint.says(
        spot_requests(
            a="fulfilled",
            b="marked-for-termination",
            c="instance-terminated-no-capacity",
            d="instance-stopped-no-capacity",
            e="request-canceled-and-instance-running",
            f="instance-terminated-by-user",
        )
    )

    assert fleet.marked(["i-a", "i-b", "i-c", "i-d", "i-e", "i-f"]) == {"i-b", "i-c", "i-d"}


@pytest.mark.parametrize("reply", [DROP, DENIED], ids=["dropped", "denied"])
def test_spot_requests_that_could_not_be_read_are_told(
    fleet: Fleet, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(reply)

    with pytest.raises(UnknownOutcomeError, match="spot requests"):
        fleet.marked([HOST])


# Terminate

GONE = ec2_error("InvalidInstanceID.NotFound", "The instance ID 'i-x' does not exist")
TERMINATED = ec2_reply("TerminateInstances", "<instancesSet/>")


def test_an_instance_that_is_gone_keeps_no_other_alive(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(GONE, GONE, TERMINATED, TERMINATED)

    fleet.terminate(["i-x", "i-2", "i-3"])

    assert [
        [value for name, value in asked.items() if name.startswith("InstanceId")]
        for asked in endpoint.asked
    ] == [["i-x", "i-2", "i-3"], ["i-x"], ["i-2", "i-3"]]


def test_a_termination_that_is_denied_says_so(fleet: Fleet, endpoint: Endpoint) -> None:
    endpoint.says(DENIED)

    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        fleet.terminate([HOST])


@pytest.mark.parametrize("reply", [DROP, THROTTLED], ids=["dropped", "throttled"])
def test_a_termination_without_an_answer_is_unknown(
    fleet: Fleet, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(reply)

    with pytest.raises(UnknownOutcomeError):
        fleet.terminate([HOST])


# Prices


def prices(*entries: tuple[str, str, str, str]) -> Reply:
    return ec2_reply(
        "DescribeSpotPriceHistory",
        "<spotPriceHistorySet>"
        + items(
            *(
                f"<instanceType>{kind}</instanceType><availabilityZone>{zone}</availabilityZone>"
                f"<spotPrice>{price}</spotPrice><timestamp>{at}</timestamp>"
                for kind, zone, price, at in entries
            )
        )
        + "</spotPriceHistorySet>",
    )


def test_the_latest_spot_price_of_each_type_and_zone_counts(
    fleet: Fleet, endpoint: Endpoint
) -> None:
    endpoint.says(
        prices(
            ("g5.xlarge", "us-east-1a", "0.40", "2026-03-04T11:00:00.000Z"),
            ("g5.xlarge", "us-east-1a", "0.50", "2026-03-04T12:00:00.000Z"),
            ("g5.xlarge", "us-east-1a", "0.30", "2026-03-04T10:00:00.000Z"),
            ("g6.xlarge", "us-east-1b", "0.20", "2026-03-04T12:00:00.000Z"),
        )
    )

    found = fleet.usd_per_hour(["g5.xlarge", "g6.xlarge"], Market.SPOT)

    assert found == {("g5.xlarge", "us-east-1a"): 0.5, ("g6.xlarge", "us-east-1b"): 0.2}
    asked: dict[str, Any] = endpoint.asked[0]
    assert asked["ProductDescription.1"] == "Linux/UNIX"
    assert (asked["InstanceType.1"], asked["InstanceType.2"]) == ("g5.xlarge", "g6.xlarge")
    assert "StartTime" in asked


@pytest.mark.parametrize("reply", [DROP, DENIED], ids=["dropped", "denied"])
def test_prices_that_ec2_did_not_tell_are_absent(
    fleet: Fleet, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(reply)

    assert fleet.usd_per_hour(["g5.xlarge"], Market.SPOT) == {}


def test_an_on_demand_price_holds_in_every_zone_and_asks_nobody(
    fleet: Fleet, endpoint: Endpoint
) -> None:
    found = fleet.usd_per_hour(["g5.xlarge", "p5e.48xlarge", "t3.micro"], Market.ON_DEMAND)

    assert found == {("g5.xlarge", "us-east-1a"): 1.006, ("g5.xlarge", "us-east-1b"): 1.006}
    assert endpoint.asked == []
