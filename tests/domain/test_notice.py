"""A warning escalates over advice; advice never downgrades."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import HostState
from reprieve.domain.notice import (
    URGENCY,
    Act,
    Channel,
    Doubt,
    Notice,
    NoticeKind,
    ReservationEnding,
    escalate,
    react,
)
from tests.builders import HOST, NOON, OTHER_HOST, a_host, a_notice, at

CLOCK = NoticeClock()
KINDS = st.sampled_from(list(NoticeKind))
VERDICTS = [kind for kind in NoticeKind if a_notice(kind).takes_the_host]


@st.composite
def notices(draw: st.DrawFn) -> Notice:
    return a_notice(
        draw(KINDS),
        noticed_at=at(draw(st.integers(-100_000, 100_000))),
        reclaimed_at=draw(st.none() | st.integers(-100_000, 100_000).map(at)),
        doubt=draw(st.none() | st.sampled_from(list(Doubt))),
    )


MOMENTS = st.integers(-200_000, 200_000).map(at)


@given(st.none() | KINDS, KINDS)
def test_what_stands_is_never_less_urgent_than_either(
    known: NoticeKind | None, new: NoticeKind
) -> None:
    old = a_notice(known) if known else None
    stands = escalate(old, a_notice(new))
    assert URGENCY.index(stands.kind) == max(URGENCY.index(k) for k in (known, new) if k)


def test_the_channel_that_came_first_stays_on_record() -> None:
    first = a_notice(channel=Channel.METADATA)
    assert escalate(first, a_notice(channel=Channel.EVENT)).channel is Channel.METADATA


def test_the_earlier_reclaim_time_of_two_wins() -> None:
    stands = escalate(a_notice(), a_notice(reclaimed_at=at(108)))
    assert stands.reclaimed_at == at(108)
    assert escalate(stands, a_notice(reclaimed_at=at(119))).reclaimed_at == at(108)


def test_one_fact_has_one_request_id_whoever_tells_it() -> None:
    heard = a_notice(channel=Channel.EVENT, noticed_at=at(3))
    seen = a_notice(channel=Channel.METADATA, noticed_at=at(1))
    assert heard.request_id == seen.request_id


def test_every_kind_has_its_urgency() -> None:
    assert set(URGENCY) == set(NoticeKind)
    assert len(URGENCY) == len(NoticeKind)


@given(st.lists(notices(), min_size=1, max_size=6))
def test_what_stands_after_all_is_the_most_urgent_whatever_the_order(heard: list[Notice]) -> None:
    stands, backwards = heard[0], heard[-1]
    for notice in heard[1:]:
        stands = escalate(stands, notice)
    for notice in heard[-2::-1]:
        backwards = escalate(backwards, notice)
    assert stands.kind is backwards.kind
    assert URGENCY.index(stands.kind) == max(URGENCY.index(notice.kind) for notice in heard)


@given(st.none() | notices(), notices())
def test_a_repeated_notice_changes_nothing(known: Notice | None, new: Notice) -> None:
    once = escalate(known, new)
    assert escalate(once, new) == once


def test_advice_given_anew_counts_from_then() -> None:
    first = a_notice(NoticeKind.REBALANCE, channel=Channel.METADATA)
    stands = escalate(first, a_notice(NoticeKind.REBALANCE, noticed_at=at(600)))
    assert (stands.noticed_at, stands.channel) == (at(600), Channel.METADATA)


@given(notices(), MOMENTS)
def test_every_notice_has_one_reaction_with_its_reason(notice: Notice, now: datetime) -> None:
    reaction = react(notice, now=now, clock=CLOCK)
    assert reaction == react(notice, now=now, clock=CLOCK)
    assert reaction.reason


@given(notices(), MOMENTS)
def test_a_doubtful_notice_is_recorded_and_never_acted_on(notice: Notice, now: datetime) -> None:
    act = react(notice, now=now, clock=CLOCK).act
    assert (act is Act.RECORD) == (notice.doubt is not None)


@given(notices(), MOMENTS)
def test_advice_never_drains_a_host(notice: Notice, now: datetime) -> None:
    if react(notice, now=now, clock=CLOCK).act is Act.DRAIN:
        assert notice.takes_the_host


@given(notices(), MOMENTS, st.integers(1, 100_000))
def test_a_stale_notice_stays_stale(notice: Notice, now: datetime, later: int) -> None:
    if react(notice, now=now, clock=CLOCK).act is Act.STALE:
        after = now + timedelta(seconds=later)
        assert react(notice, now=after, clock=CLOCK).act is Act.STALE


@pytest.mark.parametrize("kind", VERDICTS)
def test_a_verdict_drains_at_once_when_it_is_fresh(kind: NoticeKind) -> None:
    notice = a_notice(kind, reclaimed_at=at(120))
    assert react(notice, now=at(3), clock=CLOCK).act is Act.DRAIN
    assert react(notice, now=at(121), clock=CLOCK).act is Act.STALE


def test_hibernation_is_not_stale_because_it_has_begun() -> None:
    notice = a_notice(NoticeKind.HIBERNATE, reclaimed_at=NOON)
    assert react(notice, now=at(2), clock=CLOCK).act is Act.DRAIN
    assert react(notice, now=at(121), clock=CLOCK).act is Act.STALE


def test_maintenance_days_ahead_is_a_checkpoint_now_and_a_move_before_it_starts() -> None:
    days = 3 * 86400
    notice = a_notice(NoticeKind.MAINTENANCE, reclaimed_at=at(days))
    assert react(notice, now=at(1), clock=CLOCK).act is Act.ADVISE
    assert react(notice, now=at(days - 601), clock=CLOCK).act is Act.ADVISE
    assert react(notice, now=at(days - 600), clock=CLOCK).act is Act.DRAIN
    assert react(notice, now=at(days + 1), clock=CLOCK).act is Act.STALE


def test_maintenance_without_a_start_is_taken_as_the_most_urgent() -> None:
    notice = a_notice(NoticeKind.MAINTENANCE, reclaimed_at=None)
    assert react(notice, now=at(1), clock=CLOCK).act is Act.DRAIN


def test_the_end_of_a_reservation_is_one_notice_for_each_host_in_it() -> None:
    ending = ReservationEnding("cr-0123456789abcdef0", NOON, at(600))
    one, other = ending.notices([OTHER_HOST, HOST])
    assert [one.instance_id, other.instance_id] == [HOST, OTHER_HOST]
    assert (one.kind, one.reclaimed_at) == (NoticeKind.RESERVATION, at(600))
    assert one.tells_of_capacity, "what ends isn't to be asked for the replacement"


def test_a_host_is_eligible_again_after_advice_that_nothing_followed() -> None:
    host = a_host(notice=a_notice(NoticeKind.REBALANCE))
    assert not host.eligible(now=at(1199), clock=CLOCK)
    assert host.eligible(now=at(1200), clock=CLOCK)


@pytest.mark.parametrize("state", [s for s in HostState if s is not HostState.READY])
def test_a_host_on_its_way_out_is_never_eligible(state: HostState) -> None:
    assert not a_host(state=state).eligible(now=at(10**6), clock=CLOCK)


def test_a_host_under_scheduled_maintenance_takes_no_new_work() -> None:
    host = a_host(notice=a_notice(NoticeKind.MAINTENANCE, reclaimed_at=at(10**6)))
    assert not host.eligible(now=at(5 * 10**5), clock=CLOCK)
