"""A Ray Tune sweep whose host goes away: Ray keeps the trials, Reprieve starts the script again."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.examples.tiny_agent import Started, TinyAgent
from tests.frameworks.driver import (
    EXAMPLES,
    PYTHON,
    QUIET,
    REQUEUE,
    Driver,
    progressing,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(900)]

PATIENCE_SECONDS = 400.0  # it starts four servers first
TRIALS, ITERATIONS = 2, 20
TOTAL = TRIALS * ITERATIONS


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a folder with a short name: Ray's sockets lie deep below it."""
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def start(driver: Driver, agent: TinyAgent, scratch: Path, *options: str) -> Started:
    return driver.processes.start(
        PYTHON,
        EXAMPLES / "ray_tune.py",
        *("--storage", driver.root / "bucket", "--scratch", scratch / str(agent.attempt)),
        *("--trials", str(TRIALS), "--iterations", str(ITERATIONS), *options),
        env=agent.environment(**QUIET, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0"),
        cwd=driver.root,
    )


def test_a_sweep_goes_on_where_its_trials_were(driver: Driver, scratch: Path) -> None:
    first = driver.agent()
    # Slow enough not to be through before it is asked, however busy the machine is.
    interrupted = start(driver, first, scratch, "--step-seconds", "1")
    progressing(first)
    first.request()
    _, errors = interrupted.communicate(timeout=PATIENCE_SECONDS)
    assert interrupted.returncode == REQUEUE, errors
    (step,) = first.saved_steps()

    output, errors = start(driver, first.successor(), scratch).communicate(timeout=PATIENCE_SECONDS)

    said = re.search(rf"^finished {TOTAL} iterations, (\d+) of them earlier", output, re.MULTILINE)
    assert said, errors
    # Tune may not have got to write down the checkpoint of a trial's last iteration.
    assert 0 < int(said[1]) <= step < TOTAL
