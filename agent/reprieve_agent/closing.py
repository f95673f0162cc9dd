"""The end of an attempt: what it left is committed, its outcome written, its files forgotten."""

from __future__ import annotations

from dataclasses import replace

from reprieve.protocol import POLICY, ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import asking, endings, leaving, moments, sending
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import Now
from reprieve_agent.rules import Move, Rules, reached, with_tenure
from reprieve_agent.state import Ending, Mark, Stage, State, Tenure


def exited(state: State, tenure: Tenure, event: on.JobExited, now: Now) -> Move:
    if tenure.stage not in {Stage.STARTING, Stage.RUNNING}:
        return state, ()
    request = tenure.request
    closing = replace(
        tenure,
        stage=Stage.CLOSING,
        exit_code=event.exit_code,
        exit_detail=event.detail,
        stopped=event.stopped,
        request=asking.marked(request, Mark.QUIESCED, now) if request else None,
    )
    return with_tenure(state, closing), (do.Sweep(tenure.key, tenure.process),)


def swept(rules: Rules, state: State, tenure: Tenure, event: on.Swept, now: Now) -> Move:
    if tenure.stage is not Stage.CLOSING:
        return state, ()
    found = tuple(
        step
        for step in event.found
        if step not in tenure.bad and not tenure.committed_at_least(step)
    )
    tenure = replace(tenure, swept=True, found=found, done_step=event.done)
    tenure = reached(tenure, max((*found, event.done or 0), default=None) or None)
    if tenure.ending:
        return release_now(state, tenure, tenure.ending)
    state, sent = sending.upload_newest(state, tenure)
    state, closed = close(rules, state, now)
    return state, (*sent, *closed)


def close(rules: Rules, state: State, now: Now) -> Move:
    """Release once everything worth it is committed, or no time is left for it."""
    tenure = state.tenure
    if tenure is None or tenure.stage is not Stage.CLOSING or not tenure.swept:
        return state, ()
    commit_by = moments.work_ends(state, rules.periods)
    if tenure.found and (commit_by is None or now.boot < commit_by):
        return state, ()
    return release_now(state, tenure, endings.ending(tenure))


def give_back(state: State, tenure: Tenure, ending: Ending) -> Move:
    """End an attempt whose job never started."""
    state, release = release_now(state, tenure, ending)
    return state, (do.AbortPreparation(tenure.key), *release)


def release_now(state: State, tenure: Tenure, ending: Ending) -> Move:
    releasing = replace(tenure, stage=Stage.RELEASING, ending=ending)
    aborted = (do.AbortUploads(tenure.key),) if tenure.uploading else ()
    return with_tenure(state, releasing), (*aborted, release(releasing))


def release(tenure: Tenure) -> Action:
    assert tenure.ending is not None  # noqa: S101 - RELEASING begins with the ending
    return do.Release(tenure.key, tenure.ending, tenure.exit_code, tenure.progress)


def gone(
    state: State,
    tenure: Tenure,
    event: on.Released | on.ReleaseRefused | on.Evicted,
    now: Now,
) -> Move:
    match event:
        case on.Released() if tenure.stage is Stage.RELEASING:
            return _released(state, tenure, now)
        case on.ReleaseRefused() if tenure.stage is Stage.RELEASING:
            return _evict(state, tenure)
        case on.Evicted() if tenure.stage is Stage.EVICTING:
            return _over(state, tenure, now)
        case _:
            return state, ()


def _released(state: State, tenure: Tenure, now: Now) -> Move:
    ending = tenure.ending
    assert ending is not None  # noqa: S101 - RELEASING begins with the ending
    data = (
        asking.receipt(tenure, now)
        | _warned(state, tenure)
        | {
            "cause": ending.cause.value,
            "exit_code": tenure.exit_code,
            "detail": ending.detail,
            "step": tenure.step,
            "committed_step": tenure.committed_step,
            "manifest": tenure.committed_manifest,
        }
        | _going(state, now)
    )
    state, over = _over(state, tenure, now)
    return state, (do.SendReport(endings.REPORTS[ending.outcome], tenure.key, data), *over)


def _going(state: State, now: Now) -> dict[str, Scalar]:
    """Return whether the host waits for its reclaim, and on which figures."""
    verdict = leaving.stays(state, now)
    return {POLICY: verdict.text, **verdict.facts} if verdict else {}


def lost(state: State, tenure: Tenure) -> Move:
    """Give everything up, unless a release is under way: its own answer says more."""
    if tenure.stage in {Stage.RELEASING, Stage.EVICTING, Stage.CLAIMING}:
        return state, ()
    return _evict(state, tenure)


def _evict(state: State, tenure: Tenure) -> Move:
    evicting = replace(tenure, stage=Stage.EVICTING)
    return with_tenure(state, evicting), (
        do.AbortPreparation(tenure.key),
        do.AbortUploads(tenure.key),
        do.Evict(tenure.key, tenure.process),
        do.SendReport(ReportKind.REFUSED, tenure.key, {"step": tenure.step}),
    )


def _over(state: State, tenure: Tenure, now: Now) -> Move:
    state = replace(state, tenure=None, idle_since=now.boot)
    state, left = leaving.leave_if_done(state, now)
    idle = () if left or state.going else (do.SendReport(ReportKind.IDLE),)
    return state, (do.Wipe(tenure.key), *idle, *left)


def _warned(state: State, tenure: Tenure) -> dict[str, Scalar]:
    """Return how the host heard of what stands, and how long before its end the save was safe."""
    standing, request = state.standing, tenure.request
    if standing is None or request is None or not request.exits:
        return {}
    heard: dict[str, Scalar] = {
        f"heard_{channel}_s": round(at - standing.since, 3) for channel, at in standing.heard
    }
    committed = dict(request.marks).get(Mark.COMMITTED)
    if committed is not None and standing.reclaim is not None:
        heard["lead_seconds"] = round(standing.reclaim - committed, 3)
    return heard
