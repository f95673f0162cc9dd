"""
What an agent costs its host while nothing happens, and how fast it hears when something does.

A real agent process polls a metadata service and an AWS on loopback that answer at once. The
figures are memory, system calls and processor time; the baseline of the memory is ``import
botocore.session`` in the same run, of the command's start a bare interpreter, and of the notice
the poll itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CTL = ROOT / "agent" / "reprieve_agent" / "bin" / "reprieve-ctl"
INSTANCE = "i-0bench0bench0bench"
HOLDS = {"pk": {"S": f"LEASE#HOST#{INSTANCE}"}, "sk": {"S": "HOLDS"}}
PREEMPT = ("preempt", "--request-id", "rebalance", "--kind", "rebalance", "--wait", "0", "--json")
SETTLE_SECONDS = 4.0
POLLS = 12
POLL_SECONDS = 1.0

LIMITS = {
    "rss_mib": 40.0,
    "syscalls_per_poll": 7.0,
    "ctl_ratio": 1.6,
    "notice_over_half_poll_ms": 20.0,
}


class Server(ThreadingHTTPServer):
    """A server whose callers may hang up: the agent is killed when all is measured."""

    def handle_error(self, *_about: object) -> None:
        return


class Cloud:
    """Metadata and AWS of one idle host; *action* is what the Spot notice says, if there is one."""

    def __init__(self) -> None:
        self.action: str | None = None
        self.reports: list[tuple[float, str]] = []
        self.reported = threading.Condition()
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                self._say(200, "token")

            def do_GET(self) -> None:
                name = self.path.partition("/latest/meta-data/")[2]
                body = cloud.metadata(name)
                self._say(404 if body is None else 200, body or "")

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"]))
                target = self.headers.get("X-Amz-Target", "")
                self._say(200, json.dumps(cloud.call(target.rpartition(".")[2], sent)))

            def _say(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                return

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def metadata(self, name: str) -> str | None:
        if name == "spot/instance-action":
            return self.action
        return {
            "instance-id": INSTANCE,
            "instance-type": "g5.xlarge",
            "placement/availability-zone": "us-east-1a",
            "instance-life-cycle": "spot",
        }.get(name)

    def call(self, operation: str, sent: bytes) -> dict[str, Any]:
        if operation == "UpdateItem":
            return {"Attributes": HOLDS | {"instance_id": {"S": INSTANCE}, "beat": {"N": "1"}}}
        if operation == "ReceiveMessage":
            time.sleep(5)
        if operation == "SendMessage":
            with self.reported:
                self.reports.append((time.monotonic(), sent.decode()))
                self.reported.notify_all()
            return {"MessageId": "m", "MD5OfMessageBody": ""}
        return {}


@dataclass(slots=True)
class Idle:
    """An agent process of its own, with nothing to do."""

    folder: Path
    cloud: Cloud
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        (self.folder / "boot_id").write_text("boot-1\n")
        environ = {
            "PATH": os.defpath,
            "STACK": "Bench",
            "POOL": "bench",
            "JOBS_TABLE": "jobs",
            "CHECKPOINTS_BUCKET": "bucket",
            "WORK_QUEUE_URL": f"{self.cloud.address}/111122223333/work",
            "REPORTS_QUEUE_URL": f"{self.cloud.address}/111122223333/reports",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.cloud.address,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.cloud.address}/",
            "STATE_DIR": str(self.folder / "state"),
            "RUN_DIR": str(self.folder / "run"),
            "SUPERVISOR": "child",
            "BOOT_ID_FILE": str(self.folder / "boot_id"),
        }
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reprieve_agent"], env=environ, stderr=log
            )
        ready = self.folder / "run" / "ready"
        _wait(ready.exists, "the agent is ready", self.folder / "agent.log")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def rss_mib(self) -> float:
        return _rss_mib(self.process.pid)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, print, and fail when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--notices", type=int, default=9, help="notices to hear (default 9)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rb-") as scratch:
        rows = {**_idle(Path(scratch) / "idle"), **_command(Path(scratch) / "ctl")}
        rows |= _notices(Path(scratch) / "notices", options.notices)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(*(f"{name:28} {value}" for name, value in rows.items()), sep="\n")
    exceeded = [
        f"{name}: {rows[name]} > {limit}"
        for name, limit in LIMITS.items()
        if rows.get(name) is not None and float(rows[name]) > limit
    ]
    print(*exceeded, sep="\n", end="\n" if exceeded else "", file=sys.stderr)
    return 1 if exceeded else 0


def _idle(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    idle = Idle(folder, Cloud())
    idle.start()
    try:
        time.sleep(SETTLE_SECONDS)
        began, used = time.monotonic(), idle.cpu_seconds()
        calls = _syscalls_per_poll(idle.process.pid, folder / "trace")
        seconds = time.monotonic() - began
        return {
            "rss_mib": round(idle.rss_mib(), 1),
            "rss_floor_mib": round(_floor_mib(), 1),
            "syscalls_per_poll": calls,
            # strace slows what it watches, so this is more than it is alone.
            "cpu_s_per_hour_traced": round((idle.cpu_seconds() - used) / seconds * 3600, 2),
        }
    finally:
        idle.end()


def _floor_mib() -> float:
    code = "import botocore.session; print(open('/proc/self/statm').read().split()[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return int(done.stdout) * resource.getpagesize() / 2**20


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def _syscalls_per_poll(pid: int, trace: Path) -> float | None:
    """Count the calls of the thread that polls, from one question to the next; None: no strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    watching = subprocess.Popen(
        [strace, "-f", "-qq", "-e", "signal=none", "-s", "256", "-o", str(trace), "-p", str(pid)],
        stderr=subprocess.DEVNULL,
    )
    time.sleep(POLLS * POLL_SECONDS)
    watching.send_signal(signal.SIGINT)
    watching.wait()
    calls = [line.split(maxsplit=1) for line in trace.read_text().splitlines()]
    asking = [n for n, (_, call) in enumerate(calls) if "spot/instance-action" in call]
    if len(asking) < 2:
        return None
    poller = calls[asking[0]][0]
    between = calls[asking[0] : asking[-1]]
    # A call that another thread interrupted takes two lines.
    mine = [call for tid, call in between if tid == poller and "resumed>" not in call]
    return round(len(mine) / (len(asking) - 1), 2)


