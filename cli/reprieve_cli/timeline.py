"""A job's story in the order in which it happened, from its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reprieve.adapters import keys
from reprieve.domain.host import CapacityPool, Host
from reprieve.domain.job import Event, Job
from reprieve.domain.notice import Channel
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Order, Try
from reprieve.ports.rows import LAG
from reprieve.protocol import POLICY, ReportKind
from reprieve_cli import phrases
from reprieve_cli.stack import Cloud

INDENT = 10  # of what continues a line: the width of a time and its gap
MOST_REFUSALS = 3  # said one by one; more of them are counted

# Events that speak of EC2's answer, which the try's row holds in full.
ANSWERED = frozenset({"replacement", "capacity"})
CHANNELS: dict[object, Channel] = {channel.value: channel for channel in Channel}
ENDINGS = frozenset({"ended", ReportKind.FINISHED, ReportKind.FAILED, ReportKind.INTERRUPTED})

HOLD_BACK = timedelta(seconds=1.5)  # how far reports overtake each other, as a rule


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    at: datetime
    text: str

    def __str__(self) -> str:
        """Return the line as it is printed."""
        return f"{phrases.clock(self.at)}  {self.text}"


@dataclass(slots=True)
class Story:
    """Tells what happened to a job, each thing once; if *brief*, without its grounds."""

    cloud: Cloud
    job_id: str
    brief: bool = False
    _seen: set[str] = field(default_factory=set)
    _answers: set[tuple[int, int]] = field(default_factory=set)
    _said: set[tuple[int | None, str]] = field(default_factory=set)
    _untold: list[Line] = field(default_factory=list)

    def news(self, *, before: datetime | None = None) -> list[Line]:
        """
        Return the lines that weren't told yet, oldest first.

        Reports overtake each other, so whoever follows the story leaves the last moments
        for the next call: nothing after *before* is told.
        """
        for event in self.cloud.jobs.events(self.job_id):
            _, identity = keys.event(self.job_id, event)
            if identity not in self._seen:
                self._seen.add(identity)
                self._untold += [Line(event.at, text) for text in self._texts(event)]
        self._untold.sort(key=lambda line: line.at)
        told = [line for line in self._untold if before is None or line.at <= before]
        self._untold = self._untold[len(told) :]
        return told

    def add(self, line: Line) -> None:
        """Have *line* told in its place."""
        self._untold.append(line)

    def _texts(self, event: Event) -> list[str]:
        if event.kind in ANSWERED and event.attempt is not None:
            answers = self._new_answers(event.attempt)
            if answers:
                return [text for answer in answers for text in self._of_answer(answer)]
        # The host reports its end, and the functions note it: one of the two will do.
        said = (event.attempt, event.text)
        if event.kind in ENDINGS and said in self._said:
            return []
        self._said.add(said)
        if self.brief:
            return [] if event.kind == "receipt" else [_happened(event)]
        return [of_event(event)]

    def _new_answers(self, attempt: int) -> list[FleetAnswer]:
        new = []
        for row in self.cloud.orders.tries(self.job_id, attempt):
            if row.answer and (attempt, row.n) not in self._answers:
                self._answers.add((attempt, row.n))
                new.append(row.answer)
        return new

    def _of_answer(self, answer: FleetAnswer) -> Iterator[str]:
        yield from of_refusals(answer.errors)
        hosts = self.cloud.hosts.read(one.instance_id for one in answer.instances)
        for one in answer.instances:
            yield of_launch(one, hosts.get(one.instance_id))


def of_event(event: Event) -> str:
    """Return what happened, with the figures that came with it, and what was decided on them."""
    text, decided = _happened(event), event.data.get(POLICY)
    return f"{text}; {decided}" if decided and event.kind != POLICY else text


def _happened(event: Event) -> str:
    host = event.data.get("host")
    text = f"{host}: {event.text}" if host and str(host) not in event.text else event.text
    figures = ", ".join(_figures(event))
    return f"{text} ({figures})" if figures else text


def _figures(event: Event) -> Iterator[str]:
    seconds, count, lag = (event.data.get(key) for key in ("seconds", "bytes", LAG))
    if isinstance(seconds, int | float) and seconds > 0:
        yield phrases.duration(timedelta(seconds=seconds))
    if isinstance(count, int) and count > 0:
        yield phrases.size(count)
    if isinstance(lag, int | float):
        yield f"handled {phrases.duration(timedelta(seconds=max(lag, 0)))} later"


def of_refusals(errors: Sequence[FleetError]) -> Iterator[str]:
    """Return what EC2 didn't have."""
    for error in errors[:MOST_REFUSALS]:
        where = f"no {_place(error.capacity)}" if error.capacity else "nothing"
        yield f"EC2 has {where}: {error.code}"
    if len(errors) > MOST_REFUSALS:
        yield f"EC2 refuses {len(errors) - MOST_REFUSALS} more capacity pools"


