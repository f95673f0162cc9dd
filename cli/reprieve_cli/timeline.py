"""A job's story in the order in which it happened, from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve.adapters import keys
from reprieve.domain.job import Event, Job
from reprieve.domain.order import Order, Try
from reprieve_cli import phrases
from reprieve_cli.stack import Cloud

INDENT = 10  # of the lines that continue one: the width of a time and its gap


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    at: datetime
    text: str

    def __str__(self) -> str:
        """Return the line as it is printed."""
        return f"{phrases.clock(self.at)}  {self.text}"


def story(events: Iterable[Event], tries: Iterable[Try]) -> list[Line]:
    """Return all of it, oldest first."""
    lines = [Line(event.at, of_event(event)) for event in events]
    lines += [Line(row.at, of_try(row)) for row in tries]
    return sorted(lines, key=lambda line: line.at)


def of_event(event: Event) -> str:
    """Return what happened, with the figures that came with it."""
    figures = [text for name, text in _figures(event) if name in event.data]
    return f"{event.text} ({', '.join(figures)})" if figures else event.text


def _figures(event: Event) -> Iterator[tuple[str, str]]:
    seconds, count, lag = (event.data.get(key) for key in ("seconds", "bytes", "lag_seconds"))
    if isinstance(seconds, int | float) and seconds > 0:
        yield "seconds", phrases.duration(timedelta(seconds=seconds))
    if isinstance(count, int) and count > 0:
        yield "bytes", phrases.size(count)
    if isinstance(lag, int | float):
        yield "lag_seconds", f"handled {phrases.duration(timedelta(seconds=max(lag, 0)))} later"


def of_try(row: Try) -> str:
    """Return what EC2 was asked for."""
    pools = phrases.count(len(row.plan.overrides), "capacity pool")
    return f"attempt {row.attempt}: EC2 asked for one {row.plan.market} host out of {pools}"


def orders(cloud: Cloud, job: Job) -> list[tuple[Order, Sequence[Try]]]:
    """Return the orders for hosts of *job*, also the one that runs ahead of its attempt."""
    heads = (cloud.orders.read(job.id, attempt) for attempt in range(1, job.attempt + 2))
    return [(head, cloud.orders.tries(job.id, head.attempt)) for head in heads if head]


@dataclass(slots=True)
class Follower:
    """Tells what is new since it last looked; a report that comes late is told when it comes."""

    cloud: Cloud
    job_id: str
    _told: set[str] = field(default_factory=set)

    def look(self) -> list[Line]:
        """Return the lines that weren't told before."""
        lines = []
        for event in self.cloud.jobs.events(self.job_id):
            _, identity = keys.event(self.job_id, event)
            if identity not in self._told:
                self._told.add(identity)
                lines.append(Line(event.at, of_event(event)))
        return lines
