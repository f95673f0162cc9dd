"""Take a host's report: check who sent it, keep it for people, and settle the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from reprieve.domain.errors import MalformedError
from reprieve.domain.host import HostState
from reprieve.domain.job import Event
from reprieve.domain.lease import LeaseKey
from reprieve.domain.notice import Channel, Doubt, Notice, NoticeKind
from reprieve.domain.settlement import Decision
from reprieve.ports.hosts import HostStore
from reprieve.ports.rows import AddEvents, Rows, Snapshot, Wanted
from reprieve.protocol import POLICY, Report, ReportKind, Scalar
from reprieve.usecases.handle_notice import Handled, HandleNotice, notice_event
from reprieve.usecases.settle import Settle

# Said often and worth no line of the timeline, unless a checkpoint was set aside or refused.
QUIET = frozenset({ReportKind.PROGRESS})
# Of no job, and nothing that a row would have to say: the log keeps them.
LOGGED = frozenset({ReportKind.READY, ReportKind.IDLE})
QUARANTINED = "quarantined"
BAD_STEP = "bad_step"
MOST_SECONDS = 1e8
# Stages of a save in the order in which they are reached, as the receipt names them.
STAGES = ("accepted", "quiesced", "saved", "uploaded", "committed", "released")


class Refusal(StrEnum):
    """Why a report was dropped."""

    SENDER = "the sender isn't the host it speaks for"
    STRANGER = "not a host of ours"
    NOT_HOLDER = "the host doesn't hold that lease"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a report."""

    report: Report
    refusal: Refusal | None = None
    decision: Decision | None = None
    handled: Handled | None = None


@dataclass(frozen=True, slots=True)
class RecordReport:
    """The use case. A report is only a bell: what moves the job is its lease."""

    rows: Rows
    hosts: HostStore
    settle: Settle
    handle_notice: HandleNotice

    def __call__(self, report: Report, *, sender: str | None) -> Recorded:
        """
        Record *report*. *sender* is the instance that the queue attests, or None if it can't.

        Raises ``MalformedError`` for a notice whose words can't be understood.
        """
        if sender is not None and sender != report.instance_id:
            return Recorded(report, Refusal.SENDER)
        if report.kind in LOGGED:
            return Recorded(report)
        if report.kind is ReportKind.LEAVING:
            return self._leaving(report)
        notice = _notice(report) if report.kind is ReportKind.NOTICED else None
        seen = self.rows.read(_wanted(report))
        if seen.host(report.instance_id) is None:
            return Recorded(report, Refusal.STRANGER)
        if notice:
            return self._noticed(report, notice, seen)
        if report.key is None:
            return Recorded(report)
        if not _holds(report.key, report.instance_id, seen):
            return Recorded(report, Refusal.NOT_HOLDER)
        said = AddEvents(report.key.job, _events(report, report.key))
        also = [said] if said.events else []
        return Recorded(report, decision=self.settle(report.key.job, seen=seen, also=also))

    def _leaving(self, report: Report) -> Recorded:
        gone = self.hosts.advance(
            report.instance_id, HostState.RETIRING, reason="the agent said it is leaving"
        )
        return Recorded(report, None if gone else Refusal.STRANGER)

    def _noticed(self, report: Report, notice: Notice, seen: Snapshot) -> Recorded:
        """Act on it; the timeline shows it even if it comes after the attempt is over."""
        (handled,) = self.handle_notice([notice], seen=seen)
        if handled.failure:
            raise handled.failure
        key = report.key
        if key and _holds(key, report.instance_id, seen):
            lines = _decided(report, key.attempt)
            if key.job not in handled.jobs:
                lines += (notice_event(notice, key.attempt, now=self.handle_notice.now()),)
            if lines:
                self.rows.commit([AddEvents(key.job, lines)])
        return Recorded(report, handled=handled)


def _wanted(report: Report) -> Wanted:
    """Return every row that the report can be about, so that one read finds them."""
    host = frozenset({report.instance_id})
    wanted = Wanted(hosts=host)
    if report.kind is ReportKind.NOTICED:
        wanted |= Wanted(holds=host)
    key = report.key
    if key:
        wanted |= Wanted(
            jobs=frozenset({key.job}),
            leases=frozenset({key}),
            orders=frozenset({(key.job, key.attempt), (key.job, key.attempt + 1)}),
        )
    return wanted


