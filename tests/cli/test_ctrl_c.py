"""Ctrl-C of anything, as a terminal sends it: to every process of the command at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from reprieve_cli.assembly import ROOT
from tests.cli.test_demo import Machine, a_machine
from tests.cli.test_ending import REPRIEVE

pytestmark = [pytest.mark.deep, pytest.mark.timeout(300)]

END_SECONDS = 30.0
WAIT_SECONDS = 120.0


@pytest.fixture
def machine() -> Iterator[Machine]:
    with a_machine() as found:
        yield found


@contextmanager
def in_front(*command: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start *command* as a shell does in a terminal: with a process group of its own."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Press Ctrl-C; return what was said until the end, which comes soon."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=END_SECONDS)


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.parametrize(
    "command",
    [
        ("queue",),
        ("submit", "--code", "examples/numpy_lm", "--", "python", "train.py"),
        ("wait", "train-1a2b3c4d"),
        ("logs", "-f", "train-1a2b3c4d"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_waits_for_an_answer_ends_with_a_word(
    machine: Machine, command: tuple[str, ...]
) -> None:
    """It hangs on a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_SECONDS)
        env = machine.environment | {
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        with in_front(*REPRIEVE, *command, env=env) as process:
            connection, _ = silent.accept()
            with connection:
                out, err = interrupted(process)

    assert process.returncode == 130
    assert (out, err.strip()) == ("", "interrupted")
    assert machine.left() == ([], [])


@pytest.mark.e2e
def test_a_cloud_that_is_coming_up_goes_again(machine: Machine) -> None:
    with in_front(*REPRIEVE, "local", "up", env=machine.environment) as process:
        until(machine.has_a_cloud, process)
        out, err = interrupted(process)

    assert process.returncode == 130
    assert (out, err.strip()) == ("", "interrupted")
    assert machine.left() == ([], [])


@pytest.mark.e2e
def test_make_demo_leaves_nothing(machine: Machine) -> None:
    make = ("make", "--silent", "READY=", "demo")
    with in_front(*make, env=machine.environment | {"PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout
        assert any(" launched: " in line for line in process.stdout)
        _, err = interrupted(process)

    assert process.returncode != 0
    assert "interrupted" in err.splitlines()
    assert "Traceback" not in err
    assert machine.left() == ([], [])


HOLDS_A_CLOUD = """
    import time
    from reprieve_cli.local import cloud

    def test_that_holds_a_cloud():
        with cloud.start():
            time.sleep(600)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_run_leaves_no_cloud(machine: Machine, tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_cloud.py").write_text(textwrap.dedent(HOLDS_A_CLOUD))
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers)
    where = ("--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "temp"), str(tmp_path))
    with in_front(*pytest_here, *where, env=machine.environment) as process:
        until(machine.has_a_cloud, process)
        out, _ = interrupted(process)

    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    assert machine.left() == ([], [])
