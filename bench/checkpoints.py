"""
Bytes of checkpoints over TLS, each figure a ratio or a count within one run.

upload: processor time and memory of one large file, against boto3 as it comes.
durable: from a state in memory to a committed checkpoint, by the job helper under a notice and
the agent's uploads, against one archive (zip with CRC-32, as torch.save writes it, and for the
same processor time), fsync, and boto3. Both write to the same disk.
resume: the restore of a checkpoint with its checks, against the download alone.
bytes: what is sent of a job that trains a hundredth of its weights, and what an upload that
was killed half way sends twice.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.bucket import Bucket, serving

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "bench" / "checkpoint_cases.py"
PARTS = 16  # at once
TRANSFER_PART_MIB = 64
PART_MIB = 4  # in the case of the upload that is killed
# What is in memory of a part in flight: not its 64 MiB, but a block and a TLS connection.
IN_FLIGHT_MIB = 0.5
LIMITS = {
    "upload": {"cpu_ratio": 0.55, "rss_mib_beyond_parts": 40.0},
    "durable": {"time_ratio": 0.5},
    "resume": {"time_ratio": 1.15},
    "bytes": {"sent_of_trainable": 1.01, "parts_sent_twice": float(PARTS)},
}


def main() -> int:
    """Measure in turns, print a table or JSON; fail when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(LIMITS), metavar="CASE")
    parser.add_argument("--mib", type=int, default=512, help="size of the state (default 512)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        source = Path(scratch) / "source"
        _fill(source, options.mib)
        with serving(Path(scratch), source) as bucket:
            run = Run(bucket, Path(scratch), options.mib, options.rounds)
            rows = [{"case": name} | getattr(run, name)() for name in options.cases]
    print(json.dumps(rows, indent=1) if options.json else "\n".join(map(_line, rows)))
    exceeded = [
        f"{row['case']}: {name} {row[name]} > {limit}"
        for row in rows
        for name, limit in LIMITS[row["case"]].items()
        if row[name] > limit
    ]
    print(*exceeded, sep="\n", end="\n" if exceeded else "", file=sys.stderr)
    return 1 if exceeded else 0


class Run:
    """One bucket, one state, so many rounds."""

    def __init__(self, bucket: Bucket, scratch: Path, mib: int, rounds: int) -> None:
        self._bucket = bucket
        self._scratch = scratch
        self._mib = mib
        self._rounds = rounds

    def upload(self) -> dict[str, Any]:
        """Return processor time per GB and memory."""
        found = self._in_turns("upload-default", "upload-ours")
        default, ours = found["upload-default"], found["upload-ours"]
        in_flight = IN_FLIGHT_MIB * min(PARTS, -(-self._mib // TRANSFER_PART_MIB))
        return {
            "cpu_ratio": _ratio(ours, default, "cpu"),
            "time_ratio": _ratio(ours, default, "seconds"),
            "rss_mib": max(one["rss_mib"] for one in ours),
            "rss_mib_beyond_parts": max(one["rss_mib"] for one in ours) - in_flight,
            "default_rss_mib": max(one["rss_mib"] for one in default),
        }

    def durable(self) -> dict[str, Any]:
        """Return the time until a state is durable, and for how long its job stood still."""
        found = self._in_turns("durable-archive", "durable-ours")
        naive, ours = found["durable-archive"], found["durable-ours"]
        return {
            "time_ratio": _ratio(ours, naive, "seconds"),
            "stall_ratio": _ratio(ours, naive, "stall"),
            "cpu_ratio": _ratio(ours, naive, "cpu"),
            "seconds": round(_middle(ours, "seconds"), 2),
            "naive_seconds": round(_middle(naive, "seconds"), 2),
        }

    def resume(self) -> dict[str, Any]:
        """Return the time of a restore, against two kinds of mere download."""
        found = self._in_turns("resume-download", "resume-unchecked", "resume-ours")
        ours = found["resume-ours"]
        return {
            "time_ratio": _ratio(ours, found["resume-download"], "seconds"),
            "cpu_ratio": _ratio(ours, found["resume-download"], "cpu"),
            "time_ratio_to_unchecked": _ratio(ours, found["resume-unchecked"], "seconds"),
        }

    def bytes(self) -> dict[str, Any]:
        """Return counts of bytes; one round, since they are the same each time."""
        trainable = self._child("bytes-first")["trainable"]
        self._bucket.received()
        self._child("bytes-second")
        sent = self._bucket.received()["PUT"]
        return {"sent_of_trainable": round(sent / trainable, 4)} | self._killed()

    def _killed(self) -> dict[str, Any]:
        """Kill an upload when two fifths of it are there; count what the next one sends twice."""
        whole = self._mib * MIB
        first = self._start("bytes-killed")
        arrived = 0
        while arrived < 0.4 * whole and first.poll() is None:
            time.sleep(0.02)
            arrived += self._bucket.received().get("PUT", 0)
        first.send_signal(signal.SIGKILL)
        first.wait()
        time.sleep(0.5)  # what was on its way still arrives
        arrived += self._bucket.received().get("PUT", 0)
        self._child("bytes-killed")
        arrived += self._bucket.received()["PUT"]
        return {"parts_sent_twice": max(0.0, round((arrived - whole) / (PART_MIB * MIB), 1))}

    def _in_turns(self, *names: str) -> dict[str, list[dict[str, float]]]:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(self._rounds):  # in turns, so that a busy minute hits them all
            for name in names:
                found[name].append(self._child(name))
        return found

    def _child(self, name: str) -> dict[str, float]:
        process = self._start(name)
        out, err = process.communicate()
        if process.returncode:
            sys.exit(f"{name}: {err[-2000:]}")
        said: dict[str, float] = json.loads(out)
        return said

    def _start(self, name: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CA_BUNDLE": str(self._bucket.authority),
            "AWS_ENDPOINT_URL": self._bucket.endpoint,
        }
        return subprocess.Popen(
            [sys.executable, str(CASES), name, str(self._scratch), str(self._mib)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _middle(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _ratio(ours: list[dict[str, float]], theirs: list[dict[str, float]], name: str) -> float:
    return round(_middle(ours, name) / _middle(theirs, name), 3)


def _memory() -> str | None:
    """Return a folder in memory, so that no disk is measured, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _fill(path: Path, mib: int) -> None:
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))


def _line(row: dict[str, Any]) -> str:
    facts = "  ".join(f"{name} {value}" for name, value in row.items() if name != "case")
    return f"{row['case']:8} {facts}"


if __name__ == "__main__":
    raise SystemExit(main())
