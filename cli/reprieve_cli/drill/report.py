"""A drill's outcome for people: what was expected, what was seen, and the timeline around it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from reprieve_cli.drill.engine import Outcome
from reprieve_cli.drill.timeline import Line


def lines(outcome: Outcome) -> Iterator[str]:
    """Return the report; what failed comes with the timeline, what holds with one line each."""
    wrong = [finding for finding in outcome.findings if not finding.holds]
    for finding in outcome.findings:
        mark = "kept  " if finding.holds else "BROKEN"
        yield f"{mark}  {finding.what}: {finding.seen if finding.holds else ''}".rstrip(": ")
        if not finding.holds:
            yield f"          expected  {finding.expected}"
            yield f"          seen      {finding.seen}"
    if outcome.stuck:
        yield f"STUCK   {outcome.stuck}"
    if outcome.stuck or wrong:
        yield ""
        yield from timeline(outcome)
    yield ""
    yield answer(outcome)


def timeline(outcome: Outcome) -> Iterator[str]:
    """Return what happened, in seconds since the first line."""
    if not outcome.timeline:
        return
    width = max(len(line.who) for line in outcome.timeline)
    start = outcome.timeline[0].at
    yield f"timeline, in seconds ({outcome.scenario.notice_seconds:g} s are one notice):"
    for line in outcome.timeline:
        yield of_line(line, start=start, width=width)


def of_line(line: Line, *, start: datetime, width: int = 8) -> str:
    """Return one line of it."""
    return f"{(line.at - start).total_seconds():8.2f}  {line.who:<{width}}  {line.text}"


def answer(outcome: Outcome) -> str:
    """Return the verdict, as the last line says it."""
    kept = sum(finding.holds for finding in outcome.findings)
    total = len(outcome.findings)
    verdict = "holds" if outcome.holds else "is BROKEN"
    name, seconds = outcome.scenario.name, outcome.seconds
    return f"{name} {verdict}: {kept} of {total} expectations kept, {seconds:.1f} s"
