"""The judgements behind ``doctor``; that it runs is seen on the embedded cloud."""

from __future__ import annotations

import pytest

from reprieve.domain.host import Market
from reprieve_cli.doctor import Check, State, judge_quota, quota_of, verdict
from reprieve_cli.errors import Exit
from tests.cli.conftest import a_pool

QUOTAS = {
    "All G and VT Spot Instance Requests": 8.0,
    "All P5 Spot Instance Requests": 192.0,
    "All P4, P3 and P2 Spot Instance Requests": 0.0,
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests": 640.0,
    "All Inf Spot Instance Requests": 0.0,
    "Running On-Demand G and VT instances": 4.0,
    "Running On-Demand P instances": 96.0,
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": 640.0,
    "VPC Elastic IP addresses": 5.0,
}


@pytest.mark.parametrize(
    ("kind", "market", "vcpus"),
    [
        ("g5.xlarge", Market.SPOT, 8),
        ("g6e.2xlarge", Market.SPOT, 8),
        ("gr6.4xlarge", Market.SPOT, 8),
        ("vt1.3xlarge", Market.SPOT, 8),
        ("p5.48xlarge", Market.SPOT, 192),
        ("p5en.48xlarge", Market.SPOT, 192),
        ("p4d.24xlarge", Market.SPOT, 0),
        ("inf2.xlarge", Market.SPOT, 0),
        ("p5.48xlarge", Market.ON_DEMAND, 96),
        ("g5.xlarge", Market.ON_DEMAND, 4),
        ("c7i.large", Market.ON_DEMAND, 640),
        ("u-6tb1.metal", Market.ON_DEMAND, None),
    ],
)
def test_a_type_counts_against_the_quota_of_its_family(
    kind: str, market: Market, vcpus: float | None
) -> None:
    assert quota_of(kind, market, QUOTAS) == vcpus


@pytest.mark.parametrize(
    ("quota", "market", "state"),
    [
        (8, Market.SPOT, State.OK),
        (4, Market.SPOT, State.WARN),
        (0, Market.SPOT, State.FAIL),
        (0, Market.ON_DEMAND, State.WARN),
    ],
)
def test_one_job_needs_room_for_two_hosts(quota: float, market: Market, state: State) -> None:
    names = {
        Market.SPOT: "All G and VT Spot Instance Requests",
        Market.ON_DEMAND: "Running On-Demand G and VT instances",
    }
    vcpus = {"g5.xlarge": 4, "g6.xlarge": 4}

    check = judge_quota(a_pool(), market, quotas={names[market]: quota}, vcpus=vcpus)

    assert check.state is state
    assert (check.remedy == "") is (state is State.OK)


def test_the_verdict_is_no_only_if_something_failed() -> None:
    fine = [Check("a", State.OK, "x"), Check("b", State.WARN, "x"), Check("c", State.SKIPPED, "x")]
    assert verdict(fine) is None

    bad = verdict([*fine, Check("d", State.FAIL, "gone", "put it back", Exit.UNREACHABLE)])
    assert bad
    assert (str(bad), bad.exit_code) == ("d: gone: put it back", 3)
