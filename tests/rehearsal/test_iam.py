"""The judge of policies, on its own: a judge that lets everything pass proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal.iam import CannotJudgeError, Policies, Request, Verdict, matches

TABLE = "arn:aws:dynamodb:us-east-1:000000000000:table/Jobs"


def policy(*statements: dict[str, Any]) -> Policies:
    return Policies.of([{"Version": "2012-10-17", "Statement": list(statements)}])


def allow(action: Any = "s3:GetObject", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Sid": "Yes", "Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: Any = "s3:GetObject", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Sid": "No", "Effect": "Deny", "Action": action, "Resource": resource, **more}


def request(action: str = "s3:GetObject", resource: str = "arn:x", **context: str) -> Request:
    return Request(action, resource, {key: (value,) for key, value in context.items()})


def test_what_no_statement_speaks_of_is_refused() -> None:
    assert policy(allow("s3:PutObject")).judge(request()) == Verdict(allowed=False, by=None)


def test_what_is_allowed_names_the_statement_that_allows_it() -> None:
    assert policy(allow()).judge(request()) == Verdict(allowed=True, by="Yes")


@pytest.mark.parametrize("order", [1, -1], ids=["allow first", "deny first"])
def test_a_denial_wins_whatever_its_place(order: int) -> None:
    judged = policy(*[allow(), deny()][::order]).judge(request())

    assert judged == Verdict(allowed=False, by="No")


def test_a_denial_whose_condition_fails_is_silent() -> None:
    denial = deny(Condition={"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}})

    guarded = policy(allow(), denial)

    assert guarded.judge(
        Request("s3:GetObject", "x", {"ec2:MetadataHttpTokens": ("required",)})
    ).allowed
    assert not guarded.judge(
        Request("s3:GetObject", "x", {"ec2:MetadataHttpTokens": ("optional",)})
    ).allowed
    assert not guarded.judge(Request("s3:GetObject", "x")).allowed  # unsaid is not "required"


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("arn:aws:s3:::b/jobs/a/b", "arn:aws:s3:::b/jobs/*", True),
        ("arn:aws:s3:::b/jobs", "arn:aws:s3:::b/jobs/*", False),
        ("arn:aws:s3:::b/code/x", "arn:aws:s3:::b/jobs/*", False),
        ("JOB#a", "JOB#*", True),
        ("MYJOB#a", "JOB#*", False),
        ("i-1", "i-?", True),
        ("i-12", "i-?", False),
        ("a[b]", "a[b]", True),
        ("ab", "a[b]", False),
    ],
)
def test_wildcards_are_star_and_question_mark_alone(
    text: str, pattern: str, *, expected: bool
) -> None:
    assert matches(text, pattern) is expected


def test_actions_are_compared_without_case_and_resources_with_it() -> None:
    rights = policy(allow("s3:getobject", "arn:X"))

    assert rights.judge(request("S3:GetObject", "arn:X")).allowed
    assert not rights.judge(request("s3:GetObject", "arn:x")).allowed


def with_condition(condition: dict[str, Any]) -> Policies:
    return policy(allow(Condition=condition))


@pytest.mark.parametrize(
    ("condition", "given", "expected"),
    [
        ({"StringEquals": {"k": "a"}}, ("a",), True),
        ({"StringEquals": {"k": ["a", "b"]}}, ("b",), True),
        ({"StringEquals": {"k": "a"}}, ("A",), False),
        ({"StringEquals": {"k": "a*"}}, ("ab",), False),
        ({"StringEquals": {"k": "a"}}, None, False),
        ({"StringEqualsIfExists": {"k": "a"}}, None, True),
        ({"StringEqualsIfExists": {"k": "a"}}, ("b",), False),
        ({"StringLike": {"k": "a*"}}, ("ab",), True),
        ({"StringLikeIfExists": {"k": "jobs/*"}}, None, True),
        ({"StringLikeIfExists": {"k": "jobs/*"}}, ("code/",), False),
        ({"StringNotEquals": {"k": "a"}}, ("b",), True),
        ({"StringNotEquals": {"k": "a"}}, ("a",), False),
        ({"StringNotEquals": {"k": "a"}}, None, True),
        ({"StringNotLike": {"k": "a*"}}, ("ab",), False),
        ({"ForAllValues:StringLike": {"k": ["JOB#*", "LEASE#*"]}}, ("JOB#1", "LEASE#1"), True),
        ({"ForAllValues:StringLike": {"k": ["JOB#*"]}}, ("JOB#1", "HOST#1"), False),
        ({"ForAllValues:StringLike": {"k": ["JOB#*"]}}, (), True),
        ({"ForAllValues:StringLike": {"k": ["JOB#*"]}}, None, True),
        ({"ForAnyValue:StringEquals": {"k": "a"}}, ("b", "a"), True),
        ({"ForAnyValue:StringEquals": {"k": "a"}}, None, False),
    ],
)
def test_conditions_hold_as_the_manual_says(
    condition: dict[str, Any], given: tuple[str, ...] | None, *, expected: bool
) -> None:
    context = {} if given is None else {"k": given}

    assert with_condition(condition).judge(Request("s3:GetObject", "x", context)).allowed is (
        expected
    )


def test_every_condition_must_hold() -> None:
    both = with_condition({"StringEquals": {"a": "1", "b": "2"}})

    assert both.judge(request(a="1", b="2")).allowed
    assert not both.judge(request(a="1", b="3")).allowed


def test_condition_keys_are_compared_without_case() -> None:
    rights = with_condition({"StringEquals": {"aws:RequestedRegion": "us-east-1"}})

    assert rights.judge(
        Request("s3:GetObject", "x", {"aws:requestedregion": ("us-east-1",)})
    ).allowed


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:*", "NotResource": "*"},
        allow(Condition={"NumericLessThan": {"s3:max-keys": "10"}}),
        allow(Condition={"ForMostValues:StringEquals": {"k": "a"}}),
        allow(resource="arn:aws:s3:::b/${aws:username}/*"),
        allow(resource={"Fn::GetAtt": ["Table", "Arn"]}),
    ],
    ids=["NotAction", "NotResource", "operator", "quantifier", "variable", "unresolved"],
)
def test_what_it_does_not_know_it_refuses_to_judge(statement: dict[str, Any]) -> None:
    with pytest.raises(CannotJudgeError):
        policy(statement)


def test_a_policy_may_hold_one_statement_without_a_list() -> None:
    rights = Policies.of([{"Statement": allow(["s3:GetObject", "s3:PutObject"], [TABLE])}])

    assert rights.judge(request("s3:PutObject", TABLE)).allowed
