"""
A batch over many items whose outputs are named by what made them.

    python batch_shards.py --items 120 --item-seconds 0.01
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import reprieve_job
from reprieve_job.shards import FolderOutputs, ListedItems, work_through

parser = argparse.ArgumentParser(description="Compute something for each of many items.")
parser.add_argument("--items", type=int, default=120)
parser.add_argument("--item-seconds", type=float, default=0.0)
options = parser.parse_args()

names = [f"document-{number:04d}" for number in range(options.items)]
job = reprieve_job.connect(total_steps=len(names), every=600, framework="shards")
outputs = FolderOutputs(job, Path("out"), made_by=("batch_shards.py 1", "sha256 x 1000"))

for name in work_through(job, ListedItems(names, outputs), outputs):
    digest = name.encode()
    for _ in range(1000):
        digest = hashlib.sha256(digest).digest()
    time.sleep(options.item_seconds)
    outputs.write(name, digest)
    print(f"computed {name}", flush=True)

with job.checkpoint(len(names)) as folder:
    outputs.save(folder)
job.done(len(names))
