"""A job moves only through the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.errors import IllegalTransitionError
from reprieve.domain.job import TERMINAL, TRANSITIONS, JobStatus
from tests.builders import a_job

STATUSES = st.sampled_from(list(JobStatus))


@given(STATUSES, STATUSES)
def test_a_job_moves_where_the_table_says_and_nowhere_else(old: JobStatus, new: JobStatus) -> None:
    job = a_job(status=old)
    if new is old or new in TRANSITIONS[old]:
        assert job.to(new, reason="test").status is new
    else:
        with pytest.raises(IllegalTransitionError, match=f"{old} -> {new}"):
            job.to(new, reason="test")


def test_nothing_leaves_a_terminal_state() -> None:
    assert all(not TRANSITIONS[status] for status in TERMINAL)


def test_from_every_live_state_each_end_can_be_reached() -> None:
    for status in set(JobStatus) - TERMINAL:
        assert TRANSITIONS[status] >= TERMINAL


def test_draining_never_goes_back_to_running() -> None:
    assert JobStatus.RUNNING not in TRANSITIONS[JobStatus.DRAINING]
