"""A host that boots in a crowd: the metadata service is slow, and the SDK asks it only once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reprieve_agent.metadata import MetadataError, wait_for_credentials


class Session:
    """Has credentials at the nth look."""

    def __init__(self, nth: int) -> None:
        self.looks = 0
        self._nth = nth

    def get_credentials(self) -> object | None:
        self.looks += 1
        return object() if self.looks >= self._nth else None


def test_it_asks_again_until_there_are_credentials() -> None:
    session = Session(nth=3)
    wait_for_credentials(session, patience=timedelta(seconds=1))
    assert session.looks == 3


def test_without_any_the_agent_says_so_and_does_not_start() -> None:
    with pytest.raises(MetadataError, match="no credentials"):
        wait_for_credentials(Session(nth=1000), patience=timedelta(milliseconds=20))
