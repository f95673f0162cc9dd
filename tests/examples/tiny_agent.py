"""The smallest host that keeps the job contract: what the tests of jobs run against."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"

Started = subprocess.Popen[str]
Found = TypeVar("Found")

# What the host does before it executes the job: the job starts deaf to SIGUSR1.
DEAF = ("/bin/sh", "-c", 'trap "" USR1; exec "$@"', "sh")


def eventually(look: Callable[[], Found | None], *, within: float = 30.0) -> Found:
    """Return what *look* finds as soon as it finds something; fail after *within* seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"not within {within} s: {look}")


def environment(**extra: str) -> dict[str, str]:
    """Return an environment without any host, in which reprieve_job can be imported."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("REPRIEVE_")}
    return clean | {"PYTHONPATH": str(REPOSITORY / "agent"), "PYTHONUNBUFFERED": "1"} | extra


class Processes:
    """Starts processes in groups of their own and leaves none behind."""

    def __init__(self) -> None:
        self._started: list[Started] = []

    def start(self, *argv: str | Path, env: dict[str, str], cwd: Path) -> Started:
        process = subprocess.Popen(
            [*DEAF, *(str(part) for part in argv)],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class TinyAgent:
    """One attempt of a job on this host."""

    def __init__(self, root: Path, processes: Processes, *, attempt: int = 1) -> None:
        self.root = root
        self.attempt = attempt
        self.run_dir = root / f"run-{attempt}"
        self.checkpoints = root / f"checkpoints-{attempt}"
        self.resume_dir = root / f"resume-{attempt}"
        self.resume_step = ""
        self._processes = processes
        for folder in (self.run_dir, self.checkpoints, self.resume_dir):
            folder.mkdir(parents=True)

    def successor(self) -> "TinyAgent":
        """Return the next attempt, on a clean host that has the newest checkpoint of this one."""
        following = TinyAgent(self.root, self._processes, attempt=self.attempt + 1)
        newest = max(self.saved_steps(), default=None)
        if newest is not None:
            source = self.checkpoints / f"step-{newest}"
            shutil.copytree(source, following.resume_dir, dirs_exist_ok=True)
            following.resume_step = str(newest)
        return following

    def environment(self, **extra: str) -> dict[str, str]:
        return environment(
            REPRIEVE_CONTRACT="1",
            REPRIEVE_JOB_ID="job-1",
            REPRIEVE_ATTEMPT=str(self.attempt),
            REPRIEVE_TOKEN="1",
            REPRIEVE_RUN_DIR=str(self.run_dir),
            REPRIEVE_CKPT_DIR=str(self.checkpoints),
            REPRIEVE_RESUME_DIR=str(self.resume_dir),
            REPRIEVE_RESUME_STEP=self.resume_step,
            REPRIEVE_SIGNAL="USR1",
            REPRIEVE_GRACE_S="120",
            REPRIEVE_NODE_RANK="0",
            REPRIEVE_NNODES="1",
            **extra,
        )

    def start(self, *argv: str | Path) -> Started:
        """Start a Python script with arguments."""
        return self.run(sys.executable, *argv)

    def run(self, *argv: str | Path) -> Started:
        """Start any command."""
        return self._processes.start(*argv, env=self.environment(), cwd=self.root)

    def request(self, kind: str = "checkpoint_exit", *, request_id: str = "r-1") -> None:
        """Ask as the host does: the file first, then the signal to whoever registered."""
        content = {
            "v": 1,
            "id": request_id,
            "kind": kind,
            "reason": "spot interruption",
            "deadline_unix": time.time() + 120,
            "deadline_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 120 * 10**9,
            "save_by_unix": time.time() + 100,
        }
        draft = self.run_dir / ".request.tmp"
        draft.write_text(json.dumps(content))
        draft.rename(self.run_dir / "request.json")
        self.wake()

    def wake(self) -> None:
        for ready in self.run_dir.glob("ready.*.json"):
            os.kill(json.loads(ready.read_text())["pid"], signal.SIGUSR1)

    def ready(self) -> dict[str, Any]:
        return eventually(lambda: self.read("ready.0.json"))

    def ack(self, state: str, *, request_id: str = "r-1") -> dict[str, Any]:
        """Wait for the answer *state* to the request."""

        def look() -> dict[str, Any] | None:
            ack = self.read("ack.0.json")
            found = ack is not None and (ack["request_id"], ack["state"]) == (request_id, state)
            return ack if found else None

        return eventually(look)

    def read(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.run_dir / name).read_text())
        except FileNotFoundError:
            return None
        return content

    def saved_steps(self) -> list[int]:
        return [int(path.name.removeprefix("step-")) for path in self.checkpoints.glob("step-*")]


@contextlib.contextmanager
def running() -> Iterator[Processes]:
    processes = Processes()
    try:
        yield processes
    finally:
        processes.end()
