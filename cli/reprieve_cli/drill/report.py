"""A drill's outcome for people: what was expected, what was seen, and the timeline around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from reprieve_cli.drill.engine import Outcome
from reprieve_cli.drill.timeline import Line

NOISE = frozenset({"pending", "running", "shutting-down", "terminated", "command ended", "event"})


def lines(outcome: Outcome, *, everything: bool = False) -> Iterator[str]:
    """Return the report with the answer at its end."""
    yield from body(outcome, everything=everything)
    yield ""
    yield answer(outcome)


def body(outcome: Outcome, *, everything: bool = False) -> Iterator[str]:
    """
    Return what held, with a line each, and what didn't, with the timeline around it.

    The timeline is whole, and always there, with *everything*.
    """
    wrong = [finding for finding in outcome.findings if not finding.holds]
    for finding in outcome.findings:
        mark = "kept  " if finding.holds else "BROKEN"
        yield f"{mark}  {finding.what}: {finding.seen if finding.holds else ''}".rstrip(": ")
        if not finding.holds:
            yield f"          expected  {finding.expected}"
            yield f"          seen      {finding.seen}"
    if outcome.stuck:
        yield f"STUCK   {outcome.stuck}"
    if everything:
        yield from ("", *timeline(outcome))
    elif outcome.stuck or wrong:
        yield from ("", *timeline(outcome, about=_concerned(outcome)))


def timeline(outcome: Outcome, *, about: frozenset[str] | None = None) -> Iterator[str]:
    """
    Return what happened, in seconds since the first line.

    With *about*, names of jobs, other jobs and what says nothing new are left out.
    """
    if not outcome.timeline:
        return
    told = [line for line in outcome.timeline if about is None or _tells(line, outcome, about)]
    width = max(len(line.who) for line in told)
    start = outcome.timeline[0].at
    yield f"timeline, in seconds ({outcome.scenario.notice_seconds:g} s are one notice):"
    for line in told:
        yield of_line(line, start=start, width=width)
    if len(told) < len(outcome.timeline):
        yield f"{len(outcome.timeline) - len(told)} lines more with --verbose"


def _concerned(outcome: Outcome) -> frozenset[str]:
    """Name the jobs that the trouble is about: those with a broken expectation, else all."""
    names = frozenset(job.name for job in outcome.scenario.jobs)
    broken = {finding.job for finding in outcome.findings if not finding.holds and finding.job}
    whole = outcome.stuck or any(not f.holds and not f.job for f in outcome.findings)
    return names if whole else frozenset(broken)


def _tells(line: Line, outcome: Outcome, about: frozenset[str]) -> bool:
    if line.who == "world":
        return line.kind not in NOISE
    return line.who in about or line.who not in {job.name for job in outcome.scenario.jobs}


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


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return the answer for all of them."""
    if len(outcomes) == 1:
        return answer(outcomes[0])
    broken = [outcome.scenario.name for outcome in outcomes if not outcome.holds]
    held = len(outcomes) - len(broken)
    return f"{held} of {len(outcomes)} scenarios hold" + (
        f"; BROKEN: {', '.join(broken)}" if broken else ""
    )


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the same for scripts."""
    return {
        "holds": all(outcome.holds for outcome in outcomes),
        "scenarios": [_of_outcome(outcome) for outcome in outcomes],
    }


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    scenario = outcome.scenario
    start = outcome.timeline[0].at if outcome.timeline else None
    return {
        "name": scenario.name,
        "file": str(scenario.path),
        "holds": outcome.holds,
        "stuck": outcome.stuck or None,
        "clock_scale": scenario.clock_scale,
        "seconds": round(outcome.seconds, 3),
        "jobs": outcome.ids,
        "expectations": [
            {
                "what": finding.what,
                "expected": finding.expected,
                "seen": finding.seen,
                "holds": finding.holds,
            }
            for finding in outcome.findings
        ],
        "timeline": [
            {
                "at": line.at.isoformat(),
                "seconds": round((line.at - start).total_seconds(), 3) if start else 0.0,
                "who": line.who,
                "text": line.text,
            }
            for line in outcome.timeline
        ],
    }
