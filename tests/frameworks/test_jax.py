"""The JAX loop with Orbax, asked to leave in the middle of training."""

import pytest

from reprieve_agent.profiles import PROFILES, Whole
from tests.examples.tiny_agent import Started, TinyAgent, environment
from tests.frameworks.driver import (
    EXAMPLES,
    PATIENCE_SECONDS,
    PYTHON,
    QUIET,
    REQUEUE,
    Driver,
    digest,
    progressing,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

STEPS = 100


def start(driver: Driver, agent: TinyAgent | None, *options: str) -> Started:
    """Start it in a process of its own: JAX has threads, which a fork would lose."""
    return driver.processes.start(
        PYTHON,
        EXAMPLES / "jax_orbax.py",
        *("--steps", str(STEPS), *options),
        env=agent.environment(**QUIET) if agent else environment(**QUIET),
        cwd=driver.root,
    )


def finish(started: Started) -> list[str]:
    output, errors = started.communicate(timeout=PATIENCE_SECONDS)
    assert started.returncode == 0, errors
    return output.splitlines()


def test_the_jax_loop_ends_as_if_it_had_not_been_interrupted(driver: Driver) -> None:
    finish(start(driver, None, "--out", "alone.npz"))
    first = driver.agent()
    interrupted = start(driver, first, "--step-seconds", "0.5")
    progressing(first)
    first.request()
    _, errors = interrupted.communicate(timeout=PATIENCE_SECONDS)
    assert interrupted.returncode == REQUEUE, errors
    (step,) = first.saved_steps()

    said = finish(start(driver, first.successor(), "--out", "resumed.npz"))

    assert 0 < step < STEPS
    assert said[0] == f"resumed from step {step}"
    assert digest(driver.root / "resumed.npz") == digest(driver.root / "alone.npz")


def test_what_orbax_wrote_is_a_checkpoint_by_its_profile(driver: Driver) -> None:
    finish(start(driver, None))
    written = driver.root / "checkpoints" / f"step-{STEPS}"
    (written / "state").rename(driver.root / "output-100")
    (found,) = PROFILES["orbax"].candidates(driver.root)
    assert (found.step, PROFILES["orbax"].check(driver.root, found)) == (STEPS, Whole())
