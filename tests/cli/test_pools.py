"""What the planner says to people: `pools`, `submit --dry-run`, and jobs that no host holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprieve.domain.capacity import Cold, Quotes, Tier
from reprieve.domain.economics.pools import History
from reprieve.domain.host import CapacityPool, HostState, Market
from reprieve.domain.needs import Needs
from reprieve.ports.rows import Chill, PutQuotes, Remember
from tests.builders import POOL, SPOT_A, SPOT_B, a_host, a_notice, at
from tests.cli.conftest import Cli, a_pool


@pytest.fixture
def story(cli: Cli) -> Cli:
    """Return a pool with a host under notice, a dry capacity pool, prices and a past."""
    going = a_host(state=HostState.DRAINING, notice=a_notice(reclaimed_at=at(700)))
    cli.memory.hosts.adopt(going)
    cli.memory.hosts.adopt(a_host("i-0cccccccccccccccc", capacity=SPOT_B, usd_per_hour=0.4))
    dry = CapacityPool("g6.xlarge", "us-east-1b", Market.SPOT)
    usd = {("g5.xlarge", "us-east-1b"): 0.41, ("g6.xlarge", "us-east-1a"): 0.33}
    cli.memory.rows.commit([Chill(POOL, dry, Cold(at(720), "InsufficientInstanceCapacity"))])
    cli.memory.rows.commit([Remember(POOL, SPOT_A, History(hours=12.0, interruptions=2))])
    cli.memory.rows.commit([PutQuotes(POOL, Quotes.of(usd, at=at(500)))])
    return cli


def test_pools_says_what_each_tier_asks_for_and_why_not_for_the_rest(story: Cli) -> None:
    assert story("pools") == 0

    assert [line.rstrip() for line in story.out.splitlines()] == [
        "pool small: 2 types in 2 zones; 1 of 2 hosts, $0.400/h of $5.00/h; a host and",
        "its replacement take 8 vCPUs of quota at least",
        "TIER       ASKS  $/H    FIRST, OR WHY NOTHING",
        "spot       1     0.410  g5.xlarge in us-east-1b",
        "on-demand  4     0.805  g6.xlarge in us-east-1a",
        "parked                  with its reason and a next try",
        "",
        "LEFT OUT              WHY",
        "g5.xlarge us-east-1a  interruption notice of i-0aaaaaaaaaaaaaaaa, until 12:11:40",
        "g6.xlarge us-east-1b  InsufficientInstanceCapacity, until 12:12:00",
        "g6.xlarge us-east-1a  its zone is being taken back, until 12:11:40",
        "",
        "SEEN                  HOURS  TAKEN BACK  LAUNCHES",
        "g5.xlarge us-east-1a  12.0   2           0 of 0",
        "",
        "small: spot, 1 capacity pool, first of all g5.xlarge in us-east-1b at $0.410/h",
    ]
    assert all(len(line) <= 80 for line in story.out.splitlines())


def test_pools_json_holds_every_reason(story: Cli) -> None:
    assert story("pools", "--json") == 0

    (pool,) = story.document["pools"]
    assert pool["pool"] == POOL
    assert (pool["hosts"], pool["max_hosts"], pool["vcpus_for_both_copies"]) == (1, 2, 8)
    spot, on_demand = pool["tiers"]
    assert (spot["tier"], on_demand["tier"]) == ("spot", "on-demand")
    assert [ask["instance_type"] for ask in spot["asks"]] == ["g5.xlarge"]
    assert {left["why"] for left in spot["left_out"]} == {
        "interruption notice of i-0aaaaaaaaaaaaaaaa",
        "InsufficientInstanceCapacity",
        "its zone is being taken back",
    }
    assert pool["history"][0]["interruptions"] == 2


def test_a_pool_at_its_cap_says_so(cli: Cli) -> None:
    for n in range(2):
        cli.memory.hosts.adopt(a_host(f"i-{n:017x}"))

    assert cli("pools") == 0

    assert cli.last_line == "small: nothing to ask for: pool small is at its cap of 2 hosts"


def test_a_stack_from_before_zones_were_said_is_named(cli: Cli) -> None:
    older = replace(cli.cloud, stack=replace(cli.cloud.stack, outputs={}))
    cli.find_cloud = lambda: older

    assert cli("pools") == 2
    assert "deploy it again" in cli.err


def test_a_dry_run_says_the_plan_for_this_job_and_writes_nothing(story: Cli) -> None:
    rows = dict(story.memory.job_rows)
    assert story("submit", "--dry-run", "--precision", "fp8", "--json", "--", "x") == 0

    document = story.document
    assert document["dry_run"] is True
    assert document["needs"] == "1 GPU, fp8"
    asked = {ask["instance_type"] for tier in document["tiers"] for ask in tier["asks"]}
    assert asked == {"g6.xlarge"}
    assert story.memory.job_rows == rows
    assert story.memory.order_rows == {}
    assert story.memory.mail.tickets == []
    assert story.objects.uploads == 0


def test_a_dry_run_ends_with_what_would_be_asked_first(story: Cli) -> None:
    assert story("submit", "--dry-run", "--gpus", "1", "--", "x") == 0

    assert "for a job with 1 GPU" in story.out
    assert story.last_line.startswith("small: spot, 1 capacity pool, first of all g5.xlarge")


def test_what_a_job_needs_travels_in_its_spec_and_its_order(cli: Cli) -> None:
    status = cli(
        *("submit", "--gpus", "1", "--gpu-memory", "20", "--compute-capability", "8.0+, 8.6"),
        *("--precision", "bf16", "--host-memory", "16", "--json", "--", "x"),
    )

    assert status == 0
    needs = Needs(
        gpus=1,
        gpu_memory_mib=20 * 1024,
        capabilities=("8.0+", "8.6"),
        precision="bf16",
        host_memory_gib=16,
    )
    job = cli.document["id"]
    assert cli.memory.job_rows[job].spec.needs == needs
    assert cli.memory.order_rows[job, 1].needs == needs


def test_where_a_job_goes_on_must_be_another_pool_that_holds_it(cli: Cli) -> None:
    large = replace(a_pool("large"), types=("g6e.xlarge",), tiers=(Tier.ON_DEMAND,))
    both = {POOL: a_pool(), "large": large}
    cloud = replace(cli.cloud, stack=replace(cli.cloud.stack, pools=both))
    cli.find_cloud = lambda: cloud

    assert cli("submit", "--pool", POOL, "--fallback-pool", "large", "--json", "--", "x") == 0
    assert cli.memory.job_rows[cli.document["id"]].spec.fallback_pool == "large"
    assert cli("submit", "--pool", POOL, "--fallback-pool", POOL, "--", "x") == 2
    assert cli("submit", "--pool", POOL, "--fallback-pool", "nope", "--", "x") == 2
    needs: Any = ("--gpu-model", "L40S")
    assert cli("submit", "--pool", "large", "--fallback-pool", POOL, *needs, "--", "x") == 2
    assert "pool small: none of the 2 types can hold 1 L40S" in cli.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpus", "8"), "pool small: none of the 2 types can hold 8 GPUs: g6.xlarge has 1 GPU"),
        (("--gpu-memory", "40"), "22,888 MiB a GPU, 45,056 are needed with 10 % to spare"),
        (("--gpu-model", "V100"), "none of the 2 types can hold 1 V100"),
        (("--gpu-model", "RTX 9"), "isn't sold: known are A100, A10G"),
        (("--nvlink",), "has no NVLink"),
        (("--compute-capability", "9.0"), "which the code isn't compiled for"),
        (("--compute-capability", "sm_80"), "write 8.0, or 8.0+ for code with PTX"),
        (("--same-gpus",), "--same-gpus needs --gpu-model and --gpus"),
        (("--precision", "fp4"), "'fp4' is not one of"),
        (("--gpus", "0"), "0 is not in the range"),
        (("--host-memory", "64"), "has 16 GiB of memory, not 64"),
    ],
)
def test_a_job_that_no_host_can_hold_is_refused_in_one_line(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    assert cli("submit", *arguments, "--", "x") == 2

    assert said in cli.err
    assert len([line for line in cli.err.splitlines() if line.startswith("error")]) == 1
    assert cli.memory.job_rows == {}
