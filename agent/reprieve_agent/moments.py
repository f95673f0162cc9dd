"""When things are due on a host, on the boot clock."""

from __future__ import annotations

from reprieve.domain.notice import Notice, NoticeKind
from reprieve_agent import asking
from reprieve_agent.clock import Now
from reprieve_agent.periods import Periods
from reprieve_agent.state import Stage, Standing, State, Tenure


def reclaim(notice: Notice, *, periods: Periods, now: Now) -> float | None:
    """
    Return when the host is expected to go.

    A time in the past proves nothing (a clock that is off, a reclaim that failed): the
    plan is then a whole notice from now. A Spot interruption is never announced further
    ahead than that.
    """
    if not notice.takes_the_host:
        return None
    if notice.kind is NoticeKind.HIBERNATE:
        return now.boot + periods.margin  # it begins at once: no time to work
    if notice.reclaimed_at is None:
        return now.boot + periods.notice
    left = (notice.reclaimed_at - now.wall).total_seconds()
    if left <= 0:
        return now.boot + periods.notice
    if notice.kind is NoticeKind.INTERRUPTION:
        left = min(left, periods.notice)
    return now.boot + left


def standing(notice: Notice, *, periods: Periods, now: Now) -> Standing:
    """Return *notice* as it stands from now; maintenance may leave its job much time yet."""
    ends = reclaim(notice, periods=periods, now=now)
    far = ends is not None and ends - now.boot > periods.handover
    pending = far and notice.kind is NoticeKind.MAINTENANCE
    return Standing(notice, since=now.boot, reclaim=ends, pending=pending)


def hand_over_at(state: State, periods: Periods) -> float | None:
    """Return when a job whose host goes much later is handed over."""
    standing = state.standing
    if standing is None or not standing.pending or standing.reclaim is None:
        return None
    return standing.reclaim - periods.handover


def work_ends(state: State, periods: Periods) -> float | None:
    """Return when the work on this host must have ended: a margin before it goes."""
    ends = [] if state.stop_by is None else [state.stop_by]
    if state.standing and state.standing.reclaim is not None:
        ends.append(state.standing.reclaim - periods.margin)
    return min(ends, default=None)


def leave_at(state: State, periods: Periods) -> float | None:
    """Return when the host goes by itself: without work, or passed over by its reclaim."""
    idle = None if state.tenure else state.idle_since + periods.idle
    standing = state.standing
    if standing is None or standing.reclaim is None:
        return idle
    overstayed = standing.reclaim + periods.overstay
    return overstayed if idle is None else min(overstayed, idle)


def forget_at(state: State, periods: Periods) -> float | None:
    """Return when advice that nothing followed stands down."""
    standing = state.standing
    if standing is None or standing.notice.takes_the_host:
        return None
    return standing.since + periods.advice


def stopped_at(state: State, periods: Periods) -> float | None:
    """Return when an agent that was told to stop does so, whatever is left undone."""
    return None if state.stop_by is None else state.stop_by + periods.margin


def wake_at(state: State, periods: Periods) -> float | None:
    """Return when a ``Tick`` is due next."""
    if state.leaving:
        return None
    due = [
        state.barred_until,
        stopped_at(state, periods),
        leave_at(state, periods),
        forget_at(state, periods),
        hand_over_at(state, periods),
        _attempt(state, state.tenure, periods) if state.tenure else None,
    ]
    return min((moment for moment in due if moment is not None), default=None)


def _attempt(state: State, tenure: Tenure, periods: Periods) -> float | None:
    if tenure.stage is Stage.CLOSING:
        return work_ends(state, periods) if tenure.swept else None
    return asking.next_moment(tenure, periods)
