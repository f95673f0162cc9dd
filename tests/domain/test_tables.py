"""The tables that people read say what the code does."""

from __future__ import annotations

from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause
from reprieve.domain.notice import NoticeKind
from tests.domain.tables import PAGE, page, tables


def test_the_page_says_what_the_code_does() -> None:
    """If this fails, `python -m tests.domain.tables` brings the page up to date."""
    text = PAGE.read_text()
    assert page(text) == text


def test_no_kind_state_or_cause_is_left_out() -> None:
    shown = tables()
    for word in (*NoticeKind, *JobStatus, *(c for c in Cause if c is not Cause.DONE)):
        assert word in shown
