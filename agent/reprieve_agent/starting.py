"""From a ticket to a running process: claim, prepare, seal, start."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from reprieve.domain.lease import Lease, Outcome
from reprieve.ports.leases import Claim
from reprieve.protocol import ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import closing, leaving, notices, saving
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import Now
from reprieve_agent.rules import Move, Rules, with_tenure
from reprieve_agent.state import Ending, Process, Stage, State, Tenure


def ticket(state: State, event: on.TicketCame, now: Now) -> Move:
    if not state.wants_work:
        return state, (do.ReturnTicket(event.receipt),)
    tenure = Tenure(event.key, Stage.CLAIMING, since=now.boot, receipt=event.receipt)
    return with_tenure(state, tenure), (do.TryClaim(event.key),)


def claim_answered(rules: Rules, state: State, tenure: Tenure, claim: Claim, now: Now) -> Move:
    if tenure.stage is not Stage.CLAIMING:
        return state, ()
    receipt = tenure.receipt or ""
    match claim:
        case Claim.WON:
            won = replace(tenure, stage=Stage.CLAIMED)
            said = (do.DeleteTicket(receipt), do.SendReport(ReportKind.CLAIMED, tenure.key))
            state, more = notices.drain_if_going(rules, with_tenure(state, won), won, now)
            return state, (*said, *more)
        case Claim.TAKEN:
            return _unclaimed(state, now, do.DeleteTicket(receipt))
        case Claim.MISSING:
            return _unclaimed(state, now)
        case Claim.NOT_READY:
            barred = replace(state, barred_until=now.boot + rules.periods.lease)
            return _unclaimed(barred, now, do.ReturnTicket(receipt))
        case _:
            assert_never(claim)


def _unclaimed(state: State, now: Now, *said: Action) -> Move:
    state, left = leaving.leave_if_done(replace(state, tenure=None), now)
    return state, (*said, *left)


def lease_read(state: State, tenure: Tenure, lease: Lease) -> Move:
    if tenure.stage is not Stage.CLAIMED:
        return state, ()
    preparing = replace(
        tenure,
        stage=Stage.PREPARING,
        lease=lease,
        base=lease.base,
        base_fixed=lease.sealed,
    )
    return with_tenure(state, preparing), (prepare(preparing),)


def prepare(tenure: Tenure) -> Action:
    assert tenure.lease is not None  # noqa: S101 - PREPARING begins by reading the lease
    lease = replace(tenure.lease, base=tenure.base) if tenure.base_fixed else tenure.lease
    return do.Prepare(tenure.key, lease, exactly=tenure.base_fixed)


def preparation(
    state: State,
    tenure: Tenure,
    event: on.Prepared | on.PreparationFailed | on.Quarantined,
) -> Move:
    failed = isinstance(event, on.PreparationFailed)
    # A restarted agent reads secrets again just before the start, and may be refused there.
    if tenure.stage is not Stage.PREPARING and not (failed and tenure.stage is Stage.STARTING):
        return state, ()
    match event:
        case on.Quarantined(_, manifest, reason):
            data: dict[str, Scalar] = {"quarantined": manifest, "reason": reason}
            return state, (do.SendReport(ReportKind.PROGRESS, tenure.key, data),)
        case on.PreparationFailed(_, cause, detail):
            return closing.give_back(state, tenure, Ending(Outcome.FAILED, cause, detail))
        case on.Prepared():
            return _prepared(state, tenure, event)
        case _:
            assert_never(event)


def _prepared(state: State, tenure: Tenure, event: on.Prepared) -> Move:
    base, step = event.base, event.step
    tenure = replace(tenure, base=base, base_step=step, step=step, estimates=event.estimates)
    if tenure.base_fixed:
        starting = replace(tenure, stage=Stage.STARTING)
        return with_tenure(state, starting), (do.RenewNow(tenure.key),)
    sealing = replace(tenure, stage=Stage.SEALING)
    return with_tenure(state, sealing), (do.WriteSeal(tenure.key, base),)


def sealed(rules: Rules, state: State, tenure: Tenure, event: on.Sealed, now: Now) -> Move:
    if tenure.stage is not Stage.SEALING:
        return state, ()
    if event.base != tenure.base:
        again = replace(tenure, stage=Stage.PREPARING, base=event.base, base_fixed=True)
        return with_tenure(state, again), (prepare(again),)
    starting = replace(tenure, stage=Stage.STARTING, base_fixed=True)
    return _start_job(rules, with_tenure(state, starting), starting, event.sent, now)


def renewed(rules: Rules, state: State, tenure: Tenure, sent: float, now: Now) -> Move:
    if tenure.stage is not Stage.STARTING:
        return state, ()
    return _start_job(rules, state, tenure, sent, now)


def _start_job(rules: Rules, state: State, tenure: Tenure, sent: float, now: Now) -> Move:
    """Start only on a lease that was ours less than one renewal period ago."""
    not_after = sent + rules.periods.renewal
    if now.boot >= not_after:
        return state, (do.RenewNow(tenure.key),)
    assert tenure.lease is not None  # noqa: S101 - STARTING comes after reading the lease
    launch = do.Launch(tenure.key, tenure.lease, tenure.base, tenure.base_step, not_after)
    return state, (launch,)


def launched(rules: Rules, state: State, tenure: Tenure, process: Process, now: Now) -> Move:
    if tenure.stage is Stage.RUNNING:
        return with_tenure(state, replace(tenure, process=process)), ()
    if tenure.stage is not Stage.STARTING:
        return state, (do.Kill(tenure.key, process),)
    running = replace(tenure, stage=Stage.RUNNING, process=process, since=now.boot)
    running, told = saving.planned(state, running, rules.periods)
    data: dict[str, Scalar] = {"restored_step": tenure.base_step, "manifest": tenure.base}
    said = (
        do.SendReport(ReportKind.STARTED, tenure.key, data | told),
        do.RenewNow(tenure.key),
    )
    state, more = notices.drain_if_going(rules, with_tenure(state, running), running, now)
    return state, (*said, *more)