def _holds(key: LeaseKey, instance_id: str, seen: Snapshot) -> bool:
    """Compare with the lease, not with the job's row: reports overtake each other."""
    lease = seen.lease(key)
    return (
        lease is not None and lease.holder is not None and lease.holder.instance_id == instance_id
    )


def _notice(report: Report) -> Notice:
    """Read what the host saw; it tells the time left, since its clock may be off."""
    try:
        left = report.data.get("seconds_left")
        return Notice(
            kind=NoticeKind(str(report.data["notice"])),
            instance_id=report.instance_id,
            noticed_at=report.at,
            channel=Channel(str(report.data.get("channel", Channel.METADATA))),
            reclaimed_at=report.at + timedelta(seconds=float(left)) if left is not None else None,
            doubt=Doubt.OVER if report.data.get("over") is True else None,
        )
    except (KeyError, ValueError, OverflowError) as error:
        message = f"report noticed: {error}"
        raise MalformedError(message) from error


def _events(report: Report, key: LeaseKey) -> tuple[Event, ...]:
    """Return the timeline's lines about *report*; a last one tells of the save before it, too."""
    if report.kind in QUIET and not {QUARANTINED, BAD_STEP} & report.data.keys():
        return ()
    said = Event(report.at, report.kind, _words(report), key.attempt, dict(report.data))
    return (*_saving(report, key), said)


def _saving(report: Report, key: LeaseKey) -> list[Event]:
    """Return what a draining host says in one report: each stage at its own time, and all."""
    told = report.data
    reached = {stage: number(told.get(f"{stage}_s")) for stage in STAGES}
    released = reached["released"]
    if released is None:
        return []
    events = []
    for kind, step in ((ReportKind.SAVED, "saved_step"), (ReportKind.COMMITTED, "committed_step")):
        seconds = reached[kind.value]
        # A checkpoint that was in the bucket already told of itself.
        if seconds is None or (kind is ReportKind.COMMITTED and reached["uploaded"] is None):
            continue
        data: dict[str, Scalar] = {"step": told.get(step), "request": told.get("request")}
        if kind is ReportKind.COMMITTED:
            data |= {name: told.get(name) for name in ("manifest", "bytes", "digest")}
            data["seconds"] = told.get("upload_s")
        at = report.at - timedelta(seconds=released - seconds)
        events.append(Event(at, kind, _at_step(kind, data), key.attempt, data))
    stages = ", ".join(f"{stage} {s:.1f} s" for stage, s in reached.items() if s is not None)
    verdict = f"; {told['verdict']}" if told.get("verdict") else ""
    words = f"receipt, from the request on: {stages}{_heard(told)}{verdict}"
    events.append(Event(report.at, "receipt", words, key.attempt, dict(told)))
    return events


def _heard(told: dict[str, Scalar]) -> str:
    """Return how the host heard of the notice; a channel that never reached it isn't named."""
    after = {channel: number(told.get(f"heard_{channel}_s")) for channel in Channel}
    heard = [f"{channel} {s:.1f} s" for channel, s in after.items() if s is not None]
    return f"; heard by {', '.join(heard)}" if heard else ""


def _decided(report: Report, attempt: int) -> tuple[Event, ...]:
    """Return what the host decided about the notice, if it says so."""
    text = report.data.get(POLICY)
    if not isinstance(text, str):
        return ()
    return (Event(report.at, POLICY, text, attempt, dict(report.data)),)


def number(value: Scalar) -> float | None:
    """Return a number of seconds that a host said, if it is one that a clock can take."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MOST_SECONDS else None


def _words(report: Report) -> str:
    if QUARANTINED in report.data:
        manifest, reason = report.data[QUARANTINED], report.data.get("reason")
        return f"checkpoint {manifest} set aside: {reason}"
    if BAD_STEP in report.data:
        step, reason = report.data[BAD_STEP], report.data.get("reason")
        return f"checkpoint of step {step} not sent: {reason}"
    match report.kind:
        case ReportKind.CLAIMED:
            return f"claimed by {report.instance_id}"
        case ReportKind.STARTED:
            restored = report.data.get("restored_step")
            origin = f"from step {restored}" if restored is not None else "from the start"
            return f"started {origin}"
        case _:
            return _at_step(report.kind, report.data)


def _at_step(kind: ReportKind, data: dict[str, Scalar]) -> str:
    step = data.get("step")
    at_step = f" at step {step}" if step is not None else ""
    saves = kind in {ReportKind.SAVED, ReportKind.COMMITTED}
    return f"checkpoint {kind}{at_step}" if saves else f"{kind}{at_step}"
