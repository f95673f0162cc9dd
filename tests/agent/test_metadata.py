"""The metadata service as it misbehaves: notices are seen once, and polling never ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Market
from reprieve.domain.notice import Channel, Doubt, Notice, NoticeKind
from reprieve_agent import metadata
from reprieve_agent.metadata import (
    Identity,
    MetadataClient,
    MetadataError,
    MetadataWatcher,
    moment,
    wait_for_identity,
)
from tests.agent.fakes import MetadataService
from tests.agent.harness import wait_until
from tests.builders import HOST, NOON


@pytest.fixture
def service() -> Iterator[MetadataService]:
    service = MetadataService(HOST)
    yield service
    service.close()


@pytest.fixture
def client(service: MetadataService) -> Iterator[MetadataClient]:
    client = MetadataClient(service.endpoint)
    yield client
    client.close()


@pytest.fixture
def seen() -> list[Notice]:
    return []


@pytest.fixture
def watcher(client: MetadataClient, seen: list[Notice]) -> MetadataWatcher:
    return MetadataWatcher(client, HOST, NoticeClock.of_seconds(6), seen.append, now=lambda: NOON)


def poll(watcher: MetadataWatcher, times: int = 3) -> None:
    for _ in range(times):
        watcher.poll()


def test_a_host_learns_who_it_is(client: MetadataClient) -> None:
    expected = Identity(HOST, "g5.xlarge", "us-east-1a", Market.SPOT)

    assert client.identity() == expected


def test_many_polls_use_one_connection_and_one_token(
    service: MetadataService, watcher: MetadataWatcher
) -> None:
    poll(watcher, 50)

    assert service.connections == 1
    assert sum("token" in path for path in service.requests) == 1


@pytest.mark.parametrize(
    ("body", "kind", "reclaimed_at"),
    [
        ('{"action": "terminate", "time": "2026-03-04T12:02:00Z"}', "interruption", 120),
        ('{"action": "stop", "time": "2026-03-04T12:02:00Z"}', "interruption", 120),
        ('{"action": "hibernate", "time": "2026-03-04T12:00:00Z"}', "hibernate", 0),
        ('{"action": "recycle", "time": "2026-03-04T12:02:00Z"}', "interruption", 120),
        ('{"time": "2026-03-04T12:02:00Z"}', "interruption", 120),
        ('{"action": "terminate", "time": "soon"}', "interruption", None),
        ('{"action": "terminate"}', "interruption", None),
        ('{"action": 7, "time": 7}', "interruption", None),
        ("not json at all", "interruption", None),
        ("[]", "interruption", None),
        ("", "interruption", None),
    ],
)
def test_every_spot_action_is_a_notice(  # noqa: PLR0917 - a table
    service: MetadataService,
    watcher: MetadataWatcher,
    seen: list[Notice],
    body: str,
    kind: str,
    reclaimed_at: int | None,
) -> None:
    service.paths["meta-data/spot/instance-action"] = body

    poll(watcher)

    gone = None if reclaimed_at is None else NOON + timedelta(seconds=reclaimed_at)
    assert seen == [Notice(NoticeKind(kind), HOST, NOON, Channel.METADATA, gone)]


def test_a_notice_that_changes_its_time_is_told_again(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice]
) -> None:
    service.interrupt(time="2026-03-04T12:02:00Z")
    poll(watcher)
    service.interrupt(time="2026-03-04T12:01:48Z")
    poll(watcher)

    assert [notice.reclaimed_at for notice in seen] == [
        NOON + timedelta(seconds=120),
        NOON + timedelta(seconds=108),
    ]


def test_advice_is_seen_once_with_its_own_time(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice]
) -> None:
    service.recommend_rebalance("2026-03-04T11:59:00Z")

    poll(watcher, 10)

    assert seen == [
        Notice(NoticeKind.REBALANCE, HOST, NOON - timedelta(minutes=1), Channel.METADATA)
    ]


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ('[{"NotBefore": "04 Mar 2026 14:00:00 GMT", "State": "active"}]', timedelta(hours=2)),
        (
            '[{"NotBefore": "05 Mar 2026 12:00:00 GMT"}, {"NotBefore": "2026-03-04T15:00:00Z"}]',
            timedelta(hours=3),
        ),
        ('[{"NotBefore": "04 Mar 2026 14:00:00 GMT", "State": "completed"}]', None),
        ("[]", None),
        ('[7, {"NotBefore": "some day"}]', None),
        ("nonsense", None),
    ],
)
def test_maintenance_is_a_notice_from_its_earliest_start(
    service: MetadataService,
    watcher: MetadataWatcher,
    seen: list[Notice],
    body: str,
    start: timedelta | None,
) -> None:
    service.paths["meta-data/events/maintenance/scheduled"] = body

    poll(watcher)

    expected = [] if start is None else [(NoticeKind.MAINTENANCE, NOON + start)]
    assert [(notice.kind, notice.reclaimed_at) for notice in seen] == expected


@pytest.mark.parametrize(
    "after", ['[{"NotBefore": "04 Mar 2026 14:00:00 GMT", "State": "canceled"}]', "[]", None]
)
def test_maintenance_that_was_called_off_is_told_once(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice], after: str | None
) -> None:
    path = "meta-data/events/maintenance/scheduled"
    service.paths[path] = '[{"NotBefore": "04 Mar 2026 14:00:00 GMT", "State": "active"}]'
    poll(watcher)
    if after is None:
        del service.paths[path]
    else:
        service.paths[path] = after

    poll(watcher, 200)

    assert [notice.doubt for notice in seen] == [None, Doubt.OVER]


def test_a_token_that_the_service_forgot_is_renewed_in_the_same_poll(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice]
) -> None:
    poll(watcher)
    service.tokens.clear()
    service.tokens.add("another's")
    service.interrupt()

    watcher.poll()

    assert len(seen) == 1


@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_an_unwell_service_is_asked_again_and_its_notice_isnt_missed(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice], status: int
) -> None:
    service.status = status
    service.interrupt()
    poll(watcher, 5)
    assert seen == []

    service.status = None
    poll(watcher, 1)

    assert [notice.kind for notice in seen] == [NoticeKind.INTERRUPTION]


def test_every_way_to_answer_in_a_row_and_the_notice_is_seen_at_once(
    service: MetadataService,
    watcher: MetadataWatcher,
    seen: list[Notice],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """OP-18."""
    monkeypatch.setattr(metadata, "TIMEOUT_SECONDS", 0.3)
    service.interrupt(time="2026-03-01T10:02:00Z")
    service.script = [404, 404, 401, 404, 503, None, 200]
    polls = 0

    def left_after_poll(left: int) -> None:
        nonlocal polls
        watcher.poll()
        polls += 1
        assert len(service.script) == left
        assert bool(seen) == (left == 0)

    left_after_poll(6)  # 404: no notice
    left_after_poll(5)
    assert tokens(service) == 1
    left_after_poll(3)  # 401: a new token and one more question in the same poll
    assert tokens(service) == 2
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert watcher.unknown == 0
    left_after_poll(2)  # 503: unknown
    assert watcher.unknown == 1
    left_after_poll(0)  # silence on a connection that was kept: asked again on a new one

    assert [notice.reclaimed_at for notice in seen] == [datetime(2026, 3, 1, 10, 2, tzinfo=UTC)]
    assert watcher.period <= 5


def test_a_service_that_refuses_every_token_is_asked_for_two_a_poll_and_no_more(
    service: MetadataService, watcher: MetadataWatcher
) -> None:
    service.script = [401] * 4

    poll(watcher, 2)

    assert service.script == []
    assert tokens(service) == 3
    assert watcher.unknown == 2


def test_a_token_is_renewed_before_its_life_ends(
    service: MetadataService, client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(metadata, "boot_seconds", lambda: now)
    client.get(metadata.SPOT_ACTION)
    now += metadata.TOKEN_TTL_SECONDS * 0.89
    client.get(metadata.SPOT_ACTION)
    assert tokens(service) == 1

    now += metadata.TOKEN_TTL_SECONDS * 0.02
    client.get(metadata.SPOT_ACTION)

    assert tokens(service) == 2


def tokens(service: MetadataService) -> int:
    return sum(path.endswith("api/token") for path in service.requests)


def test_a_service_that_went_away_is_told_from_one_that_answers() -> None:
    service = MetadataService(HOST)
    client = MetadataClient(service.endpoint)
    watcher = MetadataWatcher(client, HOST, NoticeClock.of_seconds(6), lambda _notice: None)
    poll(watcher, 1)
    assert watcher.answers

    service.close()
    client.close()
    watcher.last_answer -= 100
    poll(watcher, 2)

    assert not watcher.answers
    assert watcher.last_try > watcher.last_answer


def test_a_reader_that_raises_doesnt_end_the_polling(
    service: MetadataService, client: MetadataClient
) -> None:
    told: list[Notice] = []

    def emit(notice: Notice) -> None:
        told.append(notice)
        if len(told) == 1:
            raise RuntimeError("a surprise")

    watcher = MetadataWatcher(client, HOST, NoticeClock.of_seconds(6), emit)
    service.interrupt()
    poll(watcher, 2)

    assert len(told) == 2  # what wasn't delivered is told again


def test_it_polls_in_its_own_thread_until_ended(
    service: MetadataService, watcher: MetadataWatcher, seen: list[Notice]
) -> None:
    watcher.start()
    wait_until(lambda: len(service.requests) > 10, "polls")
    service.interrupt()
    wait_until(lambda: seen, "the notice")
    watcher.end()

    assert watcher.period == pytest.approx(0.05)


def test_the_poll_is_a_second_at_most_and_many_times_a_margin_at_any_scale() -> None:
    for seconds in (4, 6, 20, 120, 600):
        clock = NoticeClock.of_seconds(seconds)
        watcher = MetadataWatcher(MetadataClient(), HOST, clock, lambda _notice: None)

        assert watcher.period <= 1
        assert watcher.period * 10 <= clock.margin.total_seconds()


def test_a_host_without_a_metadata_service_gives_up_after_its_patience() -> None:
    service = MetadataService(HOST)
    service.close()

    with pytest.raises(MetadataError):
        wait_for_identity(MetadataClient(service.endpoint), patience=timedelta(seconds=0.1))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-04T12:00:00Z", NOON),
        ("2026-03-04T12:00:00+00:00", NOON),
        ("2026-03-04T12:00:00", NOON),
        ("04 Mar 2026 12:00:00 GMT", NOON),
        ("Wed, 04 Mar 2026 12:00:00 GMT", NOON),
        ("", None),
        (None, None),
        (1772625600, None),
        ("tomorrow", None),
    ],
)
def test_reading_a_time(text: Any, at: datetime | None) -> None:
    read = moment(text)

    assert read == at
    assert read is None or read.tzinfo is UTC or read.utcoffset() == timedelta(0)
