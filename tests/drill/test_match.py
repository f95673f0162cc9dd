"""What is expected of a value, and how it is said."""

from typing import Any

import pytest

from reprieve_cli.drill.match import Match


@pytest.mark.parametrize(
    ("described", "fitting", "not_fitting", "words"),
    [
        (2, 2, 3, "2"),
        ("SUCCEEDED", "SUCCEEDED", "FAILED", "SUCCEEDED"),
        (None, None, 0, "none"),
        ({"at_least": 1}, 1, 0, "at least 1"),
        ({"at_least": 1}, 2, None, "at least 1"),
        ({"at_most": 1}, 1, 2, "at most 1"),
        ({"at_least": 1, "at_most": 3}, 3, 4, "at least 1 and at most 3"),
        ({"not": "us-east-1a"}, "us-east-1b", "us-east-1a", "not us-east-1a"),
        ({"contains": "gone"}, "its host is gone", "finished", "a text with 'gone'"),
        ({"contains": "gone"}, "gone", None, "a text with 'gone'"),
        ({"one_of": [1, 2]}, 2, 3, "one of 1, 2"),
    ],
)
def test_a_rule_tells_what_fits(described: Any, fitting: Any, not_fitting: Any, words: str) -> None:
    match = Match.of(described)
    assert match.fits(fitting)
    assert not match.fits(not_fitting)
    assert str(match) == words


def test_a_long_text_is_matched_by_a_part_of_it() -> None:
    assert Match.text("restarts").fits("2 restarts used up")
    assert not Match.text({"one_of": ["restarts"]}).fits("2 restarts used up")
