"""
What a cold start costs: modules, memory, processor time, and instructions where they count.

Each case is a fresh interpreter that finds what its function or host finds: the layers as
they are built for this interpreter, the agent as a host installs it, and the SDK of this
environment. Nothing is written, as in Lambda. ``floor`` is ``import botocore.session``, which
nothing that calls AWS can do without; ``boto3`` makes the functions' clients the usual way,
from botocore's own models.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from infra.packages import Built, core_layer, local_target, runtime_layer  # noqa: E402

FUNCTIONS = ("handle_notice", "replace_host", "record_report", "reconcile")
SDK = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
POOL = {
    "types": ["g5.xlarge", "g6.xlarge"],
    "tiers": ["spot", "on-demand"],
    "max_hosts": 4,
    "max_usd_per_hour": 5.0,
    "launch_template": "lt-0123456789abcdef0",
    "launch_template_version": "1",
    "work_queue_url": "https://sqs.us-east-1.amazonaws.com/111122223333/work",
}
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "POWERTOOLS_SERVICE_NAME": "bench",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "STACK": "Reprieve",
    "JOBS_TABLE": "Jobs",
    "ORDERS_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/111122223333/orders",
    "INTAKE_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/111122223333/intake",
    "REPORTS_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/111122223333/reports",
    "SSM_DOCUMENT": "Reprieve-preempt",
    "CHECKPOINTS_BUCKET": "checkpoints",
    "POOLS": json.dumps({"gpu": POOL}),
    "SUBNETS": json.dumps({"us-east-1a": "subnet-0123456789abcdef0"}),
    "NOTICE_SECONDS": "120.0",
    "PYTHONHASHSEED": "0",
}

FLOOR = "import botocore.session"
BOTO3 = (
    "import boto3; session = boto3.Session(); "
    "clients = [session.client(name) for name in ('dynamodb', 'sqs', 'ssm', 'ec2')]"
)
FUNCTION = "import handler; wired = handler.wired()"
# What the function goes on to call whenever it does its work.
LATER = {
    "handle_notice": "; wired.uses.ports.signals._connect(); wired.uses.ports.fleet._connect()",
    "replace_host": "; wired.uses.ports.fleet._connect()",
    "record_report": "",
    "reconcile": "; wired.uses.ports.fleet._connect()",
}
AGENT = (
    "import reprieve_agent.__main__ as agent; "
    "session = agent.sdk.session('us-east-1'); "
    "clients = [session.create_client(name) for name in ('dynamodb', 'sqs', 'sqs')]; "
    "store = agent.S3Checkpoints(agent.s3_client(session), 'checkpoints')"
)
REPORT = (
    "\nimport resource, time\n"
    "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(time.process_time() * 1000, usage.ru_maxrss / 1024, len(sys.modules))"
)
COLLECTED = re.compile(r"Collected : (\d+)")

# Of the functions and of the agent. What it is today, and a little: who adds to it should know.
LIMITS = {"modules": 520, "rss_mib": 50.0, "instructions_ratio": 2.6}


@dataclass(slots=True)
class Case:
    """One kind of start, and what was measured of it."""

    name: str
    code: str
    path: list[Path]
    cpu_ms: list[float] = field(default_factory=list)
    rss_mib: float = 0.0
    modules: int = 0
    instructions: int | None = None

    def command(self, ending: str) -> list[str]:
        """Return the interpreter's arguments: what is on the path is all that it finds."""
        start = f"import sys; sys.path += {[str(one) for one in self.path]!r}; "
        return [sys.executable, "-I", "-S", "-B", "-c", start + self.code + ending]


def main() -> int:
    """Measure in turns, print a table or JSON; fail when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each case (default 5)")
    parser.add_argument("--instructions", action="store_true", help="count them, with valgrind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.instructions and shutil.which("valgrind") is None:
        sys.exit("cold: valgrind isn't installed, which --instructions needs")
    with tempfile.TemporaryDirectory() as scratch:
        cases = _cases(runtime_layer(local_target()), core_layer(local_target()), Path(scratch))
        _measure(cases, options.rounds, instructions=options.instructions)
    rows = [_row(case, cases[0]) for case in cases]
    print(json.dumps(rows, indent=1) if options.json else _table(rows))
    exceeded = [
        f"{row['case']}: {name} {row[name]} > {limit}"
        for row in rows
        if row["case"] not in ("floor", "boto3")
        for name, limit in LIMITS.items()
        if row.get(name, 0) > limit
    ]
    print(*exceeded, sep="\n", end="\n" if exceeded else "", file=sys.stderr)
    return 1 if exceeded else 0


def _measure(cases: list[Case], rounds: int, *, instructions: bool) -> None:
    for _ in range(rounds):  # in turns, so that a busy minute hits them all
        for case in cases:
            _start(case)
    if instructions:
        for case in cases:
            case.instructions = _count(case)


def _cases(runtime: Built, core: Built, scratch: Path) -> list[Case]:
    agent = scratch / "agent"
    shutil.copytree(ROOT / "agent", agent, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(agent, quiet=1)
    sdk = [_found(name) for name in SDK]
    layers = [core.folder / "python", runtime.folder / "python"]
    functions = [
        Case(name, FUNCTION + LATER[name], [ROOT / "functions" / name, *layers, *sdk])
        for name in FUNCTIONS
    ]
    return [
        Case("floor", FLOOR, sdk),
        Case("boto3", BOTO3, sdk),
        *functions,
        Case("agent", AGENT, [core.folder / "python", agent, *sdk]),
    ]


def _found(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"cold: {name} isn't installed: run `make setup`")
    origin = Path(spec.origin)
    return origin.parents[1] if origin.name == "__init__.py" else origin.parent


def _start(case: Case) -> None:
    done = _run(case.command(REPORT))
    cpu_ms, rss_mib, modules = done.stdout.split()
    case.cpu_ms.append(float(cpu_ms))
    case.rss_mib = max(case.rss_mib, float(rss_mib))
    case.modules = int(modules)


def _count(case: Case) -> int:
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
    found = COLLECTED.search(_run([*tool, *case.command("")]).stderr)
    if found is None:
        sys.exit(f"cold: valgrind counted nothing for {case.name}")
    return int(found[1])


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, **ENVIRONMENT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cold: {done.stderr}")
    return done


def _row(case: Case, floor: Case) -> dict[str, Any]:
    """Return one line of the table: counts, and ratios to the floor of the same run."""
    cpu = statistics.median(case.cpu_ms) / statistics.median(floor.cpu_ms)
    row: dict[str, Any] = {
        "case": case.name,
        "modules": case.modules,
        "rss_mib": round(case.rss_mib, 1),
        "cpu_ms": round(statistics.median(case.cpu_ms)),
        "cpu_ratio": round(cpu, 2),
    }
    if case.instructions is not None and floor.instructions is not None:
        row["instructions_m"] = round(case.instructions / 1e6)
        row["instructions_ratio"] = round(case.instructions / floor.instructions, 2)
    return row


def _table(rows: list[dict[str, Any]]) -> str:
    head = [name.replace("_", " ") for name in rows[0]]
    body = [[str(value) for value in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in (head, *body)
    ]
    return "\n".join([f"Python {platform.python_version()}, {platform.machine()}", *lines])


if __name__ == "__main__":
    raise SystemExit(main())
