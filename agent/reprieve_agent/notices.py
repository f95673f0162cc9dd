"""What a notice means for the host, and for the attempt that runs on it."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.economics.hosting import Verdict
from reprieve.domain.lease import Cause, Outcome
from reprieve.domain.notice import Channel, Notice, NoticeKind, escalate
from reprieve.protocol import POLICY, ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import asking, closing, leaving, moments, saving
from reprieve_agent.clock import Now
from reprieve_agent.rules import Move, Rules, with_request, with_tenure
from reprieve_agent.state import Ending, Stage, Standing, State, Tenure

# Before its process exists there is nothing to save: the attempt is given back at once.
BEFORE_START = frozenset({Stage.CLAIMED, Stage.PREPARING, Stage.SEALING})


def noticed(rules: Rules, state: State, notice: Notice, now: Now) -> Move:
    if notice.kind is NoticeKind.STATE_CHANGE:
        return state, ()
    if notice.doubt is not None:
        return _called_off(state, notice)
    known = state.standing
    stands = escalate(known.notice if known else None, notice)
    if known:
        known = known.hearing(notice.channel, now.boot)
        state = replace(state, standing=known)
    if known and stands == known.notice:
        return state, ()
    standing = moments.standing(stands, periods=rules.periods, now=now)
    if known and known.notice.kind is stands.kind:
        return _earlier(rules, state, known, stands, standing.reclaim)
    standing = standing.hearing(notice.channel, now.boot)
    # What came over SSM, the functions sent and store themselves.
    return stand(rules, state, standing, now, tell=notice.channel is not Channel.SSM)


def _called_off(state: State, notice: Notice) -> Move:
    """Stay, if what was scheduled is over before anything was handed over for it."""
    standing = state.standing
    if standing is None or not standing.pending or standing.notice.kind is not notice.kind:
        return state, ()
    data: dict[str, Scalar] = {
        "notice": notice.kind.value,
        "channel": notice.channel.value,
        "over": True,
    }
    key = state.tenure.key if state.tenure else None
    return replace(state, standing=None), (do.SendReport(ReportKind.NOTICED, key, data),)


def stand(rules: Rules, state: State, standing: Standing, now: Now, *, tell: bool = True) -> Move:
    """Do what *standing* asks for from now on, and *tell* the functions of it."""
    state = replace(state, standing=standing)
    notice, reclaim = standing.notice, standing.reclaim
    key = state.tenure.key if state.tenure else None
    data: dict[str, Scalar] = {
        "notice": notice.kind.value,
        "channel": notice.channel.value,
        "noticed_at": notice.noticed_at.isoformat(),
        "seconds_left": round(reclaim - now.boot, 3) if reclaim is not None else None,
    }
    advice = _weighed(rules, state, now)
    if advice:
        data |= {POLICY: advice.text, **advice.facts}
    said = (do.SendReport(ReportKind.NOTICED, key, data),) if tell or advice else ()
    if state.tenure is None:
        state, left = leaving.leave_if_done(state, now)
        return state, (*said, *left)
    if advice and not advice.yes:
        return state, said
    state, more = _heed(rules, state, state.tenure, now)
    return state, (*more, *said)  # the job first: nobody else has less time


def _weighed(rules: Rules, state: State, now: Now) -> Verdict | None:
    """Return whether advice is worth a save of the job that runs; None if nothing asks that."""
    standing, tenure = state.standing, state.tenure
    if standing is None or standing.notice.kind is not NoticeKind.REBALANCE or tenure is None:
        return None
    if tenure.stage is not Stage.RUNNING or tenure.request:
        return None
    return saving.on_advice(state, tenure, periods=rules.periods, now=now)


def _earlier(
    rules: Rules, state: State, known: Standing, notice: Notice, reclaim: float | None
) -> Move:
    """Another channel names another time for the same notice: the earlier one counts."""
    if reclaim is None or known.reclaim is None or reclaim >= known.reclaim:
        return replace(state, standing=replace(known, notice=notice)), ()
    state = replace(state, standing=replace(known, notice=notice, reclaim=reclaim))
    tenure = state.tenure
    request = tenure.request if tenure else None
    if tenure is None or request is None or not request.exits:
        return state, ()
    shift = known.reclaim - reclaim
    sooner = asking.earlier(request, shift)
    state = with_request(state, tenure, sooner)
    # Whole seconds are how EC2 tells the time: less than that isn't worth a new file.
    told = shift >= rules.periods.reserve and request.open
    return state, (do.Ask(tenure.key, sooner, tenure.process, wake=False),) if told else ()


def _heed(rules: Rules, state: State, tenure: Tenure, now: Now) -> Move:
    standing = state.standing
    if standing is None or standing.going:
        return drain_if_going(rules, state, tenure, now)
    if tenure.stage is not Stage.RUNNING or tenure.request:
        return state, ()
    last = tenure.last_request
    if last is not None and now.boot - last < rules.periods.between_requests:
        return state, ()
    nth = tenure.advices + 1
    again = f":{nth}" if nth > 1 else ""
    # Asked to leave later on, the job must see another request.
    name = f"scheduled:{rules.instance_id}" if standing.pending else standing.notice.request_id
    request_id = f"{name}:{tenure.key.attempt}{again}"
    request = asking.to_go_on(
        tenure,
        request_id,
        reason=standing.notice.kind.value,
        periods=rules.periods,
        now=now,
    )
    asked = replace(tenure, request=request, last_request=now.boot, advices=nth)
    return with_tenure(state, asked), (do.Ask(tenure.key, request, tenure.process),)


def drain_if_going(rules: Rules, state: State, tenure: Tenure, now: Now) -> Move:
    """Hand the attempt back, if this host is going: saved when there is something to save."""
    if not state.going:
        return state, ()
    cause, reason = _why(state)
    if tenure.stage in BEFORE_START:
        return closing.give_back(state, tenure, Ending(Outcome.INTERRUPTED, cause, reason))
    if tenure.stage is not Stage.RUNNING:
        return state, ()
    standing = state.standing
    if standing and standing.notice.kind is NoticeKind.HIBERNATE:
        # It begins at once: nothing would be saved in time, and a released lease lets
        # another host start now.
        ending = Ending(Outcome.INTERRUPTED, cause, reason)
        doomed = replace(tenure, ending=ending)
        return with_tenure(state, doomed), (do.Kill(tenure.key, tenure.process),)
    return _ask_to_leave(rules, state, tenure, (cause, reason), now)


def _ask_to_leave(
    rules: Rules, state: State, tenure: Tenure, why: tuple[Cause, str], now: Now
) -> Move:
    ends = moments.work_ends(state, rules.periods)
    assert ends is not None  # noqa: S101 - a host that is going has an end
    standing = state.standing
    name = (
        standing.notice.request_id if standing and standing.going else f"stop:{rules.instance_id}"
    )
    request = asking.to_leave(
        tenure,
        f"{name}:{tenure.key.attempt}",
        cause=why[0],
        reason=why[1],
        ends=ends,
        periods=rules.periods,
        now=now,
    )
    if request is None:
        return state, ()
    request = asking.weighed(tenure, request, periods=rules.periods, now=now)
    asked = replace(tenure, request=request, last_request=now.boot)
    if request.unasked:
        return with_tenure(state, asked), ()
    ask = do.Ask(tenure.key, request, tenure.process, wake=request.open)
    return with_tenure(state, asked), (ask,)


def stop(rules: Rules, state: State, now: Now) -> Move:
    if state.stopping:
        return state, ()
    state = replace(state, stop_by=now.boot + rules.periods.stop_budget)
    if state.tenure is None:
        return leaving.leave_if_done(state, now)
    return drain_if_going(rules, state, state.tenure, now)


def _why(state: State) -> tuple[Cause, str]:
    standing = state.standing
    if standing and standing.going:
        return Cause.NOTICE, standing.notice.kind.value
    return Cause.STOP, "the agent was told to stop"
