"""When the agent ends, and whether its host goes with it."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.economics.hosting import NO_TERMS, Verdict, stays_until_reclaimed
from reprieve.domain.notice import NoticeKind
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.clock import Now
from reprieve_agent.rules import Move, Rules
from reprieve_agent.state import State


def isolated(rules: Rules, state: State, event: on.Isolated) -> Move:
    """Leave when nobody can be heard for long: such a host must not live for ever."""
    if not event.metadata:
        limit = rules.periods.isolation
    elif state.tenure and not event.refused:
        limit = rules.periods.isolation_busy
    else:
        limit = rules.periods.isolation_idle
    if event.seconds < limit:
        return state, ()
    why = "the table refuses us" if event.refused else "nobody can be reached"
    return leave(state, why, shutdown=True)


def leave_if_done(state: State, now: Now) -> Move:
    """Go as soon as nothing is held, if this host was told to, or if waiting for EC2 costs."""
    if state.tenure:
        return state, ()
    if state.stopping:
        return leave(state, "told to stop", shutdown=False)
    if state.unwell:
        return leave(state, f"GPU fault: {state.unwell}", shutdown=True)
    standing = state.standing
    if standing and standing.going and standing.notice.host_leaves:
        return leave(state, f"{standing.notice.kind} notice", shutdown=True)
    verdict = stays(state, now)
    if verdict and not verdict.yes:
        return leave(state, verdict.text, shutdown=True)
    return state, ()


def stays(state: State, now: Now) -> Verdict | None:
    """Return whether a host that EC2 takes back waits for that; None if it doesn't take it."""
    standing = state.standing
    if standing is None or standing.reclaim is None or not standing.going:
        return None
    if standing.notice.kind is not NoticeKind.INTERRUPTION:
        return None
    reclaimed_at = now.wall_at(standing.reclaim)
    return stays_until_reclaimed(state.terms or NO_TERMS, reclaimed_at=reclaimed_at)


def leave(state: State, reason: str, *, shutdown: bool) -> Move:
    """Go, and leave no process behind that nobody would look after."""
    tenure = state.tenure
    kill = (do.Kill(tenure.key, tenure.process),) if tenure else ()
    # A host under notice is drained: that it goes changes nothing.
    known = state.standing is not None and state.standing.going
    said = () if known else (do.SendReport(ReportKind.LEAVING, data={"reason": reason}),)
    return replace(state, leaving=True), (*kill, *said, do.Leave(reason, shutdown))


def overdue(state: State) -> str:
    """Say why a host goes by itself whose time has come."""
    standing = state.standing
    if standing and standing.reclaim is not None:
        return f"{standing.notice.kind} notice, and not reclaimed"
    return "no work"
