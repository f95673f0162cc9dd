"""What a pattern says of an event is asked once for each event that could make a difference."""

from __future__ import annotations

from reprieve_cli.local.world.events import mentioned

PATTERN = {"source": ["aws.ec2"], "detail": {"state": ["stopped", "terminated"]}}


def an_event(**detail: str) -> dict[str, object]:
    return {"id": "1", "source": "aws.ec2", "detail": {"instance-id": "i-1"} | detail}


def test_only_what_the_pattern_speaks_of_counts() -> None:
    part = mentioned(PATTERN, an_event(state="stopped"))
    assert part == {"source": "aws.ec2", "detail": {"state": "stopped"}}
    assert mentioned(PATTERN, an_event()) == {"source": "aws.ec2", "detail": {"state": None}}


def test_an_operator_among_the_fields_makes_all_of_it_count() -> None:
    event = an_event(state="stopped")
    assert mentioned({"$or": [PATTERN, {"id": ["2"]}]}, event) == event
