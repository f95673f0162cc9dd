"""Messages come back as sent; anything else is refused in one line and never escapes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.errors import MalformedError
from reprieve.domain.lease import LeaseKey
from reprieve.domain.needs import Needs
from reprieve.protocol import OrderMessage, Report, ReportKind, Ticket
from tests.builders import HOST, at

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = [
    "v",
    "job",
    "attempt",
    "token",
    "reason",
    "kind",
    "instance_id",
    "at",
    "seq",
    "data",
    "needs",
    "pool",
]


def test_a_ticket_comes_back_as_sent() -> None:
    ticket = Ticket("job-1", 3, "t3")
    assert Ticket.from_json(ticket.to_json()) == ticket
    picky = Ticket("job-1", 3, "t3", Needs(gpus=2, capabilities=("8.0", "9.0+"), exact=True))
    assert Ticket.from_json(picky.to_json()) == picky
    assert "needs" not in json.loads(ticket.to_json())


@pytest.mark.parametrize("needs", [[1], "much", {"gpus": "two"}, {"gpus": True}, {"nvlink": 1}])
def test_needs_that_cannot_be_read_are_malformed(needs: Any) -> None:
    body = json.loads(Ticket("job-1", 3, "t3").to_json()) | {"needs": needs}
    with pytest.raises(MalformedError):
        Ticket.from_json(json.dumps(body))


def test_a_report_comes_back_as_sent_and_unknown_fields_are_ignored() -> None:
    report = Report(
        ReportKind.COMMITTED, HOST, at(1), 7, LeaseKey("job-1", 2, "t"), {"step": 40, "ok": True}
    )
    body = json.loads(report.to_json()) | {"from_the_future": [1, 2]}
    assert Report.from_json(json.dumps(body)) == report


@pytest.mark.parametrize("message", [Ticket, OrderMessage, Report])
@given(raw=st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON)
def test_malformed_messages_are_told_apart_from_everything_else(
    message: type[Ticket | OrderMessage | Report], raw: Any
) -> None:
    if isinstance(raw, dict):
        raw["v"] = 1
    with contextlib.suppress(MalformedError):
        message.from_json(json.dumps(raw))


@given(st.text())
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        Ticket.from_json("{" + text)


@pytest.mark.parametrize("message", [Ticket, OrderMessage, Report])
def test_nesting_without_end_is_refused(message: type[Ticket | OrderMessage | Report]) -> None:
    with pytest.raises(MalformedError):
        message.from_json("[" * 100_000)


@pytest.mark.parametrize("job", ["", "a" * 257, "a\x00b", "a\nb", "\ud800", "j\u00f6b", 7, None])
def test_a_name_is_short_plain_text(job: object) -> None:
    body = json.loads(Ticket("job-1", 1, "t1").to_json()) | {"job": job}
    with pytest.raises(MalformedError, match="job"):
        Ticket.from_json(json.dumps(body))


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon", ""])
def test_a_report_without_a_sane_time_is_refused(when: str) -> None:
    body = json.loads(Report(ReportKind.READY, HOST, at(0)).to_json()) | {"at": when}
    with pytest.raises(MalformedError):
        Report.from_json(json.dumps(body))


def test_of_what_a_report_says_for_people_only_so_much_is_kept() -> None:
    said: dict[str, Any] = {f"fact {n}": n for n in range(100)}
    said |= {"fact 0": "x" * 10_000, "fact 1": 10**40, "fact 2": float("nan"), "fact 3": 1e300}
    kept = Report.from_json(Report(ReportKind.SAVED, HOST, at(0), data=said).to_json()).data
    assert len(kept) == 64
    assert kept["fact 0"] == "x" * 2000
    assert [kept["fact 1"], kept["fact 2"], kept["fact 3"]] == [str(10**40), "nan", "1e+300"]
    assert kept["fact 4"] == 4
