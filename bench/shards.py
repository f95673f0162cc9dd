"""
What the bookkeeping of a batch costs: items a second, and against writing the same files bare.

Bookkeeping is claiming an item, naming and keeping its output, noting progress and looking for a
request; the item's own work is nothing here. Limit: 1,000 items a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import reprieve_job
from reprieve_job.shards import FolderOutputs, ListedItems, work_through

ITEMS = 5_000
LEAST_ITEMS_PER_SECOND = 1_000.0


def bare(names: list[str], folder: Path) -> float:
    started = time.process_time()
    folder.mkdir()
    for name in names:
        draft = folder / f".{name}"
        draft.write_bytes(b"result")
        draft.rename(folder / name)
    return time.process_time() - started


def kept(names: list[str], folder: Path) -> float:
    job = reprieve_job.connect(total_steps=len(names))
    started = time.process_time()
    outputs = FolderOutputs(job, folder, made_by=("bench 1",))
    for name in work_through(job, ListedItems(names, outputs), outputs):
        outputs.write(name, b"result")
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [f"item-{number}" for number in range(ITEMS)]
    with tempfile.TemporaryDirectory() as root:
        for place in ("run", "checkpoints", "resume"):
            Path(root, place).mkdir()
        os.environ |= {
            "REPRIEVE_CONTRACT": "1",
            "REPRIEVE_RUN_DIR": f"{root}/run",
            "REPRIEVE_CKPT_DIR": f"{root}/checkpoints",
            "REPRIEVE_RESUME_DIR": f"{root}/resume",
        }
        baseline = bare(names, Path(root, "bare"))
        seconds = kept(names, Path(root, "kept"))
    row = {"items_per_second": ITEMS / seconds, "ratio_to_bare_files": seconds / baseline}
    if options.json:
        print(json.dumps(row))
    else:
        print(
            f"{row['items_per_second']:,.0f} items a second of processor time,"
            f" {row['ratio_to_bare_files']:.2f} times that of writing the same files bare"
        )
    return int(row["items_per_second"] < LEAST_ITEMS_PER_SECOND)


if __name__ == "__main__":
    sys.exit(main())
