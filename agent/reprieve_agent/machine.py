"""
The agent's decisions: (state, event, now) -> (state, actions), without a side effect.

The state that comes out is written to disk before its actions are carried out, and every
action can be carried out again, so an agent that dies anywhere resumes with `recover`.
An event of an attempt that isn't the current one is late news and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from reprieve.domain.lease import Cause, LeaseKey
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import closing, leaving, moments, notices, recovery, running, starting
from reprieve_agent import events as on
from reprieve_agent.clock import Now
from reprieve_agent.events import Event
from reprieve_agent.rules import Move, Rules, with_tenure
from reprieve_agent.state import Stage, State, Tenure


@dataclass(frozen=True, slots=True)
class Machine(Rules):
    """The whole of the rules: each kind of event, and who decides on it."""

    def start(self, state: State, now: Now) -> Move:
        """Begin with nothing held that this boot knows of."""
        return replace(state, idle_since=now.boot), (do.SendReport(ReportKind.READY),)

    def recover(self, state: State, now: Now) -> Move:
        """Go on where an agent of the same boot died: what was decided is done again."""
        state = replace(state, adopted=False, leaving=False, stop_by=None, unwell="")
        tenure = state.tenure
        if tenure is None:
            return self.start(state, now)
        fresh = replace(tenure, uploading=(), found=(), swept=False)
        return with_tenure(state, fresh), recovery.again(fresh)

    def step(self, state: State, event: Event, now: Now) -> Move:
        """Decide."""
        if isinstance(event, on.TicketCame):
            return starting.ticket(state, event, now)
        if state.leaving:
            return state, ()
        if isinstance(event, on.HostEvent):
            return self._host(state, event, now)
        if state.tenure is None or state.tenure.key != event.key:
            return state, ()
        if isinstance(event, on.JobEvent):
            return self._job(state, state.tenure, event, now)
        return self._hold(state, state.tenure, event, now)

    def _host(self, state: State, event: on.HostEvent, now: Now) -> Move:
        match event:
            case on.Tick():
                return self._tick(state, now)
            case on.NoticeSeen(notice):
                return notices.noticed(self, state, notice, now)
            case on.StopAsked():
                return notices.stop(self, state, now)
            case on.GpusFailed(fault):
                return leaving.leave_if_done(replace(state, unwell=fault), now)
            case on.HoldsRead(holds):
                strays = sorted(holds.leases - _keys(state), key=str)
                given_up = tuple(do.ReleaseStray(key, Cause.LOST) for key in strays)
                terms = holds.terms or state.terms
                return replace(state, adopted=not strays, terms=terms), given_up
            case on.NotAdopted():
                return replace(state, adopted=False), ()
            case on.Isolated():
                return leaving.isolated(self, state, event)
            case _:
                assert_never(event)

    def _hold(self, state: State, tenure: Tenure, event: on.HoldEvent, now: Now) -> Move:
        """Decide on what concerns the lease, up to the start of the job and after its end."""
        match event:
            case on.ClaimAnswered():
                return starting.claim_answered(self, state, tenure, event.claim, now)
            case on.LeaseRead():
                return starting.lease_read(state, tenure, event.lease)
            case on.LeaseLost():
                return closing.lost(state, tenure)
            case on.Renewed():
                return starting.renewed(self, state, tenure, event.sent, now)
            case on.Prepared() | on.PreparationFailed() | on.Quarantined():
                return starting.preparation(state, tenure, event)
            case on.Sealed():
                return starting.sealed(self, state, tenure, event, now)
            case on.TooLate():
                late = tenure.stage is Stage.STARTING
                return state, (do.RenewNow(tenure.key),) if late else ()
            case on.Released() | on.ReleaseRefused() | on.Evicted():
                return closing.gone(state, tenure, event, now)
            case _:
                assert_never(event)

    def _job(self, state: State, tenure: Tenure, event: on.JobEvent, now: Now) -> Move:
        """Decide on what concerns the job's process and its checkpoints."""
        match event:
            case on.Launched():
                return starting.launched(self, state, tenure, event.process, now)
            case on.JobReady():
                return running.ready(state, tenure)
            case on.JobProgress():
                estimates = tenure.estimates.progressed(event.step, now.boot)
                return with_tenure(state, replace(tenure, step=event.step, estimates=estimates)), ()
            case on.JobAcked():
                return running.acked(self, state, tenure, event, now)
            case on.CheckpointFound():
                return running.folder_found(state, tenure, event.step, now)
            case on.JobExited():
                return closing.exited(state, tenure, event, now)
            case on.Swept():
                return closing.swept(self, state, tenure, event, now)
            case on.Committed():
                return running.committed(self, state, tenure, event, now)
            case on.CommitFailed():
                return running.commit_failed(self, state, tenure, event, now)
            case _:
                assert_never(event)

    def wake_at(self, state: State) -> float | None:
        """Return when a ``Tick`` is due next, on the boot clock."""
        return moments.wake_at(state, self.periods)

    # Time -------------------------------------------------------------------------------

    def _tick(self, state: State, now: Now) -> Move:
        state = self._forget(state, now)
        hand_over_at = moments.hand_over_at(state, self.periods)
        if state.standing and hand_over_at is not None and now.boot >= hand_over_at:
            return notices.stand(self, state, replace(state.standing, pending=False), now)
        leave_at = moments.leave_at(state, self.periods)
        if leave_at is not None and now.boot >= leave_at:
            return leaving.leave(state, leaving.overdue(state), shutdown=True)
        stopped_at = moments.stopped_at(state, self.periods)
        if stopped_at is not None and now.boot >= stopped_at:
            return leaving.leave(state, "told to stop, and out of time", shutdown=False)
        tenure = state.tenure
        if tenure and tenure.stage is Stage.RUNNING and tenure.request:
            return running.escalate(self, state, tenure, tenure.request, now)
        if tenure and tenure.save_due is not None and now.boot >= tenure.save_due:
            return running.save_again(self, state, tenure, now)
        return closing.close(self, state, now)

    def _forget(self, state: State, now: Now) -> State:
        if state.barred_until is not None and now.boot >= state.barred_until:
            state = replace(state, barred_until=None)
        forget_at = moments.forget_at(state, self.periods)
        if forget_at is not None and now.boot >= forget_at:
            state = replace(state, standing=None)
        return state


def _keys(state: State) -> frozenset[LeaseKey]:
    return frozenset({state.tenure.key}) if state.tenure else frozenset()
