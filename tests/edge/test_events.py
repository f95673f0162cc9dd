"""Real payloads become notices; identity comes from the detail alone."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import MalformedError
from reprieve.domain.notice import Channel, Doubt, Notice, NoticeKind, ReservationEnding
from reprieve.edge.events import PARSERS, Announcement, Place, announced, read_event

EVENTS = Path(__file__).parent.parent / "events"
CLOCK = NoticeClock()
HERE = Place("us-east-1", "111122223333")
A = "i-0aa00000000000001"
B = "i-0bb00000000000001"
TEN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
TWO_MINUTES = timedelta(minutes=2)

# What each payload in tests/events says: of which hosts, in which way, until when.
SAYS: dict[str, list[Notice]] = {
    "ami-state-change": [],
    "capacity-block-expiration": [],  # names its reservation: tested below
    "capacity-reservation-interruption": [
        Notice(NoticeKind.RESERVATION, A, TEN, Channel.EVENT, TEN + TWO_MINUTES, "capacity-block")
    ],
    "health-closed": [
        Notice(
            NoticeKind.MAINTENANCE,
            host,
            datetime(2026, 3, 5, 17, 30, tzinfo=UTC),
            Channel.EVENT,
            datetime(2026, 3, 5, 15, 10, 9, tzinfo=UTC),
            "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            Doubt.OVER,
        )
        for host in (A, B)
    ],
    "health-issue": [],
    "health-scheduled-change": [
        Notice(
            NoticeKind.MAINTENANCE,
            host,
            TEN,
            Channel.EVENT,
            datetime(2026, 3, 5, 15, 10, 9, tzinfo=UTC),
            "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        )
        for host in (A, B)
    ],
    "host-drain": [Notice(NoticeKind.DRAIN, A, TEN, Channel.OPERATOR, TEN + timedelta(minutes=15))],
    "interruptible-reservation-interruption": [
        Notice(NoticeKind.RESERVATION, A, TEN, Channel.EVENT, TEN + TWO_MINUTES)
    ],
    "rebalance": [Notice(NoticeKind.REBALANCE, A, TEN, Channel.EVENT)],
    "scale-in": [
        Notice(NoticeKind.SCALE_IN, A, TEN, Channel.EVENT, TEN + TWO_MINUTES, "gpu-hosts")
    ],
    "scale-in-test": [],
    "spot-interruption": [
        Notice(NoticeKind.INTERRUPTION, A, TEN, Channel.EVENT, TEN + TWO_MINUTES, "terminate")
    ],
    "spot-interruption-by-fis": [
        Notice(NoticeKind.INTERRUPTION, A, TEN, Channel.EVENT, TEN + TWO_MINUTES, "terminate")
    ],
    "state-change-running": [],
    "state-change-terminated": [
        Notice(NoticeKind.STATE_CHANGE, A, TEN, Channel.EVENT, detail="terminated")
    ],
}


def event(name: str, **detail: object) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    loaded["detail"] |= detail
    return loaded


def notices(raw: dict[str, Any], here: Place | None = HERE) -> list[Notice]:
    return list(announced(raw, CLOCK, here).notices)


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_each_real_payload_says_what_it_says(name: str) -> None:
    assert notices(event(name)) == SAYS[name]


def test_every_kind_of_event_has_a_real_payload() -> None:
    payloads = [json.loads(path.read_text()) for path in EVENTS.glob("*.json")]
    assert set(PARSERS) <= {(raw["source"], raw["detail-type"]) for raw in payloads}


@pytest.mark.parametrize("name", [n for n, says in SAYS.items() if says])
def test_what_nobody_knows_and_what_may_be_absent_changes_nothing(name: str) -> None:
    """Of the envelope only source, detail-type, time and detail are needed."""
    raw = event(name, surprise={"more": [1, 2]}) | {"resources": 7, "surprise": True}
    for optional in ("version", "id", "account", "region", "resources"):
        raw.pop(optional)
    assert notices(raw) == SAYS[name]


def test_hibernation_starts_at_once() -> None:
    (notice,) = notices(event("spot-interruption", **{"instance-action": "hibernate"}))
    assert (notice.kind, notice.reclaimed_at) == (NoticeKind.HIBERNATE, TEN)


@pytest.mark.parametrize("action", ["stop", "recycle", None, 7])
def test_stop_and_words_nobody_knows_are_as_urgent_as_terminate(action: object) -> None:
    (notice,) = notices(event("spot-interruption", **{"instance-action": action}))
    assert notice.kind is NoticeKind.INTERRUPTION
    assert notice.reclaimed_at == TEN + TWO_MINUTES


def test_an_absent_action_is_as_urgent_as_terminate() -> None:
    raw = event("spot-interruption")
    del raw["detail"]["instance-action"]
    (notice,) = notices(raw)
    assert notice.kind is NoticeKind.INTERRUPTION


@pytest.mark.parametrize("name", ["azId", "availability-zone-id"])
@pytest.mark.parametrize("resources", ["arn:aws:ec2:x:y:instance/z", ["arn:aws:ec2:::"], None])
def test_a_reservation_is_read_whichever_way_it_is_spelt(name: str, resources: object) -> None:
    raw = event("capacity-reservation-interruption")
    del raw["detail"]["availability-zone-id"]
    raw["detail"][name] = "use1-az1"
    (notice,) = notices(raw | {"resources": resources})
    assert (notice.instance_id, notice.reclaimed_at) == (A, TEN + TWO_MINUTES)


def test_a_reservation_without_a_time_ends_in_two_minutes() -> None:
    raw = event("capacity-reservation-interruption")
    del raw["detail"]["instance-termination-time"]
    (notice,) = notices(raw)
    assert notice.reclaimed_at == TEN + TWO_MINUTES


def test_a_capacity_block_names_its_reservation_and_ends_ten_minutes_after_the_warning() -> None:
    found = announced(event("capacity-block-expiration"), CLOCK, HERE)
    assert found.ending == ReservationEnding(
        "cr-0123456789abcdef0", TEN, TEN + timedelta(minutes=10)
    )


def test_a_late_warning_of_a_capacity_block_counts_from_its_end() -> None:
    late = event("capacity-block-expiration", **{"end-date": "2026-03-01T10:37:00Z"})
    ending = announced(late, CLOCK, HERE).ending
    assert ending
    assert ending.reclaimed_at == TEN + timedelta(minutes=7)


@pytest.mark.parametrize("reservation", [None, 7, "", "cr-", "i-0aa00000000000001", "cr-xyz"])
def test_a_capacity_block_without_its_reservation_is_malformed(reservation: object) -> None:
    with pytest.raises(MalformedError, match="capacity reservation"):
        announced(
            event("capacity-block-expiration", **{"capacity-reservation-id": reservation}), CLOCK
        )


def test_a_health_event_of_other_services_and_categories_is_not_ours() -> None:
    assert not notices(event("health-scheduled-change", service="RDS"))
    assert not notices(event("health-scheduled-change", eventTypeCategory="accountNotification"))


def test_health_times_are_read_in_both_spellings() -> None:
    (notice, _) = notices(event("health-scheduled-change", startTime="2026-03-05T15:10:09Z"))
    assert notice.reclaimed_at == datetime(2026, 3, 5, 15, 10, 9, tzinfo=UTC)


def test_a_change_without_a_start_is_told_without_one() -> None:
    raw = event("health-scheduled-change")
    del raw["detail"]["startTime"]
    del raw["detail"]["endTime"]
    assert {n.reclaimed_at for n in notices(raw)} == {None}


def test_a_change_whose_end_has_passed_is_over() -> None:
    raw = event("health-scheduled-change") | {"time": "2026-03-05T18:00:00Z"}
    assert {n.doubt for n in notices(raw)} == {Doubt.OVER}


def test_one_strange_entity_does_not_hide_the_others() -> None:
    entities = [{"entityValue": "i-nonsense"}, "text", {}, {"entityValue": B}, {"entityValue": B}]
    (notice,) = notices(event("health-scheduled-change", affectedEntities=entities))
    assert notice.instance_id == B


def test_scaling_in_waits_as_long_as_a_notice_lasts() -> None:
    (notice,) = notices(event("scale-in"))
    assert notice.reclaimed_at == TEN + CLOCK.notice
    assert not notices(event("scale-in", LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING"))


def test_the_kind_is_source_and_detail_type_together() -> None:
    forged = event("spot-interruption") | {"source": "my.app"}
    other = event("spot-interruption") | {"detail-type": "EC2 AMI State Change"}
    assert announced(forged, CLOCK, HERE) == Announcement(known=False)
    assert announced(other, CLOCK, HERE) == Announcement(known=False)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"account": "444455556666"}, Doubt.FOREIGN_ACCOUNT),
        ({"region": "eu-west-1"}, Doubt.FOREIGN_REGION),
        ({"replay-name": "last-week"}, Doubt.REPLAYED),
        ({"account": "111122223333", "region": "us-east-1"}, None),
    ],
)
@pytest.mark.parametrize("name", [n for n, says in SAYS.items() if says])
def test_what_is_foreign_or_replayed_is_told_with_that_doubt(
    name: str, change: dict[str, str], doubt: Doubt | None
) -> None:
    raw = event(name) | change
    raw["detail"] = {
        k: v for k, v in raw["detail"].items() if k not in ("affectedAccount", "eventRegion")
    }
    assert notices(raw) == [replace(n, doubt=n.doubt or doubt) for n in SAYS[name]]


def test_the_end_of_a_foreign_reservation_is_told_with_that_doubt() -> None:
    ending = announced(event("capacity-block-expiration"), CLOCK, Place("us-east-1", "1")).ending
    assert ending
    assert ending.doubt is Doubt.FOREIGN_ACCOUNT


def test_health_says_itself_whose_event_it_is() -> None:
    """A backup region and an organisation's delegate get copies of other places' events."""
    copied = event("health-scheduled-change", eventRegion="eu-west-1")
    shared = event("health-scheduled-change", affectedAccount="444455556666")
    assert {n.doubt for n in notices(copied)} == {Doubt.FOREIGN_REGION}
    assert {n.doubt for n in notices(shared)} == {Doubt.FOREIGN_ACCOUNT}


def test_a_function_reads_its_place_from_its_own_arn() -> None:
    arn = "arn:aws-cn:lambda:cn-north-1:111122223333:function:handle:live"
    assert Place.of_function(arn) == Place("cn-north-1", "111122223333")
    assert Place.of_function("") is None


@pytest.mark.parametrize("time", [None, "", "soon", "0001-01-01T00:00:00Z", "9999-12-31", 7])
def test_an_event_without_a_sane_time_is_malformed(time: object) -> None:
    with pytest.raises(MalformedError, match="time"):
        announced(event("spot-interruption") | {"time": time}, CLOCK)


@pytest.mark.parametrize(
    "instance_id", [None, 7, "", "i-", "i-0AA00000000000001", "i-0aa0000000000000x", " " + A, [A]]
)
@pytest.mark.parametrize("name", ["spot-interruption", "rebalance", "state-change-terminated"])
def test_an_event_without_an_instance_id_is_malformed(name: str, instance_id: object) -> None:
    with pytest.raises(MalformedError, match="instance id"):
        announced(event(name, **{"instance-id": instance_id}), CLOCK)


@pytest.mark.parametrize("body", ["", "{", "[]", "7", "null", "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_event_is_malformed(body: str) -> None:
    with pytest.raises(MalformedError):
        read_event(body)


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
        announced(raw, CLOCK)
