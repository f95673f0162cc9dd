"""A full disk is one line that says what to do, and nothing is left half-written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_demo import Machine, a_machine
from tests.cli.test_ending import REPRIEVE
from tests.disks import small_disk

pytestmark = [pytest.mark.deep, pytest.mark.timeout(300)]


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Return a machine whose temporary directory has room for next to nothing."""
    with a_machine() as outer, small_disk(outer.folder, kib=256) as folder:
        yield Machine(folder)


def reprieve(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REPRIEVE, *arguments],
        capture_output=True,
        text=True,
        env=machine.environment
        | {
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        },
        timeout=120,
        check=False,
    )


def told(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the one line on stderr."""
    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


def test_code_that_does_not_fit_as_a_zip(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(os.urandom(1_000_000))

    ended = reprieve(machine, "submit", "--code", str(tmp_path), "--", "python", "train.py")

    assert told(ended).startswith("error: no space left for ")
    assert "set TMPDIR" in ended.stderr
    assert machine.left() == ([], [])


@pytest.mark.e2e
@pytest.mark.parametrize("command", [("local", "up"), ("demo",)], ids=" ".join)
def test_a_cloud_that_does_not_fit(machine: Machine, command: tuple[str, ...]) -> None:
    ended = reprieve(machine, *command)

    assert told(ended).startswith("error: no space left for ")
    assert machine.left() == ([], [])


def test_an_answer_that_nobody_can_write_down() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*REPRIEVE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert told(ended).startswith("error: no space left for ")
