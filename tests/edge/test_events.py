"""Real payloads become notices; identity comes from the detail alone."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import MalformedError
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.edge.events import PARSERS, parse_event

EVENTS = Path(__file__).parent.parent / "events"
CLOCK = NoticeClock()
A = "i-0aa00000000000001"
B = "i-0bb00000000000001"
TEN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


def event(name: str, **detail: object) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    loaded["detail"] |= detail
    return loaded


def test_an_interruption_warning_ends_two_minutes_after_its_time() -> None:
    (notice,) = parse_event(event("spot-interruption"), CLOCK)
    assert notice == Notice(
        NoticeKind.INTERRUPTION, A, TEN, Channel.EVENT, TEN + timedelta(seconds=120)
    )


def test_hibernation_starts_at_once() -> None:
    changed = event("spot-interruption", **{"instance-action": "hibernate"})
    (notice,) = parse_event(changed, CLOCK)
    assert (notice.kind, notice.reclaimed_at) == (NoticeKind.HIBERNATE, TEN)


@pytest.mark.parametrize("action", ["stop", "recycle", None])
def test_stop_and_words_nobody_knows_are_as_urgent_as_terminate(action: str | None) -> None:
    changed = event("spot-interruption", **{"instance-action": action})
    (notice,) = parse_event(changed, CLOCK)
    assert notice.kind is NoticeKind.INTERRUPTION


def test_a_capacity_reservation_names_its_own_deadline() -> None:
    (notice,) = parse_event(event("capacity-reservation-interruption"), CLOCK)
    assert notice.kind is NoticeKind.INTERRUPTION
    assert notice.reclaimed_at == TEN + timedelta(minutes=2)


def test_a_health_event_names_several_instances_and_an_rfc_1123_time() -> None:
    notices = parse_event(event("health-scheduled-change"), CLOCK)
    assert [n.instance_id for n in notices] == [A, B]
    assert {n.reclaimed_at for n in notices} == {datetime(2026, 3, 5, 15, 10, 9, tzinfo=UTC)}


def test_advice_has_no_deadline_and_a_state_change_is_a_bell() -> None:
    (advice,) = parse_event(event("rebalance"), CLOCK)
    (bell,) = parse_event(event("state-change-terminated"), CLOCK)
    assert (advice.kind, advice.reclaimed_at) == (NoticeKind.REBALANCE, None)
    assert bell.kind is NoticeKind.STATE_CHANGE
    assert not parse_event(event("state-change-terminated", state="running"), CLOCK)


def test_the_kind_is_source_and_detail_type_together() -> None:
    forged = event("spot-interruption") | {"source": "my.app"}
    other = event("spot-interruption") | {"detail-type": "EC2 AMI State Change"}
    assert not parse_event(forged, CLOCK)
    assert not parse_event(other, CLOCK)


def test_resources_are_never_read() -> None:
    assert parse_event(event("spot-interruption") | {"resources": 7}, CLOCK)


@given(
    detail=st.none()
    | st.dictionaries(
        st.sampled_from(["instance-id", "state", "service", "startTime", "affectedEntities"]),
        st.none() | st.integers() | st.text(max_size=12) | st.lists(st.text(max_size=5)),
    ),
    kind=st.sampled_from(sorted(PARSERS)),
    time=st.text(max_size=12) | st.just("2026-03-01T10:00:00Z"),
)
def test_no_event_escapes_as_anything_but_malformed(
    detail: dict[str, Any] | None, kind: tuple[str, str], time: str
) -> None:
    raw = {"source": kind[0], "detail-type": kind[1], "time": time, "detail": detail}
    with contextlib.suppress(MalformedError):
        parse_event(raw, CLOCK)
