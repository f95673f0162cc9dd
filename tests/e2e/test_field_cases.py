"""The bug reports of others, played on the deployed stack (docs/field-cases.md is their index)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from reprieve_cli.drill.engine import Patience
from tests.e2e.theatre import SCENARIOS, Theatre, story

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

CASES = sorted(path.stem for path in SCENARIOS.glob("op_*.yaml"))
PATIENCE = Patience(step=20, end=20, rest=5)


@contextmanager
def brief_visibility(theatre: Theatre) -> Iterator[None]:
    """Let a ticket that was taken and not deleted come back after 2 s, on the pool's queue."""
    pool = theatre.stage.cloud.stack.pool(theatre.pool)
    sqs, url = theatre.stage.sqs, pool.work_queue_url
    names: Any = ["VisibilityTimeout"]
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "2"})
    try:
        yield
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes=before)


AROUND: dict[str, Callable[[Theatre], AbstractContextManager[None]]] = {
    "op_24_ticket_twice": brief_visibility,
}


def nothing(_theatre: Theatre) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.mark.parametrize("name", CASES)
def test_the_case_holds(theatre: Theatre, name: str) -> None:
    with AROUND.get(name, nothing)(theatre):
        outcome = theatre.play(story(name), patience=PATIENCE)
    assert outcome.holds, theatre.explain(outcome)
