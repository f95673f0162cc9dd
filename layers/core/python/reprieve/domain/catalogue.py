"""
Which host holds what: the GPU types of EC2, the classes that pools are named by, and needs.

A class stands for types that can replace each other: each of their GPUs has at least the
class's memory, and there are at least as many. Names are nominal GB, as on the card's box;
what is compared is always MiB (a "24 GB" card reports 22,888).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprieve.domain.gpu_types import ROWS
from reprieve.domain.needs import Needs

HEADROOM = 1.1  # over the measured peak: another card's allocator and context take more
LEAST_CAPABILITY = {"bf16": 80, "fp8": 89}
NVLINK = frozenset({"V100", "A100", "H100", "H200", "B200", "B300"})
CAPABILITY = re.compile(r"(?P<major>\d{1,2})\.(?P<minor>\d)(?P<later>\+?)")


@dataclass(frozen=True, slots=True)
class GpuType:
    """
    One instance type. ``gpu_mib`` is of each GPU, ``capability`` ten times NVIDIA's number.

    ``usd_per_hour`` is on demand in us-east-1; None where none was published.
    """

    name: str
    gpu: str
    gpus: int
    gpu_mib: int
    capability: int
    vcpus: int
    memory_gib: int
    nvme_gb: int
    spot: bool
    usd_per_hour: float | None

    @property
    def family(self) -> str:
        """Return what stands before the dot."""
        return self.name.partition(".")[0]


GPU_TYPES: Mapping[str, GpuType] = {row[0]: GpuType(*row) for row in ROWS}

# Deliberately no fractional GPUs, no arm64, no AMD: see EXCLUDED_FAMILIES.
GPU_CLASSES: Mapping[str, tuple[str, ...]] = {
    "16GBx1": (
        *("g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge", "g4dn.8xlarge"),
        *("g5.xlarge", "g5.2xlarge", "g5.4xlarge"),
        *("g6.xlarge", "g6.2xlarge", "g6.4xlarge", "gr6.4xlarge", "g6e.xlarge"),
    ),
    "24GBx1": (
        *("g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge"),
        *("g6.xlarge", "g6.2xlarge", "g6.4xlarge", "g6.8xlarge", "gr6.4xlarge", "gr6.8xlarge"),
        *("g6e.xlarge", "g6e.2xlarge", "g7.2xlarge"),
    ),
    "24GBx4": (
        *("g5.12xlarge", "g5.24xlarge", "g6.12xlarge", "g6.24xlarge"),
        *("g6e.12xlarge", "g6e.24xlarge", "g7.24xlarge"),
    ),
    "24GBx8": (
        *("g5.48xlarge", "g6.48xlarge", "g6e.48xlarge", "g7.48xlarge", "g7e.48xlarge"),
        *("p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge"),
    ),
    "48GBx1": (
        *("g6e.xlarge", "g6e.2xlarge", "g6e.4xlarge", "g6e.8xlarge", "g6e.16xlarge"),
        *("g7e.2xlarge", "g7e.4xlarge", "g7e.8xlarge", "p5.4xlarge"),
    ),
    "40GBx8": (
        *("g6e.48xlarge", "g7e.48xlarge", "p4d.24xlarge", "p4de.24xlarge"),
        *("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"),
    ),
    "80GBx8": (
        *("g7e.48xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"),
        *("p6-b200.48xlarge", "p6-b300.48xlarge"),
    ),
    "141GBx8": ("p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge"),
}

EXCLUDED_FAMILIES: Mapping[str, str] = {
    "g5g": "arm64, and the image is x86_64",
    "p6e-gb200": "arm64, and the image is x86_64",
    "p6e-gb300": "arm64, and the image is x86_64",
    "g4ad": "its GPU is AMD's, and the image brings NVIDIA's driver",
    "g6f": "a fraction of a GPU, which the image's driver doesn't serve",
    "gr6f": "a fraction of a GPU, which the image's driver doesn't serve",
}


def excluded(kind: str) -> str:
    """Return why hosts of this type can't run here; empty if they can."""
    return EXCLUDED_FAMILIES.get(kind.partition(".")[0], "")


