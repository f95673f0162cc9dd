"""The client token follows the request's content; every error code has one class."""

from __future__ import annotations

import json

import pytest

from reprieve.domain.host import Market
from reprieve.domain.needs import Needs
from reprieve.domain.order import (
    ACTIONS,
    ERROR_CLASSES,
    Action,
    ErrorClass,
    Member,
    OrderState,
    Plan,
    action_for,
    classify,
    order_for,
)
from tests.builders import a_job, a_plan, a_spec, an_order, at

TOKEN_LENGTH = 64


def test_the_same_request_has_the_same_token_and_another_request_another() -> None:
    assert a_plan().client_token == a_plan().client_token
    others = [
        a_plan(try_n=2),
        a_plan(market=Market.ON_DEMAND),
        a_plan(attempt=2),
        a_plan(overrides=a_plan().overrides[:1]),
        a_plan(launch_template_version="2"),
    ]
    assert len({p.client_token for p in [a_plan(), *others]}) == len(others) + 1
    assert len(a_plan().client_token) == TOKEN_LENGTH


def test_a_stored_plan_comes_back_word_for_word() -> None:
    plan = a_plan()
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).client_token == plan.client_token


def test_a_plan_for_several_names_them_in_line_and_carries_one_tag() -> None:
    alone, together = a_plan(), a_plan(followers=(Member("job-2", 3, 1),))

    assert alone.members == (Member("job-1", 1, 1),)
    assert together.members == (Member("job-1", 1, 1), Member("job-2", 3, 1))
    assert together.tag == alone.tag == "job-1#1#1"
    assert together.client_token != alone.client_token
    assert Plan.from_json(together.to_json()) == together


def test_a_plan_of_an_older_version_is_read() -> None:
    raw = json.loads(a_plan().to_json())
    del raw["followers"], raw["reservations"]

    assert Plan.from_json(json.dumps(raw)) == a_plan()


def test_an_order_takes_along_what_the_planner_needs_of_its_job() -> None:
    job = a_job(spec=a_spec(needs=Needs(gpus=2)))

    order = order_for(job, 2, reason="notice", now=at(5), at_risk=40)

    assert (order.job, order.attempt, order.pool) == ("job-1", 2, "small")
    assert (order.needs, order.at_risk, order.spare) == (Needs(gpus=2), 40, False)
    assert order.member == Member("job-1", 2, 1)


def test_a_reopened_order_is_at_its_next_try_with_every_tier_ahead() -> None:
    stood = an_order(state=OrderState.UNFILLED, try_n=4, tier=1, outcome="dry", failures=2)

    again = stood.reopened(now=at(9))

    assert (again.state, again.try_n, again.tier, again.outcome) == (OrderState.OPEN, 5, 0, "")
    assert again.failures == 2


# The codes that AWS documents or that people met, each with its class and its action.
CODES = [
    ("InsufficientInstanceCapacity", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("UnfulfillableCapacity", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("InsufficientCapacity", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("InsufficientCapacityOnHost", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("ReservationCapacityExceeded", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("Unsupported", ErrorClass.PLACE, Action.ASK_ELSEWHERE),
    ("InsufficientFreeAddressesInSubnet", ErrorClass.SUBNET, Action.DROP_SUBNET),
    ("MaxSpotInstanceCountExceeded", ErrorClass.SPOT_LIMIT, Action.WAIT_FOR_QUOTA),
    ("VcpuLimitExceeded", ErrorClass.LIMIT, Action.OTHER_QUOTA),
    ("InstanceLimitExceeded", ErrorClass.LIMIT, Action.OTHER_QUOTA),
    ("MaxFleetCountExceeded", ErrorClass.LIMIT, Action.OTHER_QUOTA),
    ("SpotMaxPriceTooLow", ErrorClass.PRICE, Action.NEXT_TIER),
    ("RequestLimitExceeded", ErrorClass.THROTTLE, Action.REPLAY),
    ("Unavailable", ErrorClass.THROTTLE, Action.REPLAY),
    ("InternalError", ErrorClass.THROTTLE, Action.REPLAY),
    ("ServiceUnavailable", ErrorClass.THROTTLE, Action.REPLAY),
    ("InternalFailure", ErrorClass.THROTTLE, Action.REPLAY),
    ("InvalidFleetConfig", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("InvalidParameterValue", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("InvalidParameterNobodyListed", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("InvalidAMIID.NotFound", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("Invalid IAM Instance Profile", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("InvalidLaunchTemplateId.NotFound", ErrorClass.CONFIGURATION, Action.ONCE_MORE),
    ("UnauthorizedOperation", ErrorClass.PERMISSION, Action.ASK_A_PERSON),
    (
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        ErrorClass.PERMISSION,
        Action.ASK_A_PERSON,
    ),
    ("IdempotentParameterMismatch", ErrorClass.OURS, Action.LOOK_FIRST),
    ("IdempotentInstanceTerminated", ErrorClass.ENDED, Action.TRY_AGAIN),
    ("BrandNewLimit", ErrorClass.CAPACITY, Action.ASK_OTHERS),
    ("", ErrorClass.CAPACITY, Action.ASK_OTHERS),
]


@pytest.mark.parametrize(("code", "kind", "action"), CODES)
def test_each_code_is_of_one_class_and_asks_for_one_thing(
    code: str, kind: ErrorClass, action: Action
) -> None:
    assert classify(code) is kind
    assert action_for(code) is action


def test_every_class_has_its_own_action() -> None:
    assert set(ACTIONS) == set(ErrorClass)
    assert sorted(ACTIONS.values()) == sorted(Action)
    assert set(ERROR_CLASSES.values()) == set(ErrorClass)
