"""Which host holds which job: by MiB and by capability, never by a label."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from infra.gpu_types import DATA, MODULE, module
from reprieve.domain.capacity import Tier
from reprieve.domain.catalogue import (
    EXCLUDED_FAMILIES,
    GPU_CLASSES,
    GPU_TYPES,
    excluded,
    holds,
    none_holds,
    on_demand_usd,
    why_not,
    wider,
)
from reprieve.domain.needs import NOTHING, Needs
from reprieve.domain.order import ErrorClass

# type x zone in us-east-1, us-east-2 and us-west-2: what a class is worth as Spot pools.
POOLS = {
    "16GBx1": (12, 58, 36, 41),
    "24GBx1": (13, 60, 39, 48),
    "24GBx4": (7, 32, 21, 26),
    "24GBx8": (8, 28, 18, 28),
    "48GBx1": (9, 32, 26, 36),
    "40GBx8": (8, 21, 21, 26),
    "80GBx8": (7, 15, 15, 20),
    "141GBx8": (4, 5, 9, 9),
}


def test_the_module_says_what_the_data_file_says() -> None:
    assert MODULE.read_text(encoding="utf-8") == module(), "run python -m infra.gpu_types"
    assert len(GPU_TYPES) == 54


@pytest.mark.parametrize("name", GPU_CLASSES)
def test_a_class_is_made_of_types_that_hold_it(name: str) -> None:
    memory, _, gpus = name.partition("GBx")
    nominal_mib = int(memory) * 1000 * 1000 * 1000 // (1024 * 1024)
    for kind in GPU_CLASSES[name]:
        host = GPU_TYPES[kind]
        assert host.gpus >= int(gpus)
        assert host.gpu_mib >= nominal_mib * 0.99
        assert host.spot
        assert not excluded(kind)


@pytest.mark.parametrize("name", GPU_CLASSES)
def test_a_class_is_as_many_pools_as_the_manual_says(name: str) -> None:
    with DATA.open(encoding="utf-8") as file:
        rows = {row["instance_type"]: row for row in csv.DictReader(file)}
    columns = ("az_us-east-1", "az_us-east-2", "az_us-west-2")
    counted = [sum(int(rows[kind][c]) for kind in GPU_CLASSES[name]) for c in columns]

    assert (len(GPU_CLASSES[name]), *counted) == POOLS[name]


def test_no_class_has_a_type_that_cannot_run_here() -> None:
    families = {GPU_TYPES[kind].family for kinds in GPU_CLASSES.values() for kind in kinds}
    assert not families & EXCLUDED_FAMILIES.keys()
    assert excluded("g5g.xlarge").startswith("arm64")
    assert excluded("g6f.large").startswith("a fraction")
    assert not excluded("g6.xlarge")


@pytest.mark.parametrize(
    ("kind", "needs", "lack"),
    [
        ("g4dn.xlarge", Needs(gpu_memory_mib=15_000), "16,384 MiB a GPU, 16,500 are needed"),
        ("g4dn.xlarge", Needs(gpu_memory_mib=14_000), ""),
        # A "24 GB" card: 20.8 GiB at the peak fit with 10 % to spare, 21 GiB don't.
        ("g5.xlarge", Needs(gpu_memory_mib=20_800), ""),
        ("g5.xlarge", Needs(gpu_memory_mib=21 * 1024), "22,888 MiB a GPU"),
        ("g5.xlarge", Needs(gpus=2), "has 1 GPU of 2"),
        ("g5.12xlarge", Needs(gpus=2), ""),
        ("g4dn.xlarge", Needs(precision="bf16"), "capability 7.5, bf16 takes 8.0"),
        ("p3dn.24xlarge", Needs(precision="bf16"), "capability 7.0, bf16 takes 8.0"),
        ("g5.xlarge", Needs(precision="bf16"), ""),
        ("g5.xlarge", Needs(precision="fp8"), "capability 8.6, fp8 takes 8.9"),
        ("g6.xlarge", Needs(precision="fp8"), ""),
        ("g6.xlarge", Needs(capabilities=("8.0",)), ""),
        ("p5.4xlarge", Needs(capabilities=("8.0",)), "isn't compiled for"),
        ("p5.4xlarge", Needs(capabilities=("8.0+",)), ""),
        ("g5.xlarge", Needs(capabilities=("8.9", "9.0")), "isn't compiled for"),
        ("g7.2xlarge", Needs(capabilities=("10.0",)), "isn't compiled for"),
        ("g5.xlarge", Needs(capabilities=("nonsense",)), "isn't compiled for"),
        ("g6.48xlarge", Needs(gpus=8, nvlink=True), "has no NVLink"),
        ("p4d.24xlarge", Needs(gpus=8, nvlink=True), ""),
        ("g5.xlarge", Needs(gpu_model="L4"), "has A10G, not L4"),
        ("g6.12xlarge", Needs(gpus=1, gpu_model="L4", exact=True), "has 4 GPUs, and results"),
        ("g6.xlarge", Needs(gpus=1, gpu_model="L4", exact=True), ""),
        ("g5.xlarge", Needs(host_memory_gib=32), "has 16 GiB of memory, not 32"),
        ("c7i.large", Needs(gpus=1), "isn't in the catalogue"),
        ("c7i.large", NOTHING, ""),
    ],
)
def test_what_a_type_lacks_is_named(kind: str, needs: Needs, lack: str) -> None:
    said = why_not(kind, needs)
    assert lack in said
    assert bool(lack) is bool(said)
    assert holds(kind, needs) is not bool(lack)


def test_an_impossible_job_is_explained_by_the_type_that_comes_nearest() -> None:
    said = none_holds(["g4dn.xlarge", "g5.xlarge"], Needs(gpus=1, gpu_memory_mib=40 * 1024))

    assert said == (
        "none of the 2 types can hold 1 GPU, 40 GiB used of each: "
        "g5.xlarge has 22,888 MiB a GPU, 45,056 are needed with 10 % to spare"
    )
    assert not none_holds(["g4dn.xlarge", "g6e.xlarge"], Needs(gpu_memory_mib=40 * 1024))


def test_wider_types_can_stand_in_for_all_and_the_cheapest_comes_first() -> None:
    found = wider(GPU_CLASSES["24GBx1"])

    assert found
    assert not set(found) & set(GPU_CLASSES["24GBx1"])
    assert all(GPU_TYPES[kind].gpu_mib >= 22_888 for kind in found)
    prices = [GPU_TYPES[kind].usd_per_hour or 1e9 for kind in found]
    assert prices == sorted(prices)
    assert "g4dn.xlarge" not in found
    assert wider(["c7i.large"]) == []
    assert wider(GPU_CLASSES["141GBx8"]) == []


def test_a_price_is_known_or_it_is_not() -> None:
    assert on_demand_usd("g6.xlarge") == 0.8048
    assert on_demand_usd("p5e.48xlarge") is None
    assert on_demand_usd("c7i.large") is None


def test_needs_speak_the_words_of_the_command_line() -> None:
    assert str(NOTHING) == "any host of the pool"
    assert not NOTHING
    assert str(Needs(gpus=4, gpu_model="L4", precision="bf16", exact=True)) == (
        "4 L4s, bf16, exactly"
    )
    assert str(Needs(capabilities=("8.0+",), nvlink=True, host_memory_gib=64)) == (
        "1 GPU, compute capability 8.0+, NVLink, 64 GiB of memory"
    )


def test_the_manual_names_every_class_tier_and_kind_of_refusal() -> None:
    manual = Path(__file__).parents[2].joinpath("docs/capacity.md").read_text(encoding="utf-8")

    assert all(f"`{name}`" in manual for name in GPU_CLASSES)
    assert all(f"`{tier}`" in manual for tier in Tier)
    assert all(kind.value.lower() in manual.lower() for kind in ErrorClass)
    for name, (_, *counted) in POOLS.items():
        row = next(line for line in manual.splitlines() if line.startswith(f"| `{name}`"))
        assert " / ".join(str(count) for count in counted) in row
