"""
Write the catalogue of GPU hosts that functions, agent and CLI share from its data file.

``python -m infra.gpu_types`` rewrites ``reprieve/domain/gpu_types.py``: a module of tuples,
because a function shouldn't read and parse a file at every cold start.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "cli/reprieve_cli/local/data/ec2-gpu-instances.csv"
MODULE = ROOT / "layers/core/python/reprieve/domain/gpu_types.py"

HEAD = '''\
"""
EC2 hosts with NVIDIA GPUs and x86_64, written by ``python -m infra.gpu_types``: don't edit.

Facts from moto 5.2.5 (bundled instance types), on-demand prices of us-east-1, 2026-07-20, from
aws/karpenter-provider-aws pkg/providers/pricing at 1d927085; both Apache-2.0. The compute
capability is our own column. ``SOURCES.md`` beside the data file says more.
"""

from __future__ import annotations

Row = tuple[str, str, int, int, int, int, int, int, bool, float | None]

# type, GPU, GPUs, MiB of each, compute capability x 10, vCPUs, GiB, NVMe GB, Spot, $/h on demand
ROWS: tuple[Row, ...] = (
'''


def module() -> str:
    """Return the module's text."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["instance_type"])
    return HEAD + "".join(f"    {_tuple(row)},\n" for row in rows) + ")\n"


def _tuple(row: Mapping[str, str]) -> str:
    price = row["od_usd_us_east_1"]
    entries = [
        f'"{row["instance_type"]}"',
        f'"{row["gpu"]}"',
        row["gpu_count"],
        _number(row["gpu_mem_mib"]),
        row["compute_capability"].replace(".", ""),
        row["vcpus"],
        _number(row["mem_gib"]),
        _number(row["nvme_gb"]),
        str(row["spot"] == "1"),
        price or "None",
    ]
    return f"({', '.join(entries)})"


def _number(text: str) -> str:
    return f"{int(text):_}"


if __name__ == "__main__":
    MODULE.write_text(module(), encoding="utf-8")
