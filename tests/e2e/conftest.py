"""One embedded cloud for all stories, with the stack deployed, and swept clean between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_cli.drill.stage import open_stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.provision import prepare, provision
from tests.e2e.theatre import Theatre

NOTICE_SECONDS = 6.0
POOL = "gpu"
"""Where a story's jobs run that name no pool."""
SETTINGS: dict[str, Any] = {
    "pools": {
        POOL: {"types": ["g5.xlarge", "g6.xlarge"], "max_hosts": 8},
        "reserved": {
            "types": ["p4d.24xlarge"],
            "tiers": ["reserved", "spot"],
            "reservations": ["cr-0123456789abcdef0"],
            "reservation_types": ["capacity-block"],
            "max_hosts": 2,
            "max_usd_per_hour": 100,
        },
    }
}


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    target = tmp_path_factory.mktemp("assembly") / "localized"
    localized = prepare(SETTINGS, notice_seconds=NOTICE_SECONDS, target=target)
    patches = tmp_path_factory.mktemp("patches")
    with embedded.start(
        notice_seconds=NOTICE_SECONDS, agent_environment={"PYTHONPATH": str(patches)}
    ) as cloud:
        provision(cloud, localized)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=NOTICE_SECONDS)
        theatre = Theatre(
            cloud=cloud,
            stage=stage,
            everything=cloud.control.pools(),
            agent_patches=patches,
            settings=SETTINGS,
            pool=POOL,
        )
        theatre.leave_the_sweep_to_the_world()
        yield theatre


@pytest.fixture
def theatre(deployed: Theatre) -> Iterator[Theatre]:
    yield deployed
    deployed.clear()
