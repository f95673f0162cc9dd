"""A configuration is whole and known, or one line says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.config import (
    ENVIRONMENT_LIMIT,
    EXAMPLE_IDS,
    Config,
    ConfigError,
    ImageConfig,
    NetworkConfig,
    PoolConfig,
    compact,
    load,
    pascal,
    pool_entry,
)
from reprieve.domain.catalogue import GPU_CLASSES
from reprieve.domain.economics.switches import Policy
from reprieve.edge.settings import PoolSettings

HERE = Path(__file__).parent
GROUP = "arn:aws:resource-groups:us-east-1:111122223333:group/ours"
VPC = "vpc-0123456789abcdef0"
SUBNET = "subnet-0123456789abcdef0"


def test_nothing_chosen_is_one_small_pool() -> None:
    config = load(None, root=HERE)

    assert list(config.pools) == ["gpu"]
    assert config.pools["gpu"].types == GPU_CLASSES["24GBx1"]
    assert config.pools["gpu"].tiers == ("spot", "on-demand")
    assert config.notice_seconds == 120


@pytest.mark.parametrize("name", GPU_CLASSES)
def test_a_pool_may_be_named_by_its_class_and_fits_everywhere(name: str) -> None:
    config = load({"pools": {"a": {"gpu": name}}}, root=HERE)
    assert config.pools["a"].types == GPU_CLASSES[name]


def test_what_a_pool_chooses_reaches_the_functions_and_what_it_does_not_costs_nothing() -> None:
    plain = pool_entry(PoolConfig(), **EXAMPLE_IDS)
    assert not {"strategy", "reservations", "spares_per_hour", "off"} & plain.keys()

    chosen = PoolConfig.model_validate(
        {
            "gpu": "80GBx8",
            "tiers": ["spot", "spot-wider", "reserved", "on-demand"],
            "strategy": "capacity-optimized",
            "reservations": ["cr-0123456789abcdef0"],
            "spares_per_hour": 2,
            "off": ["scores"],
        }
    )
    read = PoolSettings.model_validate(json.loads(compact(pool_entry(chosen, **EXAMPLE_IDS))))
    pool = read.pool("a")

    assert pool.types == GPU_CLASSES["80GBx8"]
    assert pool.tiers == chosen.tiers
    assert pool.strategy is chosen.strategy
    assert pool.reservations == ("cr-0123456789abcdef0",)
    assert pool.reservation_types == ("on-demand-capacity-reservation",)
    assert pool.spares_per_hour == 2
    assert pool.off == (Policy.SCORES,)


def test_a_file_may_say_it_and_the_context_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text("pools: {a: {max_hosts: 7}}\nlog_days: 7\n")

    config = load({"config": "pools.yaml", "log_days": 14}, root=tmp_path)

    assert config.pools["a"].max_hosts == 7
    assert config.log_days == 14


def test_the_command_line_says_it_in_json() -> None:
    assert load('{"pools": {"b": {}}}', root=HERE).pools.keys() == {"b"}


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ({"pool": {}}, "pool: no such key; known: pools, network, notice_seconds"),
        ({"pools": {}}, "pools: Dictionary should have at least 1 item"),
        ({"pools": {"GPU": {}}}, "pools.GPU = 'GPU': String should match pattern"),
        ({"pools": {"a": {"types": []}}}, "pools.a.types = []: Tuple should have at least 1"),
        ({"pools": {"a": {"types": ["a100"]}}}, "pools.a.types.0 = 'a100': String should match"),
        (
            {"pools": {"a": {"types": ["g5.xlarge", "g5.xlarge"]}}},
            "pools.a.types = ['g5.xlarge', 'g5.xlarge']: name each one once",
        ),
        ({"pools": {"a": {"tiers": ["cheap"]}}}, "pools.a.tiers.0 = 'cheap': Input should be"),
        (
            {"pools": {"a": {"gpu": "24GB"}}},
            "pools.a.gpu = '24GB': no such class of GPU hosts; known: 16GBx1, 24GBx1",
        ),
        (
            {"pools": {"a": {"gpu": "24GBx1", "types": ["g5.xlarge"]}}},
            "pools.a: gpu and types say the same thing: give one of them",
        ),
        (
            {"pools": {"a": {"types": ["g5g.xlarge"]}}},
            "pools.a.types.0 = 'g5g.xlarge': hosts of this type can't run here: arm64",
        ),
        (
            {"pools": {"a": {"types": ["g4ad.xlarge"]}}},
            "pools.a.types.0 = 'g4ad.xlarge': hosts of this type can't run here: its GPU is AMD's",
        ),
        (
            {"pools": {"a": {"tiers": ["reserved", "on-demand"]}}},
            "pools.a: reservations and the tier reserved come together: give both",
        ),
        (
            {"pools": {"a": {"reservations": ["cr-0123456789abcdef0"]}}},
            "pools.a: reservations and the tier reserved come together: give both",
        ),
        (
            {"pools": {"a": {"tiers": ["reserved"], "reservations": ["reservation"]}}},
            "pools.a.reservations.0 = 'reservation': String should match pattern",
        ),
        (
            {"pools": {"a": {"tiers": ["reserved"], "reservations": [GROUP, "cr-0123456789"]}}},
            "pools.a: reservations takes ids or one resource group, not both",
        ),
        ({"pools": {"a": {"strategy": "lowest-price"}}}, "pools.a.strategy = 'lowest-price': Inp"),
        ({"pools": {"a": {"spares_per_hour": -1}}}, "pools.a.spares_per_hour = -1: Input should"),
        ({"pools": {"a": {"max_hosts": 0}}}, "pools.a.max_hosts = 0: Input should be greater"),
        (
            {"pools": {"a": {"max_hosts": 1, "on_demand_base": 2}}},
            "pools.a: on_demand_base exceeds max_hosts: raise max_hosts or lower the base",
        ),
        (
            {"pools": {"a": {"tiers": ["spot"], "on_demand_base": 1}}},
            "pools.a: on_demand_base needs the tier on-demand: add it to tiers",
        ),
        ({"pools": {"a-b": {}, "ab": {}}}, None),
        ({"pools": {"a-b": {}, "a-b-": {}}}, "pools: two pools share one name"),
        ({"network": {"vpc_id": VPC}}, "network: vpc_id and subnets come together"),
        (
            {"network": {"vpc_id": VPC, "subnets": {"us-east-1": SUBNET}}},
            "network.subnets.us-east-1 = 'us-east-1': String should match pattern",
        ),
        (
            {"network": {"vpc_id": VPC, "subnets": {"us-east-1a": SUBNET}, "private": True}},
            "network: private shapes a network of our own",
        ),
        ({"alarm_email": "ops"}, "alarm_email = 'ops': String should match pattern"),
        ({"log_days": 8}, "log_days = 8: Input should be 1, 3, 5"),
        ({"tags": {"aws:x": "y"}}, "tags: tag aws:x: the prefix is taken, choose another"),
        ("{", "context reprieve: not JSON"),
        (["a"], "context reprieve: ['a'] is no object: give keys and values"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(raw: Any, line: str | None) -> None:
    if line is None:
        load(raw, root=HERE)
        return
    with pytest.raises(ConfigError) as caught:
        load(raw, root=HERE)

    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_more_than_one_fault_is_counted() -> None:
    with pytest.raises(ConfigError, match=r"\(and 1 more\)$"):
        load({"log_days": 8, "undo_days": -1}, root=HERE)


@pytest.mark.parametrize(
    ("text", "line"),
    [("pools: [", r"line 1: not YAML"), ("- a", r"is no object"), ("'", "not YAML")],
)
def test_a_file_that_says_nothing_usable_is_named(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)

    with pytest.raises(ConfigError, match=line) as caught:
        load({"config": "bad.yaml"}, root=tmp_path)

    assert "bad.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def _pools(count: int) -> dict[str, Any]:
    return {f"pool-{number:02d}": {} for number in range(count)}


def test_what_does_not_fit_into_a_functions_environment_is_refused_with_its_size() -> None:
    with pytest.raises(ConfigError, match=rf"need \d{{4}} bytes .* allows {ENVIRONMENT_LIMIT}"):
        load({"pools": _pools(8)}, root=HERE)


def test_what_is_accepted_fits_into_a_functions_environment_with_room() -> None:
    config = Config.model_validate({"pools": _pools(4), "network": {"zones": 6}})

    environment = config.example_environment()
    size = sum(len(key) + len(compact(value)) for key, value in environment.items())
    assert size < ENVIRONMENT_LIMIT - 1000
    assert json.loads(compact(environment))["POOLS"].keys() == _pools(4).keys()


@pytest.mark.parametrize(("name", "expected"), [("gpu", "Gpu"), ("a100-x8", "A100X8"), ("b-", "B")])
def test_a_pools_name_becomes_part_of_a_logical_id(name: str, expected: str) -> None:
    assert pascal(name) == expected


def test_the_manual_names_every_key() -> None:
    manual = (HERE.parents[1] / "docs" / "operations.md").read_text()
    start = manual.index("## Configuration")
    table = manual[start : manual.index("##", start + 2)]

    models = (Config, PoolConfig, NetworkConfig, ImageConfig)
    keys = {key for model in models for key in model.model_fields}
    assert {key for key in keys if f"{key}" not in table} == set()
