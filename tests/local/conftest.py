"""One embedded cloud for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reprieve_cli.local.cloud import Cloud
from tests.local.support import Aws, Fleet, make_template, start, subnets_of


@pytest.fixture(scope="session")
def cloud() -> Iterator[Cloud]:
    with start() as running:
        yield running


@pytest.fixture(scope="session")
def aws(cloud: Cloud) -> Aws:
    return Aws(cloud)


@pytest.fixture(scope="session")
def template_id(aws: Aws) -> str:
    return make_template(aws)


@pytest.fixture
def fleet(aws: Aws, template_id: str) -> Iterator[Fleet]:
    """Launch hosts in a market where everything is to be had; all are gone afterwards."""
    control = aws.cloud.control
    before = control.pools()
    yield Fleet(aws, template_id, subnets_of(aws))
    control.clear_faults()
    control.put_pools(before)
    for host in control.hosts():
        if host.state in {"pending", "running"}:
            control.kill(host.instance_id, events=False)
