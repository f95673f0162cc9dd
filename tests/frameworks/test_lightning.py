"""Lightning, asked to leave in the middle of an epoch."""

import pytest

from tests.frameworks.driver import EXAMPLES, Driver, digest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SCRIPT = EXAMPLES / "lightning_trainer.py"
STEPS_PER_EPOCH = 40


def test_a_trainer_with_dropout_ends_as_if_it_had_not_been_interrupted(driver: Driver) -> None:
    expected = driver.alone(SCRIPT)
    agent = driver.agent()
    step = driver.interrupt(agent, SCRIPT, "--step-seconds", "0.2")
    following = agent.successor()
    driver.start(following, SCRIPT).finish()

    assert 0 < step < 3 * STEPS_PER_EPOCH
    assert step % STEPS_PER_EPOCH != 0
    assert following.read("done.json") == {"v": 1, "step": 3 * STEPS_PER_EPOCH}
    assert digest(driver.root / "on-2" / "model.pt") == digest(expected / "model.pt")
