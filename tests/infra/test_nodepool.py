"""Every key of a node-pool file is taken, translated or refused, and the reason is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import nodepool
from infra.config import ConfigError, load_mapping
from infra.nodepool import Verdict, translate

TAKEN, TRANSLATED, REFUSED = Verdict.TAKEN, Verdict.TRANSLATED, Verdict.REFUSED

TYPICAL = """
apiVersion: compute/v1
kind: NodePool
metadata:
  name: gpu-training
spec:
  regions: [us-east-1, us-west-2]
  instanceTypes: [ml.p4d.24xlarge, p5.48xlarge, g5.48xlarge, g6.48xlarge, g6e.48xlarge]
  spot:
    maxPrice: 12.50
    diversificationStrategy: lowestPrice
    spotInstancePools: 3
  onDemandBaseCapacity: 1
  maxSize: 4
"""


def test_a_typical_file_is_read_key_by_key() -> None:
    translation = translate(yaml.safe_load(TYPICAL))

    assert {line.key: line.verdict for line in translation.lines} == {
        "apiVersion": TAKEN,
        "kind": TAKEN,
        "metadata": TAKEN,
        "spec.regions": TRANSLATED,
        "spec.instanceTypes": TRANSLATED,
        "spec.spot.maxPrice": TRANSLATED,
        "spec.spot.diversificationStrategy": TRANSLATED,
        "spec.spot.spotInstancePools": REFUSED,
        "spec.onDemandBaseCapacity": TAKEN,
        "spec.maxSize": TAKEN,
    }
    assert translation.config == {
        "pools": {
            "gpu-training": {
                "types": [
                    "p4d.24xlarge",
                    "p5.48xlarge",
                    "g5.48xlarge",
                    "g6.48xlarge",
                    "g6e.48xlarge",
                ],
                "on_demand_base": 1,
                "tiers": ["spot", "on-demand"],
                "max_hosts": 4,
                "max_usd_per_hour": 50.0,
            }
        }
    }


CASES: list[tuple[str, Any, Verdict, str, dict[str, Any]]] = [
    ("region", "us-east-1", TRANSLATED, "AWS_REGION=us-east-1 cdk deploy", {}),
    ("maxPrice", 2, TRANSLATED, "no maximum price", {"max_usd_per_hour": 4.0}),
    ("maxPrice", "$0.5", TRANSLATED, "times max_hosts", {"max_usd_per_hour": 1.0}),
    ("maxPrice", "on-demand", REFUSED, "isn't a value", {}),
    ("spotMaxPrice", 0, REFUSED, "isn't a value", {}),
    ("instanceTypes", ["g5.xlarge"], TAKEN, "only 1 types", {"types": ["g5.xlarge"]}),
    ("instance-types", ["g5.xlarge", "A100"], TRANSLATED, "A100", {"types": ["g5.xlarge"]}),
    ("instanceTypes", ["g5g.xlarge"], REFUSED, "no usable", {}),
    ("diversificationStrategy", "lowestPrice", TRANSLATED, "taken back most", {}),
    ("allocationStrategy", "price-capacity-optimized", TAKEN, "every fleet request", {}),
    (
        "spotAllocationStrategy",
        "capacity-optimized",
        TAKEN,
        "deepest pools first",
        {"strategy": "capacity-optimized"},
    ),
    ("allocationStrategy", "diversified", TRANSLATED, "deepest pools first", {}),
    ("instanceType", ["g5.xlarge", "g4ad.xlarge"], TRANSLATED, "AMD", {"types": ["g5.xlarge"]}),
    ("capacityTypes", ["spot-wider"], TAKEN, "tiers", {"tiers": ["spot-wider"]}),
    ("allocationStrategy", "cheapest", REFUSED, "no allocation strategy", {}),
    ("spotInstancePools", 2, REFUSED, "only lowest-price counts pools", {}),
    ("onDemandBaseCapacity", 0, TAKEN, "on_demand_base", {"on_demand_base": 0}),
    ("onDemandPercentageAboveBaseCapacity", 0, TAKEN, "Spot above the base", {}),
    (
        "onDemandPercentageAboveBaseCapacity",
        100,
        TRANSLATED,
        "tiers: [on-demand]",
        {"tiers": ["on-demand"]},
    ),
    ("onDemandPercentageAboveBaseCapacity", 50, REFUSED, "50 % would pay", {}),
    (
        "capacityTypes",
        ["spot", "on-demand"],
        TAKEN,
        "in this order",
        {"tiers": ["spot", "on-demand"]},
    ),
    ("capacityTypes", ["reserved"], REFUSED, "tiers are spot and on-demand", {}),
    ("maxSize", 9, TAKEN, "max_hosts", {"max_hosts": 9}),
    ("minSize", 0, TAKEN, "no host here either", {}),
    ("minSize", 1, TRANSLATED, "buffer", {"buffer": 1}),
    ("desiredCapacity", 3, REFUSED, "hosts follow the jobs", {}),
    ("budgetPerHour", 7, TAKEN, "max_usd_per_hour", {"max_usd_per_hour": 7.0}),
    ("capacityRebalance", True, TRANSLATED, "two of three", {}),
    ("capacityRebalancing", False, TAKEN, "nobody is moved on advice", {}),
    ("interruptionBehavior", "terminate", TAKEN, "nothing else", {}),
    ("interruptionBehavior", "hibernate", REFUSED, "persistent request", {}),
    (
        "amiId",
        "ami-0123456789abcdef0",
        TAKEN,
        "image.id",
        {"image": {"id": "ami-0123456789abcdef0"}},
    ),
    (
        "imageId",
        "resolve:ssm:/my/ami",
        TAKEN,
        "image.parameter",
        {"image": {"parameter": "/my/ami"}},
    ),
    ("volumeSize", "200Gi", TAKEN, "volume_gb", {"volume_gb": 200}),
    ("labels", {"a": "b"}, REFUSED, "no Kubernetes", {}),
    ("keyName", "me", REFUSED, "accept no connection", {}),
    ("userData", "#!/bin/sh", REFUSED, "installs the agent", {}),
    ("placementGroup", "x", REFUSED, "nothing here does this", {}),
    ("maxSize", "many", REFUSED, "isn't a value", {}),
]


@pytest.mark.parametrize(
    ("key", "value", "verdict", "says", "pool"), CASES, ids=[f"{c[0]}={c[1]}" for c in CASES]
)
def test_a_key_has_its_fate(
    key: str, value: Any, verdict: Verdict, says: str, pool: dict[str, Any]
) -> None:
    translation = translate({key: value})

    (line,) = translation.lines
    assert line.verdict is verdict
    assert says in line.says
    assert translation.config["pools"]["gpu"] == pool
    assert (line in translation.refused) is (verdict is REFUSED)


def test_every_key_that_is_read_has_a_case() -> None:
    words = {nodepool._word(case[0]) for case in CASES}
    aliases = {reader for word, reader in nodepool.READERS.items() if word in words}
    elsewhere = {
        nodepool.READERS[word]
        for word in (
            *("apiversion", "kind", "metadata", "name", "pools", "requirements"),
            *("vpcid", "subnets", "zones", "tags"),
        )
    }

    assert set(nodepool.READERS.values()) == aliases | elsewhere


def test_named_pools_become_pools() -> None:
    translation = translate(
        {
            "pools": [
                {"name": "Small", "instanceTypes": ["g5.xlarge"], "maxPrice": 1},
                {"name": "large", "instanceTypes": ["p5.48xlarge"], "maxSize": 1},
            ]
        }
    )

    assert translation.config["pools"] == {
        "small": {"types": ["g5.xlarge"], "max_usd_per_hour": 2.0},
        "large": {"types": ["p5.48xlarge"], "max_hosts": 1},
    }


def test_pools_of_types_in_zones_become_types() -> None:
    translation = translate(
        {"pools": [{"type": "g5.xlarge", "zone": "us-east-1a", "weight": 2}, "g6.xlarge"]}
    )

    assert translation.config["pools"]["gpu"]["types"] == ["g5.xlarge", "g6.xlarge"]
    assert "weights fall away" in translation.lines[0].says


def test_karpenters_requirements_are_read_one_by_one() -> None:
    translation = translate(
        {
            "requirements": [
                {
                    "key": "karpenter.sh/capacity-type",
                    "operator": "In",
                    "values": ["spot", "on-demand"],
                },
                {
                    "key": "node.kubernetes.io/instance-type",
                    "operator": "In",
                    "values": ["g5.xlarge"],
                },
                {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["x"]},
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            ]
        }
    )

    assert translation.config["pools"]["gpu"] == {
        "tiers": ["spot", "on-demand"],
        "types": ["g5.xlarge"],
    }
    assert [line.verdict for line in translation.lines] == [TAKEN, TAKEN, REFUSED, REFUSED, TAKEN]


def test_a_network_of_yours_and_tags_belong_to_the_whole() -> None:
    translation = translate(
        {
            "vpcId": "vpc-0123456789abcdef0",
            "subnets": {"us-east-1a": "subnet-0123456789abcdef0"},
            "tags": {"team": "vision"},
        }
    )

    config = load_mapping(translation.config)
    assert config.network.vpc_id == "vpc-0123456789abcdef0"
    assert config.tags == {"team": "vision"}


def test_zones_are_a_number_here() -> None:
    translation = translate({"zones": ["us-east-1a", "us-east-1b"]})

    assert translation.config["network"] == {"zones": 2}


def test_another_kind_of_file_is_named() -> None:
    (line,) = translate({"kind": "Deployment"}).lines

    assert line.verdict is REFUSED
    assert "Deployment" in line.says


def test_a_translation_that_would_not_deploy_is_no_translation() -> None:
    with pytest.raises(ConfigError, match="on_demand_base exceeds max_hosts"):
        translate({"onDemandBaseCapacity": 5, "maxSize": 1})


def test_the_command_prints_a_configuration_and_says_no_when_a_key_was_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodepool.yaml"
    path.write_text(TYPICAL)

    status = nodepool.main([str(path)])
    out, err = capsys.readouterr()

    assert status == 1
    assert load_mapping(yaml.safe_load(out)).pools["gpu-training"].max_hosts == 4
    assert "refused    spec.spot.spotInstancePools: only lowest-price" in err
    assert len(err.splitlines()) == 10


def test_the_command_says_yes_when_nothing_was_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodepool.yaml"
    path.write_text("instanceTypes: [g5.xlarge]\nmaxSize: 3\n")

    assert nodepool.main([str(path)]) == 0


def test_the_command_says_which_file_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nodepool.main([str(tmp_path / "missing.yaml")]) == 2
    assert "missing.yaml" in capsys.readouterr().err
