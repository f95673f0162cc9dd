"""A running job: what it says, what it saves, and how long its answers are waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from reprieve.protocol import ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import asking, closing, saving, sending
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import Now
from reprieve_agent.rules import Move, Rules, reached, with_request, with_tenure
from reprieve_agent.state import AckState, Mark, Request, Stage, State, Tenure

WITH_PROCESS = frozenset({Stage.RUNNING, Stage.CLOSING})


def ready(state: State, tenure: Tenure) -> Move:
    if tenure.stage is not Stage.RUNNING:
        return state, ()
    woken = replace(tenure, ready=True)
    owed = tenure.request if tenure.request and tenure.request.open else None
    return with_tenure(state, woken), (do.Ask(tenure.key, owed, tenure.process),) if owed else ()


def acked(rules: Rules, state: State, tenure: Tenure, event: on.JobAcked, now: Now) -> Move:
    request = tenure.request
    if tenure.stage is not Stage.RUNNING or request is None or request.id != event.request_id:
        return state, ()
    if not request.open or event.state is request.ack:
        return state, ()
    request = replace(request, ack=event.state, ack_step=event.step)
    match event.state:
        case AckState.SAVING:
            return with_request(state, tenure, asking.marked(request, Mark.ACCEPTED, now)), ()
        case AckState.SAVED:
            request = asking.marked(asking.marked(request, Mark.ACCEPTED, now), Mark.SAVED, now)
            data: dict[str, Scalar] = {"step": event.step, "request": request.id}
            # Who is leaving tells all of it in one last report.
            said = () if request.exits else (do.SendReport(ReportKind.SAVED, tenure.key, data),)
            timed = tenure if request.exits else saving.measured(tenure, request)
            saved = reached(replace(timed, request=request), event.step)
            answered = asking.answered(saved, periods=rules.periods, now=now)
            return with_tenure(state, answered), said
        case AckState.DECLINED | AckState.FAILED:
            return _refused_to_save(state, tenure, request)
        case _:
            assert_never(event.state)


def _refused_to_save(state: State, tenure: Tenure, request: Request) -> Move:
    """Stop waiting: what is on disk or in the bucket already has to do."""
    if not request.exits:
        return with_request(state, tenure, None), ()
    killed = replace(request, killed=True)
    return with_request(state, tenure, killed), (do.Kill(tenure.key, tenure.process),)


def folder_found(state: State, tenure: Tenure, step: int, now: Now) -> Move:
    known = step in tenure.bad or step in tenure.found or tenure.committed_at_least(step)
    if tenure.stage is not Stage.RUNNING or known:
        return state, ()
    found = replace(reached(tenure, step), found=(*tenure.found, step), last_save=now.boot)
    return sending.upload_newest(state, found)


def committed(rules: Rules, state: State, tenure: Tenure, event: on.Committed, now: Now) -> Move:
    if tenure.stage not in WITH_PROCESS or tenure.committed_at_least(event.step):
        return state, ()
    dropped = tuple(step for step in tenure.uploading if step < event.step)
    tenure = replace(
        tenure,
        uploading=tuple(step for step in tenure.uploading if step > event.step),
        found=tuple(step for step in tenure.found if step > event.step),
        committed_step=event.step,
        committed_manifest=event.manifest,
        committed_digest=event.digest,
        upload_bytes=event.bytes,
        upload_seconds=event.seconds,
        estimates=tenure.estimates.saved(
            sent=event.sent,
            sent_seconds=event.sent_seconds,
            save_seconds=event.save_seconds,
        ),
    )
    tenure = saving.made_durable(tenure, event.step, upload_seconds=event.seconds, now=now)
    data: dict[str, Scalar] = {
        "step": event.step,
        "manifest": event.manifest,
        "bytes": event.bytes,
        "seconds": round(event.seconds, 3),
        "digest": event.digest,
    }
    said: list[Action] = [do.AbortUploads(tenure.key, dropped)] if dropped else []
    if tenure.request and tenure.request.exits:  # its last report tells of it
        uploaded = now.boot if event.uploaded is None else event.uploaded
        tenure = asking.committed(tenure, uploaded, now)
    else:
        tenure, told = saving.planned(state, tenure, rules.periods)
        said.append(do.SendReport(ReportKind.COMMITTED, tenure.key, data | told))
    said.append(do.Prune(tenure.key, event.step))
    state, sent = sending.upload_newest(
        state, asking.answered(tenure, periods=rules.periods, now=now)
    )
    state, closed = closing.close(rules, state, now)
    return state, (*said, *sent, *closed)


def commit_failed(
    rules: Rules, state: State, tenure: Tenure, event: on.CommitFailed, now: Now
) -> Move:
    if tenure.stage not in WITH_PROCESS:
        return state, ()
    tenure = replace(
        tenure,
        uploading=tuple(step for step in tenure.uploading if step != event.step),
        found=tuple(step for step in tenure.found if step != event.step),
        bad=(*tenure.bad, event.step),
    )
    data: dict[str, Scalar] = {"bad_step": event.step, "reason": event.reason}
    state, sent = sending.upload_newest(state, tenure)
    state, closed = closing.close(rules, state, now)
    return state, (do.SendReport(ReportKind.PROGRESS, tenure.key, data), *sent, *closed)


def save_again(rules: Rules, state: State, tenure: Tenure, now: Now) -> Move:
    nth = tenure.periodic + 1
    request_id = f"periodic:{rules.instance_id}:{tenure.key.attempt}:{nth}"
    request = asking.to_go_on(tenure, request_id, reason="periodic", periods=rules.periods, now=now)
    asked = replace(tenure, request=request, last_request=now.boot, periodic=nth)
    return with_tenure(state, asked), (do.Ask(tenure.key, request, tenure.process),)


def escalate(rules: Rules, state: State, tenure: Tenure, request: Request, now: Now) -> Move:
    if not request.exits:
        expired = now.boot >= request.deadline
        return (with_request(state, tenure, None) if expired else state), ()
    if not request.killed and now.boot >= asking.kill_at(request, rules.periods):
        killed = replace(request, killed=True)
        return with_request(state, tenure, killed), (do.Kill(tenure.key, tenure.process),)
    term_at = asking.term_at(tenure, rules.periods)
    if term_at is not None and now.boot >= term_at and tenure.process:
        termed = replace(request, termed=True)
        return with_request(state, tenure, termed), (do.Terminate(tenure.key, tenure.process),)
    return state, ()
