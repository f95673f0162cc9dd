"""What is written is what is read back, for every record and every value that it may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.adapters.codec import MAX_DIGITS, decode, encode, from_item, moment, to_item
from reprieve.domain.errors import MalformedError
from reprieve.domain.host import CapacityPool, Host, HostState, Market
from reprieve.domain.job import Attempt, CheckpointRef, Counters, Event, Job, JobStatus
from reprieve.domain.lease import Cause, Holder, Holds, Lease, LeaseKey, LeaseState, Outcome, Phase
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.order import (
    FleetAnswer,
    FleetError,
    Launched,
    Order,
    OrderState,
    Override,
    Plan,
    Try,
)
from reprieve.domain.spec import JobSpec
from tests.builders import NOON, a_host, a_job, an_event, at

text = st.text(max_size=20)
names = st.text("abcxyz-019", min_size=1, max_size=12)
counts = st.integers(0, 10**12)
durations = st.timedeltas(timedelta(days=-9999), timedelta(days=9999))
moments = durations.map(lambda since: NOON + since)
numbers = st.floats(allow_nan=False)
scalars = st.one_of(
    text,
    st.booleans(),
    st.none(),
    st.integers(-(10**MAX_DIGITS) + 1, 10**MAX_DIGITS - 1),
    st.floats(-(2**53), 2**53).filter(lambda number: number == 0 or abs(number) > 1e-130),
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


keys = st.builds(LeaseKey, names, counts, names)
holders = st.builds(Holder, names, names)
capacities = st.builds(CapacityPool, names, names, st.sampled_from(Market))
notices = st.builds(
    Notice,
    st.sampled_from(NoticeKind),
    names,
    moments,
    st.sampled_from(Channel),
    maybe(moments),
)
specs = st.builds(
    JobSpec,
    command=st.lists(text, min_size=1, max_size=3).map(tuple),
    code=maybe(text),
    setup=st.lists(text, max_size=2).map(tuple),
    env=st.dictionaries(names, text, max_size=2),
    secrets=st.dictionaries(names, text, max_size=2),
    max_restarts=counts,
    save_every=maybe(durations),
    profile=st.lists(text, max_size=2).map(tuple),
    helper=st.booleans(),
    image=maybe(text),
)
jobs = st.builds(
    Job,
    id=names,
    name=text,
    pool=names,
    spec=specs,
    token=names,
    created_at=moments,
    updated_at=moments,
    ticket_at=moments,
    attempt=counts,
    status=st.sampled_from(JobStatus),
    version=counts,
    reason=text,
    needs_you=st.booleans(),
    next_try_at=maybe(moments),
    checkpoint=maybe(st.builds(CheckpointRef, counts, text)),
    counters=st.builds(Counters, counts, counts, counts, counts),
    steps_lost=counts,
)
leases = st.builds(
    Lease,
    key=keys,
    pool=names,
    spec=specs,
    state=st.sampled_from(LeaseState),
    holder=maybe(holders),
    beat=counts,
    phase=maybe(st.sampled_from(Phase)),
    step=maybe(counts),
    restored_step=maybe(counts),
    committed_step=maybe(counts),
    committed_manifest=maybe(text),
    sealed_attempt=counts,
    base=maybe(text),
    outcome=maybe(st.sampled_from(Outcome)),
    cause=maybe(st.sampled_from(Cause)),
    exit_code=maybe(st.integers(-255, 255)),
    detail=text,
)
attempts = st.builds(
    Attempt,
    names,
    counts,
    usd_per_hour=maybe(numbers),
    started_at=maybe(moments),
    outcome=maybe(st.sampled_from(Outcome)),
)
plans = st.builds(
    Plan,
    stack=names,
    job=names,
    attempt=counts,
    try_n=counts,
    pool=names,
    market=st.sampled_from(Market),
    strategy=names,
    launch_template=names,
    launch_template_version=names,
    overrides=st.lists(st.builds(Override, capacities, names), max_size=3).map(tuple),
)
answers = st.builds(
    FleetAnswer,
    st.lists(st.builds(Launched, names, capacities), max_size=2).map(tuple),
    st.lists(st.builds(FleetError, text, text, maybe(capacities)), max_size=2).map(tuple),
)
records = st.one_of(
    jobs,
    leases,
    attempts,
    st.builds(
        Event, moments, names, text, maybe(counts), st.dictionaries(names, scalars, max_size=3)
    ),
    st.builds(
        Host,
        names,
        names,
        capacities,
        moments,
        st.sampled_from(HostState),
        maybe(notices),
        maybe(numbers),
        text,
    ),
    st.builds(Holds, names, st.frozensets(keys, max_size=3), counts),
    st.builds(
        Order,
        names,
        counts,
        names,
        text,
        moments,
        moments,
        st.sampled_from(OrderState),
        next_try_at=maybe(moments),
    ),
    st.builds(Try, names, counts, counts, plans, moments, maybe(answers)),
)


@given(records)
def test_every_record_reads_back_as_it_was_written(record: Any) -> None:
    assert from_item(type(record), to_item(record)) == record


@given(records)
def test_every_number_is_one_that_dynamodb_takes(record: Any) -> None:
    for number in _numbers({"M": to_item(record)}):
        digits = Decimal(number).normalize().as_tuple()
        assert len(digits.digits) <= MAX_DIGITS
        assert -130 <= Decimal(number).adjusted() <= 125


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e-131, 1e126, 5e-324])
def test_a_number_out_of_range_becomes_text_and_comes_back(number: float) -> None:
    assert encode(number) == {"S": repr(number)}
    assert decode(float, encode(number)) == number


def test_nan_becomes_text_and_comes_back() -> None:
    assert encode(math.nan) == {"S": "nan"}
    assert math.isnan(decode(float, encode(math.nan)))


def test_a_huge_integer_becomes_text_and_comes_back() -> None:
    assert encode(10**38) == {"S": "1" + "0" * 38}
    assert decode(int, encode(10**38)) == 10**38
    assert decode(int, encode(-(10**38) + 1)) == -(10**38) + 1


@given(moments, moments)
def test_moments_compare_as_text_as_they_do_as_time(one: datetime, other: datetime) -> None:
    assert (moment(one) < moment(other)) == (one < other)


def test_a_moment_is_stored_in_utc_whatever_its_zone() -> None:
    in_tokyo = at(0).astimezone(timezone(timedelta(hours=9)))

    assert encode(in_tokyo) == {"S": "2026-03-04T12:00:00.000000+00:00"}
    assert decode(datetime, encode(in_tokyo)) == in_tokyo


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        encode(datetime(2026, 3, 4))  # noqa: DTZ001 - that is the point


def test_what_no_row_can_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode(object())


def test_nothing_and_empty_sets_take_no_space() -> None:
    assert "holder" not in to_item(Lease(LeaseKey("j", 1, "t"), "p", JobSpec(("true",))))
    assert "leases" not in to_item(Holds("i-1"))


@dataclass(frozen=True, slots=True)
class Newer:
    """A record with a field that old rows lack, and one whose default isn't None."""

    name: str
    limit: int | None = 3
    tags: frozenset[str] = frozenset({"new"})


