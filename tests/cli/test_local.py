"""A person's day with the embedded cloud: up, submit, look, cancel, down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reprieve_cli.local.control import WorldClient
from reprieve_cli.wiring import USER_AGENT_APP
from tests.cli.test_ctrl_c import in_front, interrupted, until
from tests.cli.test_demo import Machine, a_machine
from tests.cli.test_ending import REPRIEVE
from tests.cli.test_reading import STATUS_KEYS

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "numpy_lm"


@dataclass
class Reprieve:
    """The command line of a person whose shell points at the embedded cloud."""

    machine: Machine
    variables: dict[str, str] = field(default_factory=dict)
    control: WorldClient = field(default_factory=lambda: WorldClient(""))

    @property
    def environment(self) -> dict[str, str]:
        return self.machine.environment | self.variables

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*REPRIEVE, *arguments],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=240,
            check=False,
        )


@pytest.fixture(scope="module")
def reprieve() -> Iterator[Reprieve]:
    with a_machine() as machine:
        call = Reprieve(machine)
        up = call("local", "up", "--notice-seconds", "6", "--json")
        try:
            assert up.returncode == 0, up.stderr
            told = json.loads(up.stdout)
            call.variables |= told["env"]
            call.control = WorldClient(told["control"])
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

    # At once: a host that has been idle for half a minute is gone.
    (host,) = json.loads(reprieve("hosts", "--json").stdout)["hosts"]
    assert host["jobs"] == []
    assert host["state"] in {"READY", "RETIRING"}

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


def test_ctrl_c_of_who_looks_on_leaves_the_job_running(reprieve: Reprieve) -> None:
    speaks = "import time; print('first words', flush=True); time.sleep(600)"
    submit = reprieve("submit", "--json", "--", "python", "-c", speaks)
    job = json.loads(submit.stdout)["id"]
    env = reprieve.environment | {"PYTHONUNBUFFERED": "1"}

    for command, sign in ((("wait", job), "started"), (("logs", "-f", job), "first words")):
        with in_front(*REPRIEVE, *command, env=env) as process:
            assert process.stdout
            assert any(sign in line for line in process.stdout), command
            _, err = interrupted(process)
        assert (process.returncode, err.strip()) == (130, "interrupted")

    assert json.loads(reprieve("status", job, "--json").stdout)["status"] == "RUNNING"
    assert reprieve("cancel", job).returncode == 0


def test_ctrl_c_of_a_submit_leaves_no_job(reprieve: Reprieve, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('never run')\n")
    command = (*REPRIEVE, "submit", "--code", str(tmp_path), "--", "python", "train.py")
    before = json.loads(reprieve("queue", "--json").stdout)["jobs"]
    slow = {"delay_seconds": 20}
    reprieve.control.add_fault("s3", "PutObject", slow, resource="*code/*", caller=USER_AGENT_APP)
    try:
        with in_front(*command, env=reprieve.environment) as process:
            until(lambda: uploads_code(reprieve.control), process)
            out, err = interrupted(process)
    finally:
        reprieve.control.clear_faults()

    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted"
    assert json.loads(reprieve("queue", "--json").stdout)["jobs"] == before


def uploads_code(control: WorldClient) -> bool:
    calls = control.calls_in_flight(service="s3", action="PutObject")
    return any("/code/" in name for call in calls for name in call["resources"])


def test_leaving_takes_every_host_along(reprieve: Reprieve) -> None:
    reprieve("submit", "--json", "--", "sleep", "600")
    busy = reprieve("leave")
    assert (busy.returncode, busy.stderr.count("\n")) == (1, 1)
    left = reprieve("leave", "--yes")
    assert left.returncode == 0, left.stderr
    assert left.stdout.endswith("terminated, none left\n")
    assert json.loads(reprieve("leave", "--yes", "--json").stdout) == {"terminated": []}
