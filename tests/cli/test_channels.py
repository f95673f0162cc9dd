"""Who told of a notice, and who never did."""

from __future__ import annotations

import pytest

from reprieve.domain.job import Event
from reprieve.domain.notice import Channel
from reprieve_cli import documents, timeline
from tests.builders import at


def a_notice(channel: str, lag: float, *, kind: str = "interruption", **more: str) -> Event:
    data: dict[str, str | int | float | bool | None] = {
        "kind": kind,
        "channel": channel,
        "lag_seconds": lag,
    }
    return Event(at(10), "notice", f"{kind} notice, seen by {channel}", 1, {**data, **more})


def test_each_channel_is_told_with_its_lag_and_the_silent_ones_by_name() -> None:
    receipt = Event(at(20), "receipt", "receipt", 1, {"heard_metadata_s": 0.0, "heard_ssm_s": 1.25})

    (heard,) = timeline.channels([a_notice("metadata", 0.5), a_notice("event", 3.0), receipt])

    assert str(heard) == (
        "attempt 1, interruption: heard by metadata 0.5 s, event 3.0 s, ssm 1.2 s; never sweep"
    )
    assert documents.heard(heard) == {
        "attempt": 1,
        "kind": "interruption",
        "seconds": {"metadata": 0.5, "event": 3.0, "ssm": 1.25},
        "never": ["sweep"],
    }


def test_advice_and_the_warning_after_it_are_two_notices() -> None:
    events = [a_notice("event", 1.0, kind="rebalance"), a_notice("metadata", 0.2)]

    assert [(one.kind, list(one.seconds)) for one in timeline.channels(events)] == [
        ("rebalance", [Channel.EVENT]),
        ("interruption", [Channel.METADATA]),
    ]


def test_a_notice_that_was_not_heeded_is_nobodys_word() -> None:
    assert timeline.channels([a_notice("event", 900.0, reason="its time has passed")]) == []


def test_nobody_else_could_have_told_of_a_persons_drain() -> None:
    (heard,) = timeline.channels([a_notice("operator", 0.1, kind="drain")])

    assert heard.never == []


@pytest.mark.parametrize("receipt", [{}, {"heard_metadata_s": "soon"}, {"heard_metadata_s": True}])
def test_a_receipt_without_figures_tells_of_no_channel(receipt: dict[str, str]) -> None:
    events = [a_notice("event", 1.0), Event(at(20), "receipt", "receipt", 1, dict(receipt))]

    (heard,) = timeline.channels(events)

    assert list(heard.seconds) == [Channel.EVENT]
