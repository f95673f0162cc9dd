"""
One job kept by one kind of supervisor; also as a program of its own, which can be killed.

Imports neither the SDK nor pytest: a booted machine has neither.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reprieve.domain.lease import LeaseKey
from reprieve_agent import processes
from reprieve_agent.child_supervisor import ChildSupervisor
from reprieve_agent.clock import boot_seconds
from reprieve_agent.container_supervisor import ContainerSupervisor
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import Exit, JobStart, Supervisor, marker
from reprieve_agent.systemd_supervisor import SystemdSupervisor
from tests.agent import scripted_docker
from tests.agent.waiting import wait_until

# An image that a real engine here has, with this machine's Python in it; or the scripted one's.
REAL_IMAGE = os.environ.get("REPRIEVE_TEST_IMAGE")
IMAGE = REAL_IMAGE or "trainer@sha256:0"


def on_systemd(folder: Path) -> SystemdSupervisor:
    return SystemdSupervisor(folder / "agent.sock")


SUPERVISORS: Mapping[str, Callable[[Path], Supervisor]] = {
    "child": lambda _folder: ChildSupervisor(),
    "container": lambda _folder: ContainerSupervisor(ChildSupervisor()),
    "systemd": on_systemd,
    "systemd-container": lambda folder: ContainerSupervisor(on_systemd(folder)),
}
# Which of them can be had depends on who is process 1.
HERE = tuple(
    kind
    for kind in SUPERVISORS
    if kind.startswith("systemd") == Path("/run/systemd/system").is_dir()
)


@contextmanager
def docker(folder: Path) -> Iterator[Path]:
    """Have a scripted `docker` in *folder*, and its engine; yield what it writes its calls to."""
    folder.mkdir()
    program = folder / "docker"
    program.write_text(f"#!{sys.executable} -ISs\n{Path(scripted_docker.__file__).read_text()}")
    program.chmod(0o755)
    with subprocess.Popen([program, "engine"], env={}) as engine:
        wait_until((folder / "engine.sock").exists, "the engine")
        yield folder / "calls"
        engine.kill()


@dataclass
class Kept:
    """One attempt, and a supervisor that stands for one run of the agent."""

    kind: str
    folder: Path
    key: LeaseKey

    def __post_init__(self) -> None:
        self.places = Places.of(
            self.key, state_dir=self.folder / "state", run_dir=self.folder / "run"
        )
        self.places.make(None)
        self._runs: list[Supervisor] = []
        self.supervisor = self.another()

    def another(self) -> Supervisor:
        """Return the supervisor of an agent that was started again."""
        self._runs.append(SUPERVISORS[self.kind](self.folder))
        return self._runs[-1]

    @property
    def contained(self) -> bool:
        return self.kind.endswith("container")

    def start(self, *argv: str, **secrets: str) -> JobStart:
        return JobStart(
            key=self.key,
            places=self.places,
            argv=argv,
            env={
                "PATH": os.defpath,
                "REPRIEVE_TOKEN": self.key.token,
                "REPRIEVE_RUN_DIR": str(self.places.contract),
                "WHO": "a 'job'",
            },
            cwd=self.places.work,
            account=None,
            secrets=secrets,
            image=IMAGE if self.contained else None,
        )

    def launch(self, *argv: str, **secrets: str) -> Process:
        """Run *argv* for real."""
        start = self.start(*argv, **secrets)
        return self.supervisor.launch(start, not_after=boot_seconds() + 60)

    def python(self, script: str, *arguments: str) -> Process:
        return self.launch(sys.executable, "-c", script, *arguments)

    def wait(self, process: Process) -> Exit:
        return self.supervisor.wait(self.key, self.places, process)

    def kill(self) -> bool:
        return self.supervisor.kill(self.key, self.places)

    def said(self) -> str:
        return self.places.log.read_text() if self.places.log.exists() else ""

    def says(self, word: str, times: int = 1) -> None:
        """Wait until the job has said *word* so often."""
        wait_until(lambda: self.said().count(word) >= times, f"{word}, of {self.said()!r}")

    def left(self) -> set[int]:
        """Return which processes of the attempt there are."""
        return processes.of_job(None, marker(self.key))

    def clean(self) -> None:
        self.kill()
        for run in self._runs:
            keeping = run.kept_by if isinstance(run, ContainerSupervisor) else run
            assert isinstance(keeping, ChildSupervisor)
            for keeper in keeping._children.values():
                keeper.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def main(kind: str, folder: str, job: str, token: str, *argv: str) -> None:
    """Start a job as an agent does, and then hang."""
    kept = Kept(kind, Path(folder), LeaseKey(job, 1, token))
    kept.launch(*argv)
    sys.stdout.write("launched\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
