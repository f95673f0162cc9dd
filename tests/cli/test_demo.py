"""The demo as a person starts it: one process, and nothing of it afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_ending import REPRIEVE, environment
from tests.cli.test_reading import STATUS_KEYS

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

DEMO_KEYS = [
    "job",
    "interruptions",
    "steps_total",
    "steps_repeated",
    "first_channel",
    "seconds_notice_to_committed",
    "seconds_notice_to_running",
    "final_digest",
    "uninterrupted_digest",
    "identical",
    "removed_from_template",
    "changed_for_local",
    "wall_seconds",
]


@dataclass
class Machine:
    """A temporary directory of our own, so that what is left behind is seen."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return environment(TMPDIR=str(self.folder), XDG_RUNTIME_DIR=str(self.folder))

    def has_a_cloud(self) -> bool:
        """Tell whether one was started here."""
        return any(self.folder.glob("reprieve-*/world.json"))

    def left(self) -> tuple[list[str], list[str]]:
        """Return files and processes that remain, once both had a moment to go."""
        deadline = time.monotonic() + 60
        while (found := (self._files(), self._processes())) != ([], []):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return found

    def _files(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    def _processes(self) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.folder).encode() in text:
                found.append(entry.name)
        return found


@contextmanager
def a_machine() -> Iterator[Machine]:
    # Not tmp_path: the path of a Unix socket has to fit into 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="rt-", dir="/tmp"))
    yield Machine(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with a_machine() as found:
        yield found


def test_the_demo_ends_with_identical_weights_and_leaves_nothing(machine: Machine) -> None:
    ended = subprocess.run(
        [*REPRIEVE, "demo", "--json", "--steps", "300"],
        capture_output=True,
        text=True,
        env=machine.environment,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert list(document) == DEMO_KEYS
    assert list(document["job"]) == STATUS_KEYS
    assert document["job"]["status"] == "SUCCEEDED"
    assert document["identical"] is True
    assert document["final_digest"] == document["uninterrupted_digest"]
    assert document["interruptions"] == 1
    assert document["steps_total"] == 300
    first, second = document["job"]["attempts"][:2]
    assert first["zone"] != second["zone"]
    assert second["restored_step"] > 0
    assert "InsufficientInstanceCapacity" in ended.stderr
    assert max(len(line) for line in ended.stderr.splitlines()) <= 80
    assert machine.left() == ([], [])


def test_the_demo_says_no_when_the_random_state_is_forgotten(machine: Machine) -> None:
    ended = subprocess.run(
        [*REPRIEVE, "demo", "--steps", "200", "--forget-random-state"],
        capture_output=True,
        text=True,
        env=machine.environment,
        check=False,
    )

    assert ended.returncode == 1, ended.stderr
    last = ended.stdout.splitlines()[-1]
    assert last == "no: the weights differ from those of the uninterrupted run"
    assert machine.left() == ([], [])


@contextmanager
def a_demo(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*REPRIEVE, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=machine.environment | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        yield process


def test_a_demo_that_is_terminated_leaves_nothing(machine: Machine) -> None:
    with a_demo(machine) as process:
        while not machine.has_a_cloud():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.terminate()
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert machine.left() == ([], [])


def test_a_demo_that_is_killed_leaves_no_process(machine: Machine) -> None:
    """It can't remove its scratch directory; the world removes its own."""
    with a_demo(machine) as process:
        assert process.stdout
        assert any(" launched: " in line for line in process.stdout)
        process.kill()
        process.communicate(timeout=60)

    files, processes = machine.left()
    assert processes == []
    assert [name for name in files if not name.startswith("reprieve-demo-")] == []
