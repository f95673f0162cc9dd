"""The instance types that exist: a small table of NVIDIA hosts (``data/SOURCES.md``)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_ZONE_COLUMN = "az_"
_ZONES_ELSEWHERE = 3  # in a region that the table lacks


@dataclass(frozen=True, slots=True)
class InstanceType:
    name: str
    gpu: str
    gpu_count: int
    gpu_mem_mib: int
    vcpus: int
    mem_gib: int
    nvme_gb: int
    network: str
    efa: bool
    spot: bool
    usd_per_hour: float | None
    """On demand, us-east-1; None where no price was published."""
    zones: dict[str, int]
    """Region -> in how many of its zones it is offered."""

    def describe(self) -> dict[str, Any]:
        """Describe it as DescribeInstanceTypes does."""
        usage = ["on-demand", "spot"] if self.spot else ["on-demand"]
        described: dict[str, Any] = {
            "InstanceType": self.name,
            "CurrentGeneration": True,
            "SupportedUsageClasses": usage,
            "BareMetal": self.name.endswith(".metal"),
            "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
            "VCpuInfo": {"DefaultVCpus": self.vcpus},
            "MemoryInfo": {"SizeInMiB": self.mem_gib * 1024},
            "InstanceStorageSupported": self.nvme_gb > 0,
            "NetworkInfo": {"NetworkPerformance": self.network, "EfaSupported": self.efa},
            "GpuInfo": {
                "Gpus": [
                    {
                        "Name": self.gpu,
                        "Manufacturer": "NVIDIA",
                        "Count": self.gpu_count,
                        "MemoryInfo": {"SizeInMiB": self.gpu_mem_mib},
                    }
                ],
                "TotalGpuMemoryInMiB": self.gpu_count * self.gpu_mem_mib,
            },
        }
        if self.nvme_gb:
            described["InstanceStorageInfo"] = {
                "TotalSizeInGB": self.nvme_gb,
                "NvmeSupport": "required",
            }
        return described


@cache
def instance_types() -> dict[str, InstanceType]:
    """Read the table: instance type name -> its facts."""
    text = (
        resources.files("reprieve_cli.local")
        .joinpath("data/ec2-gpu-instances.csv")
        .read_text("utf-8")
    )
    return {row["instance_type"]: _from_row(row) for row in csv.DictReader(text.splitlines())}


def _from_row(row: dict[str, str]) -> InstanceType:
    return InstanceType(
        name=row["instance_type"],
        gpu=row["gpu"],
        gpu_count=int(row["gpu_count"]),
        gpu_mem_mib=int(row["gpu_mem_mib"]),
        vcpus=int(row["vcpus"]),
        mem_gib=int(row["mem_gib"]),
        nvme_gb=int(row["nvme_gb"]),
        network=row["net_perf"],
        efa=row["efa"] == "1",
        spot=row["spot"] == "1",
        usd_per_hour=float(row["od_usd_us_east_1"]) if row["od_usd_us_east_1"] else None,
        zones={
            name.removeprefix(_ZONE_COLUMN): int(count)
            for name, count in row.items()
            if name.startswith(_ZONE_COLUMN)
        },
    )


def zones_of(region: str) -> list[str]:
    """Name the zones of *region*: its letters from ``a`` on."""
    most = max(kind.zones.get(region, _ZONES_ELSEWHERE) for kind in instance_types().values())
    return [f"{region}{letter}" for letter in "abcdef"[:most]]


def offered_in(kind: InstanceType, region: str) -> list[str]:
    """Name the zones of *region* that offer *kind*."""
    return zones_of(region)[: kind.zones.get(region, _ZONES_ELSEWHERE)]