def why_not(kind: str, needs: Needs) -> str:
    """Return in few words what *kind* lacks of *needs*; empty if it holds the job."""
    if not needs:
        return ""
    known = GPU_TYPES.get(kind)
    if known is None:
        return "isn't in the catalogue, so nobody knows what it holds"
    return next((lack for lack in _lacks(known, needs) if lack), "")


def holds(kind: str, needs: Needs) -> bool:
    """Whether a host of this type can run a job with *needs*."""
    return not why_not(kind, needs)


def none_holds(types: Iterable[str], needs: Needs) -> str:
    """Return one line saying why none of *types* holds the job; empty if one does."""
    lacks = {kind: why_not(kind, needs) for kind in types}
    if not all(lacks.values()):
        return ""
    # The one that comes nearest says most about what to ask less of.
    nearest = max(lacks, key=_size)
    return f"none of the {len(lacks)} types can hold {needs}: {nearest} {lacks[nearest]}"


def wider(types: Iterable[str]) -> list[str]:
    """
    Return further types that can stand in for every one of *types*, cheapest first.

    Each GPU has the memory and the capability of the least of them and there are as many;
    a type that the catalogue lacks gives nothing to compare with.
    """
    own = [GPU_TYPES[kind] for kind in types if kind in GPU_TYPES]
    if not own:
        return []
    gpus, mib = min(t.gpus for t in own), min(t.gpu_mib for t in own)
    capability = min(t.capability for t in own)
    found = [
        t
        for t in GPU_TYPES.values()
        if t not in own
        and t.spot
        and not t.name.endswith(".metal")
        and t.gpus >= gpus
        and t.gpu_mib >= mib
        and t.capability >= capability
    ]
    return [t.name for t in sorted(found, key=lambda t: (t.usd_per_hour or 1e9, t.name))]


def on_demand_usd(kind: str) -> float | None:
    """Return the published on-demand price in us-east-1; other regions differ a little."""
    known = GPU_TYPES.get(kind)
    return known.usd_per_hour if known else None


def _lacks(host: GpuType, needs: Needs) -> Iterable[str]:
    least = int(needs.gpu_memory_mib * HEADROOM)
    floor = LEAST_CAPABILITY.get(needs.precision, 0)
    has = f"has compute capability {_text(host.capability)}"
    if host.gpus < needs.gpus:
        yield f"has {_gpus(host.gpus)} of {needs.gpus}"
    if needs.exact and host.gpus != needs.gpus:
        yield f"has {_gpus(host.gpus)}, and results depend on exactly {needs.gpus}"
    if needs.gpu_model and host.gpu != needs.gpu_model:
        yield f"has {host.gpu}, not {needs.gpu_model}"
    if host.gpu_mib < least:
        yield f"has {host.gpu_mib:,} MiB a GPU, {least:,} are needed with 10 % to spare"
    if host.capability < floor:
        yield f"{has}, {needs.precision} takes {_text(floor)}"
    if needs.capabilities and not any(_runs(text, host) for text in needs.capabilities):
        yield f"{has}, which the code isn't compiled for"
    if needs.nvlink and host.gpu not in NVLINK:
        yield "has no NVLink"
    if host.memory_gib < needs.host_memory_gib:
        yield f"has {host.memory_gib:,} GiB of memory, not {needs.host_memory_gib:,}"


def _runs(compiled_for: str, host: GpuType) -> bool:
    """Whether code compiled for that capability runs on *host*, by NVIDIA's rule."""
    match = CAPABILITY.fullmatch(compiled_for)
    if match is None:
        return False
    least = 10 * int(match["major"]) + int(match["minor"])
    same_generation = host.capability // 10 == int(match["major"])
    return host.capability >= least and (same_generation or bool(match["later"]))


def _text(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _size(kind: str) -> tuple[int, int, int]:
    known = GPU_TYPES.get(kind)
    return (known.gpus, known.gpu_mib, known.capability) if known else (0, 0, 0)
