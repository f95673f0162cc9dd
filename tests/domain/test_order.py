"""The client token follows the request's content; every error code has one class."""

from __future__ import annotations

import pytest

from reprieve.domain.host import Market
from reprieve.domain.order import ErrorClass, Plan, classify
from tests.builders import a_plan

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


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", ErrorClass.CAPACITY),
        ("UnfulfillableCapacity", ErrorClass.CAPACITY),
        ("MaxSpotInstanceCountExceeded", ErrorClass.LIMIT),
        ("VcpuLimitExceeded", ErrorClass.LIMIT),
        ("RequestLimitExceeded", ErrorClass.THROTTLE),
        ("InvalidAMIID.NotFound", ErrorClass.CONFIGURATION),
        ("InvalidLaunchTemplateId.NotFound", ErrorClass.CONFIGURATION),
        ("UnauthorizedOperation", ErrorClass.PERMISSION),
        ("IdempotentParameterMismatch", ErrorClass.OURS),
        ("BrandNewLimit", ErrorClass.CAPACITY),
    ],
)
def test_each_code_asks_for_one_thing(code: str, kind: ErrorClass) -> None:
    assert classify(code) is kind
