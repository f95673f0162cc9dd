"""The frameworks live in an environment of their own; these tests start jobs there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.tiny_agent import Processes, running
from tests.frameworks.driver import PYTHON, Driver, Warm

IMPORTED = (
    "torch",
    "optuna",
    "accelerate",
    "transformers.trainer",
    "transformers.models.gpt2.modeling_gpt2",
    "lightning.pytorch",
)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    if not PYTHON.exists():
        pytest.skip("the frameworks are not installed: make test-frameworks")
    python = Warm(IMPORTED, tmp_path_factory.mktemp("runs"))
    yield python
    python.end()


@pytest.fixture
def processes() -> Iterator[Processes]:
    with running() as started:
        yield started


@pytest.fixture
def driver(warm: Warm, processes: Processes, tmp_path: Path) -> Driver:
    return Driver(warm, tmp_path, processes)
