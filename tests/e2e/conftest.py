"""One embedded cloud for all stories, with the stack deployed, and swept clean between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from reprieve_cli.provision import provision

from reprieve_cli import assembly
from reprieve_cli.drill.stage import open_stage
from reprieve_cli.local import cloud as embedded
from tests.e2e.theatre import Theatre

NOTICE_SECONDS = 6.0
CONTEXT: dict[str, Any] = {
    "stack": "Reprieve",
    "reprieve": {
        "notice_seconds": NOTICE_SECONDS,
        "pools": {"gpu": {"types": ["g5.xlarge", "g6.xlarge"], "max_hosts": 3}},
    },
}


@pytest.fixture(scope="session")
def deployed() -> Iterator[Theatre]:
    folder = assembly.synthesise(CONTEXT)
    with embedded.start(notice_seconds=NOTICE_SECONDS) as cloud:
        provision(cloud, folder)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=NOTICE_SECONDS)
        yield Theatre(cloud=cloud, stage=stage, everything=cloud.control.pools())


@pytest.fixture
def theatre(deployed: Theatre) -> Iterator[Theatre]:
    yield deployed
    deployed.clear()
