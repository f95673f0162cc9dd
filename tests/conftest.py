"""
What holds for every test: generated cases repeat, and no real AWS account is in reach.

Several workers may share the suite (``pytest -n``): a module stays with one of them, and so do all
that read the synthesised template, for the sake of what their fixtures hold.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

# A suite that was started in the background ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A failure must come back on the next run, and a busy machine is no failure.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

for name in ("AWS_PROFILE", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
    os.environ.pop(name, None)
os.environ |= {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}

# Modules that take minutes come first, and stories fill the gaps: one cloud is as good as another.
TURNS = {"rehearsal": 0, "infra": 0, "e2e": 2}


class ByModule(LoadScopeScheduling):
    """Give each worker one module at a time, or one story, or all of ``infra``."""

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.split("/")[1]
        if folder == "infra":
            return folder
        return nodeid if folder == "e2e" else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return ByModule(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: TURNS.get(folder_of(item), 1))


def folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]
