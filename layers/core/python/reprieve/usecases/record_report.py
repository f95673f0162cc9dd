"""Take a host's report: check who sent it, keep it for people, and settle the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from reprieve.domain.errors import MalformedError
from reprieve.domain.host import HostState
from reprieve.domain.job import Event
from reprieve.domain.lease import LeaseKey
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.domain.settlement import Decision
from reprieve.ports.hosts import HostStore
from reprieve.ports.jobs import JobStore
from reprieve.protocol import Report, ReportKind, Scalar
from reprieve.usecases.handle_notice import Handled, HandleNotice, notice_event
from reprieve.usecases.settle import Settle

# Said often and worth no line of the timeline, unless a checkpoint was set aside.
QUIET = frozenset({ReportKind.PROGRESS, ReportKind.IDLE})
QUARANTINED = "quarantined"


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

    jobs: JobStore
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
        host = self.hosts.read([report.instance_id]).get(report.instance_id)
        if host is None:
            return Recorded(report, Refusal.STRANGER)
        if report.kind is ReportKind.NOTICED:
            return self._noticed(report)
        if report.kind is ReportKind.LEAVING:
            self.hosts.advance(
                report.instance_id, HostState.RETIRING, reason="the agent said it is leaving"
            )
        if report.key is None:
            return Recorded(report)
        if not self._holds(report.key, report.instance_id):
            return Recorded(report, Refusal.NOT_HOLDER)
        if report.kind not in QUIET or QUARANTINED in report.data:
            self.jobs.add_events(report.key.job, [_event(report, report.key)])
        return Recorded(report, decision=self.settle(report.key.job))

    def _noticed(self, report: Report) -> Recorded:
        """Act on it; the timeline shows it even if it comes after the attempt is over."""
        notice = _notice(report)
        (handled,) = self.handle_notice([notice])
        if handled.failure:
            raise handled.failure
        key = report.key
        if key and key.job not in handled.jobs and self._holds(key, report.instance_id):
            self.jobs.add_events(key.job, [notice_event(notice, key.attempt)])
        return Recorded(report, handled=handled)

    def _holds(self, key: LeaseKey, instance_id: str) -> bool:
        """Compare with the lease, not with the job's row: reports overtake each other."""
        lease = self.jobs.lease(key)
        return (
            lease is not None
            and lease.holder is not None
            and lease.holder.instance_id == instance_id
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
        )
    except (KeyError, ValueError, OverflowError) as error:
        message = f"report noticed: {error}"
        raise MalformedError(message) from error


def _event(report: Report, key: LeaseKey) -> Event:
    data: dict[str, Scalar] = dict(report.data)
    return Event(report.at, report.kind, _words(report), key.attempt, data)


def _words(report: Report) -> str:
    if QUARANTINED in report.data:
        manifest, reason = report.data[QUARANTINED], report.data.get("reason")
        return f"checkpoint {manifest} set aside: {reason}"
    step = report.data.get("step")
    at_step = f" at step {step}" if step is not None else ""
    match report.kind:
        case ReportKind.CLAIMED:
            return f"claimed by {report.instance_id}"
        case ReportKind.STARTED:
            restored = report.data.get("restored_step")
            origin = f"from step {restored}" if restored is not None else "from the start"
            return f"started {origin}"
        case ReportKind.COMMITTED:
            return f"checkpoint committed{at_step}"
        case ReportKind.SAVED:
            return f"checkpoint saved{at_step}"
        case _:
            return f"{report.kind}{at_step}"
