"""Hugging Face's Trainer, asked to leave in the middle of training."""

import pytest

from tests.frameworks.driver import EXAMPLES, Driver, digest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SCRIPT = EXAMPLES / "hf_trainer.py"


@pytest.mark.parametrize(("accumulate", "slowly"), [("1", "0.24"), ("4", "0.06")])
def test_a_trainer_with_dropout_ends_as_if_it_had_not_been_interrupted(
    driver: Driver, accumulate: str, slowly: str
) -> None:
    options = ("--steps", "60", "--accumulate", accumulate)
    expected = driver.alone(SCRIPT, *options)
    agent = driver.agent()
    step = driver.interrupt(agent, SCRIPT, *options, "--step-seconds", slowly)
    following = agent.successor()
    driver.start(following, SCRIPT, *options).finish()

    assert 0 < step < 60
    assert following.read("done.json") == {"v": 1, "step": 60}
    assert digest(driver.root / "on-2" / "final" / "model.safetensors") == digest(
        expected / "final" / "model.safetensors"
    )
