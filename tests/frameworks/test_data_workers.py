"""Data workers and a wrapping shell script, which a signal to the process group would kill."""

from pathlib import Path

import pytest

from tests.examples.tiny_agent import eventually
from tests.frameworks.driver import JOBS, PATIENCE_SECONDS, PYTHON, REQUEUE, Driver

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SAVES = 20


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "bash run.sh"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_of_twenty_saves_is_of_the_current_step(
    driver: Driver, method: str, *, wrapped: bool
) -> None:
    agent = driver.agent()
    newest = driver.root / "newest"
    newest.write_bytes(bytes(8))
    command: list[str | Path] = [PYTHON, JOBS / "loading.py", method, newest]
    if wrapped:
        script = driver.root / "run.sh"
        script.write_text(f'echo wrapped\n{PYTHON} "$@"\n')
        command = [Path("/bin/bash"), script, *command[1:]]
    job = agent.run(*command)
    eventually(lambda: current(newest), within=PATIENCE_SECONDS)
    for number in range(SAVES):
        before = current(newest)
        agent.request("checkpoint", request_id=f"r-{number}")
        asked = current(newest)
        saved = agent.ack("saved", request_id=f"r-{number}")["step"]
        # The step in work when it was asked for, or the one that ended just then.
        assert before <= saved <= asked + 1, number
    agent.request("checkpoint_exit", request_id="leave")
    _, errors = job.communicate(timeout=120)

    assert job.returncode == REQUEUE, errors
    assert len(agent.saved_steps()) >= SAVES


def current(newest: Path) -> int:
    return int.from_bytes(newest.read_bytes(), "little")