def of_launch(one: Launched, host: Host | None) -> str:
    """Return what EC2 gave."""
    price = f", {phrases.dollars(host.usd_per_hour)}" if host and host.usd_per_hour else ""
    return f"{one.instance_id} launched: {_place(one.capacity)}, {one.capacity.market}{price}"


def _place(capacity: CapacityPool) -> str:
    return f"{capacity.type} in {capacity.zone}"


@dataclass(slots=True)
class Heard:
    """
    Which channels told of a notice, and which never did.

    *seconds* are, by channel, how long after the notice was made it was handled, and for what
    the host alone heard, how long after its first word of it.
    """

    attempt: int
    kind: str
    seconds: dict[Channel, float | None] = field(default_factory=dict)

    @property
    def never(self) -> list[Channel]:
        """EC2's channels that didn't tell of it; a person's word has no other."""
        if Channel.OPERATOR in self.seconds:
            return []
        return [
            channel
            for channel in Channel
            if channel not in self.seconds and channel is not Channel.OPERATOR
        ]

    def __str__(self) -> str:
        """Return it as a line for people."""
        told = [
            f"{channel} {phrases.duration(timedelta(seconds=max(late, 0)))}"
            if late is not None
            else str(channel)
            for channel, late in self.seconds.items()
        ]
        never = f"; never {', '.join(self.never)}" if self.never else ""
        return f"attempt {self.attempt}, {self.kind}: heard by {', '.join(told)}{never}"


def channels(events: Sequence[Event]) -> list[Heard]:
    """Return who told of each notice that was heeded, in the order of the notices."""
    notices: dict[tuple[int, str], Heard] = {}
    for event in events:
        if event.attempt is None:
            continue
        channel = CHANNELS.get(event.data.get("channel"))
        if event.kind == "notice" and channel and "reason" not in event.data:
            kind, late = str(event.data.get("kind")), event.data.get(LAG)
            heard = notices.setdefault((event.attempt, kind), Heard(event.attempt, kind))
            seconds = float(late) if isinstance(late, int | float) else None
            heard.seconds.setdefault(channel, seconds)
        elif event.kind == "receipt":
            # The host's own word is of the notice that took it: the last one of the attempt.
            of_attempt = [one for (n, _), one in notices.items() if n == event.attempt]
            for each in Channel if of_attempt else ():
                late = event.data.get(f"heard_{each}_s")
                if isinstance(late, int | float) and not isinstance(late, bool):
                    of_attempt[-1].seconds.setdefault(each, float(late))
    return list(notices.values())


def orders(cloud: Cloud, job: Job) -> list[tuple[Order, Sequence[Try]]]:
    """Return the orders for hosts of *job*, also the one that runs ahead of its attempt."""
    heads = (cloud.orders.read(job.id, attempt) for attempt in range(1, job.attempt + 2))
    return [(head, cloud.orders.tries(job.id, head.attempt)) for head in heads if head]
