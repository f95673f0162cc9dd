"""Hosts, and the folders of one attempt, for the tests that need nothing special of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_agent.contract import Watcher
from reprieve_agent.events import Event
from reprieve_agent.places import Places
from tests.agent.harness import OWN_KEY, Cloud, HostUnderTest


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def host(cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    host = HostUnderTest(cloud, tmp_path / "a")
    host.start()
    yield host
    host.close()


@pytest.fixture
def other(cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    host = HostUnderTest(cloud, tmp_path / "b", instance_id="i-0bbbbbbbbbbbbbbbb")
    yield host
    host.close()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places.of(OWN_KEY, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    return places


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def watcher(places: Places, told: list[Event]) -> Watcher:
    return Watcher(OWN_KEY, places, told.append, calm_period=0.01, urgent_period=0.01)
