"""The plain PyTorch loop, asked to leave in the middle of training."""

import pytest

from tests.frameworks.driver import EXAMPLES, PYTHON, QUIET, Driver, digest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SCRIPT = EXAMPLES / "spot_training_torch.py"
OPTIONS = ("--steps", "150", "--out", "model.pt")


def test_the_pytorch_loop_ends_as_if_it_had_not_been_interrupted(driver: Driver) -> None:
    expected = driver.alone(SCRIPT, *OPTIONS)
    agent = driver.agent()
    step = driver.interrupt(agent, SCRIPT, *OPTIONS, "--step-seconds", "0.2")
    following = agent.successor()
    # In a process that shares nothing with the ones before, not even the imports.
    process = driver.processes.start(
        PYTHON, SCRIPT, *OPTIONS, env=following.environment(**QUIET), cwd=driver.root
    )
    output, errors = process.communicate(timeout=300)

    assert process.returncode == 0, errors
    assert 0 < step < 150
    assert output.splitlines()[0] == f"resumed from step {step}"
    assert digest(driver.root / "model.pt") == digest(expected / "model.pt")