def _command(folder: Path) -> dict[str, Any]:
    """Return processor time of `reprieve-ctl` with an agent there, and of Python alone."""
    folder.mkdir()
    path = folder / "agent.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    threading.Thread(target=_answer, args=(listener,), daemon=True).start()
    environ = {"PATH": os.defpath, "REPRIEVE_SOCKET": str(path)}
    python = [str(Path(sys.base_prefix) / "bin" / "python3"), "-I", "-S"]
    spent: dict[str, list[float]] = {"bare": [], "ctl": []}
    for _ in range(21):
        spent["bare"].append(_cpu_ms([*python, "-c", "pass"], environ))
        spent["ctl"].append(_cpu_ms([*python, str(CTL), *PREEMPT], environ))
    listener.close()
    bare, ctl = (statistics.median(spent[name]) for name in ("bare", "ctl"))
    return {
        "ctl_cpu_ms": round(ctl, 1),
        "python_cpu_ms": round(bare, 1),
        "ctl_ratio": round(ctl / bare, 2),
    }


def _answer(listener: socket.socket) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller:
            caller.recv(65536)
            caller.sendall(b'{"v": 1, "result": "no job", "exit": 11}\n')


def _cpu_ms(command: list[str], environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


TRAINER = """
import sys, time, reprieve_job
job = reprieve_job.connect()
step = 0
while True:
    step += 1
    time.sleep(0.002)
    if job.step(step) is not None:
        print("asked", time.monotonic(), flush=True)
        with job.checkpoint(step) as folder:
            (folder / "state").write_text("x")
        raise SystemExit(75)
"""


def _notices(folder: Path, count: int) -> dict[str, Any]:
    """Return how long after a Spot notice shows up the trainer's own loop hears of it."""
    sys.path.insert(0, str(ROOT))
    from reprieve.domain.spec import JobSpec  # noqa: PLC0415
    from tests.agent.harness import Cloud as Memory  # noqa: PLC0415
    from tests.agent.harness import HostUnderTest, wait_until  # noqa: PLC0415

    lags = []
    period = 0.0
    for n in range(count):
        memory = Memory()
        host = HostUnderTest(memory, folder / str(n), notice_seconds=24)
        host.start()
        try:
            key = memory.submit(JobSpec(("python", "-c", TRAINER)))
            memory.ring(key)
            wait_until(lambda: host.steps() > 5, "training", 60)  # noqa: B023
            period = 24 / 120
            _after_poll(host.metadata.requests)
            time.sleep((n + 0.5) * period / count)  # every moment between two polls, evenly
            flipped = time.monotonic()
            host.metadata.interrupt()
            wait_until(lambda: "asked" in memory.log(key), "asked", 60)  # noqa: B023
            lags.append(float(memory.log(key).split()[1]) - flipped)
        finally:
            host.close()
    p50 = statistics.median(lags)
    return {
        "notice_p50_ms": round(p50 * 1000, 1),
        "half_poll_ms": round(period / 2 * 1000, 1),
        "notice_over_half_poll_ms": round((p50 - period / 2) * 1000, 1),
    }


def _after_poll(asked: list[str]) -> None:
    """Return just after the service was asked for a Spot notice."""
    seen = _spot_polls(asked)
    while _spot_polls(asked) == seen:
        time.sleep(0.0005)


def _spot_polls(asked: list[str]) -> int:
    return sum(path.endswith("spot/instance-action") for path in asked)


def _wait(holds: Callable[[], bool], what: str, log: Path) -> None:
    ends = time.monotonic() + 60
    while not holds():
        if time.monotonic() > ends:
            sys.exit(f"host: not within a minute: {what}; {log.read_text()[-500:]}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
