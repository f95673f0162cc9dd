"""A person's day with the embedded cloud: up, submit, look, cancel, down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.test_demo import a_machine
from tests.cli.test_ending import REPRIEVE
from tests.cli.test_reading import STATUS_KEYS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_lm"

Reprieve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def reprieve() -> Iterator[Reprieve]:
    variables: dict[str, str] = {}
    with a_machine() as machine:

        def call(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*REPRIEVE, *arguments],
                capture_output=True,
                text=True,
                env=machine.environment | variables,
                timeout=240,
                check=False,
            )

        up = call("local", "up", "--notice-seconds", "6", "--json")
        try:
            assert up.returncode == 0, up.stderr
            variables |= json.loads(up.stdout)["env"]
            yield call
        finally:
            down = call("local", "down")
        assert (down.returncode, down.stdout) == (0, "down\n")
        assert machine.left() == ([], [])


def test_what_a_person_does_in_a_day(reprieve: Reprieve) -> None:
    again = reprieve("local", "up")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "already up" in again.stderr

    exports = reprieve("local", "env").stdout
    assert all(line.startswith("export ") for line in exports.splitlines())
    endpoint = subprocess.run(
        ["sh", "-c", f'{exports}\nprintf %s "$AWS_ENDPOINT_URL"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert endpoint.startswith("http://127.0.0.1:")

    doctor = reprieve("doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
    states = {check["name"]: check["state"] for check in json.loads(doctor.stdout)["checks"]}
    assert states == {
        "python": "ok",
        "versions": "ok",
        "credentials": "ok",
        "stack": "ok",
        "spot quota": "not checked here",
        "on-demand quota": "not checked here",
        "spot role": "not checked here",
        "image": "not checked here",
    }

    submit = reprieve(
        *("submit", "--code", str(EXAMPLE), "--", "python", "train.py"),
        *("--steps", "60", "--save-every", "1"),
    )
    assert submit.returncode == 0, submit.stderr
    job = submit.stdout.splitlines()[-1]

    wait = reprieve("wait", job)
    assert wait.returncode == 0, wait.stdout + wait.stderr
    assert wait.stdout.splitlines()[-1].startswith(f"{job} SUCCEEDED")
    assert " launched: " in wait.stdout

    status = json.loads(reprieve("status", job, "--json").stdout)
    assert list(status) == STATUS_KEYS
    assert status["checkpoint"]["step"] == 60
    assert status["checkpoint"]["verified"] is True

    assert "finished at step 60" in reprieve("logs", job).stdout
    followed = reprieve("logs", "-f", job)
    assert "finished at step 60" in followed.stdout

    checkpoints = json.loads(reprieve("checkpoints", "ls", job, "--json").stdout)["checkpoints"]
    assert checkpoints[-1]["step"] == 60
    assert checkpoints[-1]["current"]
    assert not any(row["fault"] for row in checkpoints)

    why = json.loads(reprieve("why", job, "--json").stdout)
    assert {"submitted", "claimed", "started", "finished"} <= {e["kind"] for e in why["events"]}
    (order,) = why["orders"]
    assert order["tries"][0]["instances"]

    (host,) = json.loads(reprieve("hosts", "--json").stdout)["hosts"]
    assert (host["jobs"], host["state"]) == ([], "READY")
    assert reprieve("queue").stdout == "no jobs in gpu\n"


def test_a_running_job_is_cancelled_and_its_host_lets_go(reprieve: Reprieve) -> None:
    submit = reprieve("submit", "--json", "--", "sleep", "600")
    job = json.loads(submit.stdout)["id"]
    waited = reprieve("wait", job, "--timeout", "1s")
    assert waited.returncode == 1
    assert "is still" in waited.stderr
    assert [row["id"] for row in json.loads(reprieve("queue", "--json").stdout)["jobs"]] == [job]

    assert reprieve("cancel", job).stdout == f"{job} CANCELLED\n"

    assert reprieve("wait", job).returncode == 1
    assert reprieve("cancel", job).returncode == 0


def test_leaving_takes_every_host_along(reprieve: Reprieve) -> None:
    reprieve("submit", "--json", "--", "sleep", "600")
    busy = reprieve("leave")
    assert (busy.returncode, busy.stderr.count("\n")) == (1, 1)
    left = reprieve("leave", "--yes")
    assert left.returncode == 0, left.stderr
    assert left.stdout.endswith("terminated, none left\n")
    assert json.loads(reprieve("leave", "--yes", "--json").stdout) == {"terminated": []}
