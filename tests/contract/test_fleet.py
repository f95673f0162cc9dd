"""Fleet: the same answers from memory and from the embedded cloud's EC2."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from reprieve.adapters.ec2_fleet import Ec2Fleet
from reprieve.adapters.memory import Memory
from reprieve.domain.host import InstanceState, Market
from reprieve.domain.order import Override, Plan
from reprieve.ports.cloud import Fleet
from tests.builders import SPOT_A, SPOT_B, a_plan
from tests.local.support import Aws, eventually, make_template, start, subnets_of

STRANGER = "i-0ffffffffffffffff"


@dataclass(frozen=True, slots=True)
class Ec2:
    """A fleet, plans that it can fill, and a market whose first pool may be emptied."""

    fleet: Fleet
    plan: Callable[[], Plan]
    empty_first_pool: Callable[[], object]

    def launch(self, plan: Plan | None = None) -> str:
        answer = self.fleet.launch(plan or self.plan())
        assert len(answer.instances) == 1, answer.text()
        return answer.instances[0].instance_id


def in_memory() -> Ec2:
    memory = Memory()
    return Ec2(
        memory.fleet,
        lambda: a_plan(job_id=str(uuid.uuid4())),
        lambda: memory.fleet.empty.add(SPOT_A),
    )


@pytest.fixture(scope="session")
def world() -> Iterator[Aws]:
    with start() as cloud:
        aws = Aws(cloud)
        yield aws


@pytest.fixture(scope="session")
def template(world: Aws) -> str:
    return make_template(world)


def in_world(aws: Aws, template: str) -> Ec2:
    subnets = subnets_of(aws)

    def plan() -> Plan:
        return a_plan(
            job_id=str(uuid.uuid4()),
            launch_template=template,
            overrides=tuple(Override(pool, subnets[pool.zone]) for pool in (SPOT_A, SPOT_B)),
        )

    return Ec2(
        Ec2Fleet(lambda: aws.client("ec2"), stack="Reprieve", zones=list(subnets)),
        plan,
        lambda: aws.cloud.control.set_pool(SPOT_A.type, SPOT_A.zone, capacity=0),
    )


@pytest.fixture(params=["memory", pytest.param("world", marks=pytest.mark.e2e)])
def ec2(request: pytest.FixtureRequest) -> Iterator[Ec2]:
    if request.param == "memory":
        yield in_memory()
        return
    aws = request.getfixturevalue("world")
    market = aws.cloud.control.pools()
    yield in_world(aws, request.getfixturevalue("template"))
    aws.cloud.control.put_pools(market)
    for host in aws.cloud.control.hosts():
        if host.state in {"pending", "running"}:
            aws.cloud.control.kill(host.instance_id, events=False)


def test_a_launched_host_is_alive_and_ours_with_its_order_in_a_tag(ec2: Ec2) -> None:
    plan = ec2.plan()

    instance_id = ec2.launch(plan)

    assert ec2.fleet.states([instance_id]) == {instance_id: InstanceState.ALIVE}
    instance = next(i for i in ec2.fleet.ours() if i.instance_id == instance_id)
    assert (instance.market, instance.state) == (Market.SPOT, InstanceState.ALIVE)
    assert (instance.type, instance.zone) in {
        (line.capacity.type, line.capacity.zone) for line in plan.overrides
    }
    assert {
        name: instance.tags[name] for name in instance.tags if name.startswith("reprieve:")
    } == {
        "reprieve:stack": "Reprieve",
        "reprieve:pool": "small",
        "reprieve:order": plan.tag,
    }


def test_the_same_plan_said_again_launches_nothing_new(ec2: Ec2) -> None:
    plan = ec2.plan()

    first, again = ec2.fleet.launch(plan), ec2.fleet.launch(plan)

    assert again == first
    assert len([i for i in ec2.fleet.ours() if i.tags["reprieve:order"] == plan.tag]) == 1


def test_another_try_of_a_plan_launches_another_host(ec2: Ec2) -> None:
    plan = ec2.plan()

    assert ec2.launch(plan) != ec2.launch(replace(plan, try_n=2))


def test_a_plan_whose_host_is_gone_is_answered_with_its_end(ec2: Ec2) -> None:
    plan = ec2.plan()
    instance_id = ec2.launch(plan)
    ec2.fleet.terminate([instance_id])
    eventually(lambda: ec2.fleet.states([instance_id])[instance_id] is InstanceState.GONE)

    answer = ec2.fleet.launch(plan)

    assert answer.instances == ()
    assert [error.code for error in answer.errors] == ["IdempotentInstanceTerminated"]


def test_an_empty_pool_is_passed_over_for_the_next(ec2: Ec2) -> None:
    ec2.empty_first_pool()

    answer = ec2.fleet.launch(ec2.plan())

    assert [launched.capacity for launched in answer.instances] == [SPOT_B]


def test_a_plan_with_nothing_but_an_empty_pool_names_it(ec2: Ec2) -> None:
    ec2.empty_first_pool()
    plan = ec2.plan()

    answer = ec2.fleet.launch(replace(plan, overrides=plan.overrides[:1]))

    assert answer.instances == ()
    assert [(error.code, error.capacity) for error in answer.errors] == [
        ("InsufficientInstanceCapacity", SPOT_A)
    ]


def test_a_terminated_host_is_gone_and_no_more_ours(ec2: Ec2) -> None:
    instance_id = ec2.launch()

    ec2.fleet.terminate([instance_id])
    ec2.fleet.terminate([instance_id])

    eventually(lambda: ec2.fleet.states([instance_id])[instance_id] is InstanceState.GONE)
    assert instance_id not in {i.instance_id for i in ec2.fleet.ours()}


def test_a_stranger_is_not_found_and_keeps_no_other_alive(ec2: Ec2) -> None:
    instance_id = ec2.launch()

    assert ec2.fleet.states([STRANGER]) == {STRANGER: InstanceState.NOT_FOUND}
    ec2.fleet.terminate([STRANGER, instance_id])

    eventually(lambda: ec2.fleet.states([instance_id])[instance_id] is InstanceState.GONE)


def test_nothing_is_marked_while_ec2_takes_nothing_back(ec2: Ec2) -> None:
    assert ec2.fleet.marked([ec2.launch(), STRANGER]) == frozenset()


@pytest.mark.e2e
def test_a_host_under_notice_is_marked_at_once(world: Aws, template: str) -> None:
    ec2 = in_world(world, template)
    instance_id = ec2.launch()

    world.cloud.control.notice(instance_id, channels=[])

    assert ec2.fleet.marked([instance_id, STRANGER]) == {instance_id}
    assert ec2.fleet.states([instance_id])[instance_id] is InstanceState.ALIVE


@pytest.mark.e2e
def test_the_market_of_the_embedded_cloud_has_a_price_for_each_pool(
    world: Aws, template: str
) -> None:
    fleet = in_world(world, template).fleet

    prices = fleet.usd_per_hour(["g5.xlarge"], Market.SPOT)

    assert {kind for kind, _ in prices} == {"g5.xlarge"}
    assert all(0 < price < 1.006 for price in prices.values())
