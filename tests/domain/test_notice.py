"""A warning escalates over advice; advice never downgrades."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.notice import URGENCY, Channel, NoticeKind, escalate
from tests.builders import a_notice, at

KINDS = st.sampled_from(list(NoticeKind))


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
