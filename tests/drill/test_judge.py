"""Expectations about calls, times and counts are kept by what they mean, and nothing else."""

from __future__ import annotations

import pytest

from reprieve_cli.drill.counting import count_calls, count_distinct
from reprieve_cli.drill.document import parse
from reprieve_cli.drill.scenario import CallExpected
from tests.drill.conftest import Theatre
from tests.drill.test_document import HERE, LEAST
from tests.drill.test_steps import HEAD, LAUNCH, host, with_hosts

FLEET = {
    "service": "ec2",
    "action": "CreateFleet",
    "caller": "reprieve-replace_host",
    "resources": ["lt-1"],
    "keys": [],
    "error": None,
    "parameters": {
        "ClientToken": "t-1",
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": "spot"},
        "LaunchTemplateConfigs": [
            {"Overrides": [{"InstanceType": "g5.xlarge"}, {"InstanceType": "g6.xlarge"}]}
        ],
    },
}
UPDATE = {
    "service": "dynamodb",
    "action": "TransactWriteItems",
    "caller": None,
    "resources": ["jobs"],
    "keys": [
        {"op": "Update", "table": "jobs", "pk": "JOB#1", "sk": "JOB"},
        {"op": "Update", "table": "jobs", "pk": "LEASE#1", "sk": "000001#t"},
    ],
    "error": None,
    "parameters": None,  # too long to be kept
}


def expected(text: str) -> CallExpected:
    return parse(
        LEAST.replace("expect: {}", f"expect: {{calls: [{{{text}}}]}}"), HERE
    ).expect.calls[0]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("parameters: {ClientToken: t-1}", 1),
        ("parameters: {ClientToken: t-2}", 0),
        ("parameters: {TargetCapacitySpecification.DefaultTargetCapacityType: spot}", 1),
        ("parameters: {LaunchTemplateConfigs.Overrides.InstanceType: g6.xlarge}", 1),
        ("parameters: {LaunchTemplateConfigs.Overrides.InstanceType: {not: g6.xlarge}}", 0),
        ("parameters: {LaunchTemplateConfigs.Overrides.InstanceType: {not: p5.xlarge}}", 1),
        ("parameters: {SpotOptions.MaxTotalPrice: null}", 1),
        ("parameters: [g5.xlarge, g6.xlarge]", 1),
        ("parameters: [g5.xlarge, p5.xlarge]", 0),
        ('key: "JOB#1/*"', 0),
    ],
)
def test_a_call_is_meant_by_its_parameters(text: str, count: int) -> None:
    pattern = expected(f"service: ec2, action: CreateFleet, {text}").call
    assert count_calls(pattern, [FLEET]) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [('key: "LEASE#*/*"', 1), ('key: "HOST#*/*"', 0), ("parameters: {ClientToken: t-1}", 0)],
)
def test_a_call_is_meant_by_an_item_of_it(text: str, count: int) -> None:
    pattern = expected(f"service: dynamodb, action: '*', {text}").call
    assert count_calls(pattern, [UPDATE]) == count


def test_different_values_of_a_parameter_are_counted() -> None:
    other = FLEET | {"parameters": {"ClientToken": "t-2"}}
    wanted = expected("service: ec2, action: CreateFleet, distinct: ClientToken, count: 2")
    assert wanted.distinct == "ClientToken"
    assert count_distinct("ClientToken", wanted.call, [FLEET, FLEET, other]) == 2


def test_a_call_under_way_is_a_condition(theatre: Theatre) -> None:
    theatre.world.answers["calls"] = [FLEET | {"n": 1}]
    played = theatre.play(
        HEAD
        + """
steps:
  - when: {call: {service: ec2, action: CreateFleet}, in_flight: true}
    job: {name: train, do: cancel}
expect: {jobs: {train: {status: CANCELLED}}}
"""
    )
    assert played.holds


def test_metadata_requests_are_counted_apart(theatre: Theatre) -> None:
    theatre.world.answers["metadata"] = [
        {**UPDATE, "n": 1, "service": "imds", "action": "api/token", "keys": []}
    ] * 2
    played = theatre.play(
        f"{HEAD}expect: {{calls: [{{service: imds, action: api/token, count: 2}}]}}"
    )
    assert played.holds


def test_hosts_are_counted_by_zone_market_and_type(theatre: Theatre) -> None:
    with_hosts(theatre, host("i-1", "us-east-1a"), host("i-2", "us-east-1b"))
    played = theatre.play(
        f"{HEAD}steps:\n  {LAUNCH}"
        """
expect:
  instances:
    launched: 2
    zone: {us-east-1a: 1, us-east-1c: 0}
    market: {spot: 2, on-demand: {at_most: 0}}
    type: {g5.xlarge: {at_least: 3}}
"""
    )
    broken = [(f.what, f.seen) for f in played.findings if not f.holds]
    assert broken == [("instances type g5.xlarge", "2")]


def test_events_are_counted(theatre: Theatre) -> None:
    theatre.world.on["faults"] = theatre.start
    played = theatre.play(
        f"{HEAD}steps:\n  {LAUNCH}"
        """
expect:
  jobs:
    train: {event_counts: {submitted: 1, claimed: {at_most: 0}, nobody: 0, "to pool": 1}}
"""
    )
    found = {f.what: f.holds for f in played.findings}
    assert found["job train: events submitted"]
    assert found["job train: events nobody"]


def test_a_time_between_events_is_measured_on_the_scaled_clock(theatre: Theatre) -> None:
    theatre.world.on["faults"] = theatre.start
    played = theatre.play(
        f"{HEAD}steps:\n  {LAUNCH}"
        """
expect:
  jobs:
    train:
      times:
        - {from: submitted, to: submitted, seconds: {at_most: 0}}
        - {from: submitted, to: finished, seconds: {at_most: 60}}
        - {from: {world: reclaimed}, to: submitted, seconds: {at_most: 60}}
  seconds: {at_most: 0}
"""
    )
    seen = [(f.what.removeprefix("job train: "), f.seen, f.holds) for f in played.findings]
    assert seen[0] == ("seconds from submitted to submitted", "0.0", True)
    assert seen[1] == (
        "seconds from submitted to finished",
        "no finished after submitted",
        False,
    )
    assert seen[2] == (
        "seconds from the world's reclaimed to submitted",
        "no the world's reclaimed",
        False,
    )
    assert seen[3][0] == "seconds of the scaled clock"
    assert not seen[3][2]