def test_an_old_row_takes_the_defaults_of_a_newer_record() -> None:
    assert from_item(Newer, {"name": {"S": "a"}}) == Newer("a")


def test_none_is_kept_apart_from_a_default_that_is_not_none() -> None:
    assert from_item(Newer, to_item(Newer("a", limit=None))) == Newer("a", limit=None)


def test_attributes_that_a_record_does_not_know_are_ignored() -> None:
    item = to_item(a_host()) | {"rev": {"N": "3"}, "pk": {"S": "HOST#i"}}

    assert from_item(Host, item) == a_host()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", {"S": "DANCING"}),
        ("status", {"N": "1"}),
        ("attempt", {"S": "one"}),
        ("created_at", {"S": "yesterday"}),
        ("spec", {"M": {}}),
        ("spec", {"S": "python train.py"}),
    ],
)
def test_a_row_that_cannot_be_read_names_the_field(name: str, value: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match=f"Job.{name}|JobSpec"):
        from_item(Job, to_item(a_job()) | {name: value})


def test_a_row_without_a_required_field_names_it() -> None:
    item = to_item(a_job())
    del item["token"]

    with pytest.raises(MalformedError, match=r"Job\.token"):
        from_item(Job, item)


def test_an_events_nan_is_told_as_text() -> None:
    event = an_event(data={"loss": math.nan})

    assert from_item(Event, to_item(event)).data == {"loss": "nan"}


def _numbers(value: dict[str, Any]) -> list[str]:
    match value:
        case {"N": number}:
            return [number]
        case {"M": entries}:
            return [n for entry in entries.values() for n in _numbers(entry)]
        case {"L": entries}:
            return [n for entry in entries for n in _numbers(entry)]
        case _:
            return []
