"""What a job is asked, how long its answer is waited for, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.lease import Cause
from reprieve.protocol import Scalar
from reprieve_agent import estimator
from reprieve_agent.clock import Now
from reprieve_agent.periods import Periods
from reprieve_agent.state import AckState, Mark, Request, RequestKind, Stage, Tenure


def to_leave(
    tenure: Tenure,
    request_id: str,
    *,
    cause: Cause,
    reason: str,
    ends: float,
    periods: Periods,
    now: Now,
) -> Request | None:
    """
    Return the request to save and leave by *ends*, or None if the one that stands will do.

    One that stands and leaves the job too much time keeps its name and gets nearer ends.
    """
    asked = _divided(
        tenure, RequestKind.CHECKPOINT_EXIT, request_id, ends=ends, periods=periods, now=now
    )
    known = tenure.request
    if known is None or not known.exits:
        return replace(asked, cause=cause, reason=reason)
    if ends > known.deadline - periods.reserve:
        return None
    return replace(
        known,
        cause=cause,
        reason=reason,
        save_by=asked.save_by,
        deadline=asked.deadline,
        term_at=asked.term_at,
    )


def weighed(tenure: Tenure, request: Request, *, periods: Periods, now: Now) -> Request:
    """
    Return *request* with the estimator's word on it; the first word on a request stands.

    Unasked, the job is let be until there is no time left for anything but the last report.
    """
    if request.verdict:
        return request
    verdict = estimator.judge(
        tenure.estimates,
        left=request.deadline - now.boot,
        margin=periods.reserve,
        step=tenure.step,
        durable_step=tenure.committed_step or tenure.base_step,
        pending=max(tenure.uploading, default=None),
    )
    if verdict.choice is estimator.Choice.EMERGENCY:
        return replace(request, verdict=verdict.text)
    save_by = max(now.boot, request.deadline - periods.reserve)
    return replace(request, verdict=verdict.text, unasked=True, save_by=save_by)


def to_go_on(
    tenure: Tenure, request_id: str, *, reason: str, periods: Periods, now: Now
) -> Request:
    """Return the request to save and go on; an answer is waited for as long as a notice lasts."""
    ends = now.boot + periods.notice - periods.margin
    asked = _divided(
        tenure, RequestKind.CHECKPOINT, request_id, ends=ends, periods=periods, now=now
    )
    return replace(asked, reason=reason)


def earlier(request: Request, by: float) -> Request:
    """Return *request* with all its ends *by* seconds earlier."""
    return replace(
        request,
        deadline=request.deadline - by,
        save_by=request.save_by - by,
        term_at=request.term_at - by,
    )


def answered(tenure: Tenure, *, periods: Periods, now: Now) -> Tenure:
    """Close a request whose save is durable: the job may go on, or has a moment to leave."""
    request = tenure.request
    if request is None or request.ack is not AckState.SAVED:
        return tenure
    if not tenure.durable(request.ack_step):
        return tenure
    if not request.exits:
        return replace(tenure, request=None)
    request = marked(request, Mark.COMMITTED, now)
    return replace(tenure, request=replace(request, linger_until=now.boot + periods.linger))


def kill_at(request: Request, periods: Periods) -> float:
    """Return when to stop waiting; a save in progress is left alone while it could count."""
    if request.linger_until is not None:
        return min(request.linger_until, request.deadline)
    if request.ack in {AckState.SAVING, AckState.SAVED}:
        window = request.deadline - request.since
        return request.deadline - min(periods.reserve, window / 4)
    return request.save_by


def term_at(tenure: Tenure, periods: Periods) -> float | None:
    """
    Return when to send SIGTERM to a job that doesn't hear; it could abort a good save.

    One that never said a word, and had the time to, won't: SIGTERM is its request, and what it
    saves upon that by its own means has all of the time that is left.
    """
    request = tenure.request
    if request is None or not request.open or tenure.process is None:
        return None
    if request.ack is not None or request.termed:
        return None
    if tenure.hooked:
        return request.term_at
    return min(request.term_at, max(request.since, tenure.since + periods.first_word))


def next_moment(tenure: Tenure, periods: Periods) -> float | None:
    """Return when something is due about what a running job is, or will be, asked."""
    request = tenure.request
    if tenure.stage is not Stage.RUNNING or request is None:
        return tenure.save_due
    if not request.exits:
        return request.deadline
    if request.killed:
        return None
    term = term_at(tenure, periods)
    kill = kill_at(request, periods)
    return kill if term is None else min(kill, term)


def marked(request: Request, mark: Mark, now: Now) -> Request:
    """Note when a stage was reached, the first time."""
    if any(name == mark for name, _ in request.marks):
        return request
    return replace(request, marks=(*request.marks, (mark.value, now.boot)))


def committed(tenure: Tenure, uploaded: float, now: Now) -> Tenure:
    """Note when the newest save was in the bucket; an older one before it doesn't count."""
    request = tenure.request
    if request is None:
        return tenure
    earlier_marks = tuple(
        (name, at) for name, at in request.marks if name not in {Mark.UPLOADED, Mark.COMMITTED}
    )
    uploaded = max(uploaded, request.since)
    marks = (*earlier_marks, (Mark.UPLOADED.value, uploaded), (Mark.COMMITTED.value, now.boot))
    return replace(tenure, request=replace(request, marks=marks))


def receipt(tenure: Tenure, now: Now) -> dict[str, Scalar]:
    """Return seconds from the request to each stage, and what was made durable in that time."""
    request = tenure.request
    if request is None:
        return {}
    seconds = tenure.upload_seconds
    stages: dict[str, Scalar] = {
        f"{name}_s": round(at - request.since, 3) for name, at in request.marks
    }
    return stages | {
        "released_s": round(now.boot - request.since, 3),
        "request": request.id,
        "saved_step": request.ack_step,
        "bytes": tenure.upload_bytes,
        "upload_s": None if seconds is None else round(seconds, 3),
        "digest": tenure.committed_digest,
        "verdict": request.verdict or None,
        "termed": request.termed,
        "killed": request.killed,
    }


def _divided(
    tenure: Tenure,
    kind: RequestKind,
    request_id: str,
    *,
    ends: float,
    periods: Periods,
    now: Now,
) -> Request:
    """Divide the time left: the save, its upload (as long as the last one took), a reserve."""
    left = max(ends - now.boot, 0.0)
    upload = 1.3 * (tenure.upload_seconds or 0.0)
    save_by = ends - min(max(periods.reserve, upload), left / 2)
    request = Request(
        id=request_id,
        kind=kind,
        cause=Cause.NOTICE,
        reason="",
        since=now.boot,
        save_by=save_by,
        deadline=ends,
        term_at=now.boot + (save_by - now.boot) / 2,
    )
    return marked(request, Mark.REQUESTED, now)
