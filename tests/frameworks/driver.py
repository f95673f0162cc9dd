"""Runs one job to its end, or interrupts it half-way and resumes it, in the frameworks' Python."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.examples.tiny_agent import (
    EXAMPLES,
    REPOSITORY,
    Processes,
    TinyAgent,
    environment,
    eventually,
)

JOBS = Path(__file__).parent / "jobs"
PYTHON = REPOSITORY / ".venv-frameworks" / "bin" / "python"
REQUEUE = 75
PATIENCE_SECONDS = 240.0

# One thread each: sums in another order round differently. No hub, no caches of the user.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class Run:
    """One process of a job."""

    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    def status(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        return int(eventually(lambda: self._note("status"), within=PATIENCE_SECONDS))

    def finish(self) -> str:
        """Wait for a good end; return what it printed."""
        status = self.status()
        assert status == 0, (self.folder / "stderr").read_text()
        return self.output

    def kill(self) -> None:
        pid = eventually(lambda: self._note("pid"))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid), signal.SIGKILL)

    def _note(self, name: str) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text()
        return None


class Warm:
    """A Python that has the frameworks imported: see ``warm.py``."""

    def __init__(self, modules: Sequence[str], scratch: Path) -> None:
        self._runs: list[Run] = []
        self._scratch = scratch
        self._process = subprocess.Popen(
            [PYTHON, Path(__file__).parent / "warm.py", *modules],
            env=environment(**QUIET),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, *argv: str | Path, env: dict[str, str], cwd: Path) -> Run:
        """Start a script with arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._runs:
            assert self._process.stdout.readline() == "ready\n"
        run = Run(self._scratch / str(len(self._runs)))
        run.folder.mkdir()
        self._runs.append(run)
        cwd.mkdir(exist_ok=True)
        order = {
            "argv": [str(part) for part in argv],
            "env": env | QUIET,
            "cwd": str(cwd),
            "folder": str(run.folder),
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return run

    def end(self) -> None:
        for run in self._runs:
            if not (run.folder / "status").exists():
                run.kill()
        self._process.communicate(timeout=60)


@dataclass(frozen=True)
class Driver:
    """What every test of a framework does."""

    warm: Warm
    root: Path
    processes: Processes

    def alone(self, *argv: str | Path, folder: str = "alone") -> Path:
        """Run a script to its end without a host; return the folder it ran in."""
        directory = self.root / folder
        self.warm.start(*argv, env=environment(), cwd=directory).finish()
        return directory

    def agent(self) -> TinyAgent:
        """Return a host with nothing on it."""
        return TinyAgent(self.root, self.processes)

    def start(self, agent: TinyAgent, *argv: str | Path) -> Run:
        """Start a script on a host."""
        directory = self.root / f"on-{agent.attempt}"
        return self.warm.start(*argv, env=agent.environment(), cwd=directory)

    def interrupt(self, agent: TinyAgent, *argv: str | Path, beyond: int = 2) -> int:
        """
        Start a script on a host that asks it to leave half-way; return the step it saved.

        Let its steps be slow: it must not be through before it is asked, however busy the
        machine; it leaves at once when it is.
        """
        run = self.start(agent, *argv)
        progressing(agent, beyond=beyond)
        agent.request()
        assert run.status() == REQUEUE, (run.folder / "stderr").read_text()
        return int(agent.ack("saved")["step"])


def progressing(agent: TinyAgent, *, beyond: int = 2) -> None:
    """Wait until a job has made more than so many steps."""

    def look() -> bool:
        progress = agent.read("progress.json")
        return progress is not None and progress["step"] > beyond

    eventually(look, within=PATIENCE_SECONDS)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


__all__ = ["EXAMPLES", "JOBS", "PYTHON", "Driver", "Run", "Warm", "digest", "progressing"]
