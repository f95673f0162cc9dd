"""What the tests of the examples share: a host, and the processes it may start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.tiny_agent import Processes, TinyAgent, running


@pytest.fixture
def processes() -> Iterator[Processes]:
    with running() as started:
        yield started


@pytest.fixture
def agent(tmp_path: Path, processes: Processes) -> TinyAgent:
    return TinyAgent(tmp_path, processes)
