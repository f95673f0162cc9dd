"""Sixty hosts at once, in the batches that the queue hands over: one command for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reprieve.adapters.ssm import SsmSignals
from reprieve.usecases.wiring import UseCases
from tests.contract.scripted import Endpoint, client, json_reply, serving
from tests.usecases.field_cases import LARGE, Function, event, running
from tests.usecases.story import Story, a_pool

HOSTS, BATCH = 60, 50


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as served:
        served.answers = lambda _asked: json_reply(Command={"CommandId": "c-1"})
        yield served


def test_fifty_hosts_and_ten_are_two_commands(endpoint: Endpoint) -> None:
    story = Story(pool=a_pool(**(LARGE | {"max_hosts": HOSTS})))
    hosts = running(story, HOSTS)
    signals = SsmSignals(lambda: client("ssm", endpoint), "Reprieve-preempt")
    ports = replace(story.ports, signals=signals)
    story.uses = UseCases(ports, story.uses.deployment, story.now)
    function = Function(story)
    for batch in (hosts[:BATCH], hosts[BATCH:]):
        assert function(*(event(host, story) for host in batch)) == []
    assert endpoint.operations == ["SendCommand", "SendCommand"]
    assert [len(asked["InstanceIds"]) for asked in endpoint.asked] == [BATCH, HOSTS - BATCH]
