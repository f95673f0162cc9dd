"""When the agent ends, and whether its host goes with it."""

from __future__ import annotations

from dataclasses import replace

from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
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


def leave_if_done(state: State) -> Move:
    """Go as soon as nothing is held, if this host was told to; EC2 takes others in time."""
    if state.tenure:
        return state, ()
    if state.stopping:
        return leave(state, "told to stop", shutdown=False)
    standing = state.standing
    if standing and standing.going and standing.notice.host_leaves:
        return leave(state, f"{standing.notice.kind} notice", shutdown=True)
    return state, ()


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
