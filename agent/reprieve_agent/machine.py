"""
The agent's decisions: (state, event, now) -> (state, actions), without a side effect.

The state that comes out is written to disk before its actions are carried out, and every
action can be carried out again, so an agent that dies anywhere resumes with `recover`.
An event of an attempt that isn't the current one is late news and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from reprieve.domain.lease import Cause, Lease, LeaseKey, Outcome
from reprieve.domain.notice import Channel, Notice, NoticeKind, escalate
from reprieve.ports.leases import Claim
from reprieve.protocol import ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import asking, endings, moments
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import Now
from reprieve_agent.events import Event
from reprieve_agent.periods import Periods
from reprieve_agent.state import (
    AckState,
    Ending,
    Mark,
    Process,
    Request,
    Stage,
    Standing,
    State,
    Tenure,
)

Move = tuple[State, tuple[Action, ...]]

# Before its process exists there is nothing to save: the attempt is given back at once.
BEFORE_START = frozenset({Stage.CLAIMED, Stage.PREPARING, Stage.SEALING})
WITH_PROCESS = frozenset({Stage.RUNNING, Stage.CLOSING})


@dataclass(frozen=True, slots=True)
class Machine:
    """The rules, for one host."""

    instance_id: str
    periods: Periods

    def start(self, state: State, now: Now) -> Move:
        """Begin with nothing held that this boot knows of."""
        return replace(state, idle_since=now.boot), (do.SendReport(ReportKind.READY),)

    def recover(self, state: State, now: Now) -> Move:
        """Go on where an agent of the same boot died: what was decided is done again."""
        state = replace(state, adopted=False, leaving=False, stop_by=None)
        tenure = state.tenure
        if tenure is None:
            return self.start(state, now)
        fresh = replace(tenure, uploading=(), found=(), swept=False)
        return _with(state, fresh), self._again(fresh)

    def _again(self, tenure: Tenure) -> tuple[Action, ...]:
        match tenure.stage:
            case Stage.CLAIMING:
                return (do.TryClaim(tenure.key),)
            case Stage.CLAIMED:
                return ()  # following the lease reads its row
            case Stage.PREPARING:
                return (self._prepare(tenure),)
            case Stage.SEALING:
                return (do.WriteSeal(tenure.key, tenure.base),)
            case Stage.STARTING:
                return (do.RenewNow(tenure.key),)
            case Stage.RUNNING:
                return self._reattach(tenure)
            case Stage.CLOSING:
                return (*self._attach(tenure), do.Sweep(tenure.key, tenure.process))
            case Stage.RELEASING:
                return (self._release(tenure),)
            case Stage.EVICTING:
                return (do.Evict(tenure.key, tenure.process),)
            case _:
                assert_never(tenure.stage)

    def step(self, state: State, event: Event, now: Now) -> Move:
        """Decide."""
        if isinstance(event, on.TicketCame):
            return self._ticket(state, event, now)
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
                return self._notice(state, notice, now)
            case on.StopAsked():
                return self._stop(state, now)
            case on.HoldsRead(holds):
                strays = sorted(holds.leases - _keys(state), key=str)
                given_up = tuple(do.ReleaseStray(key, Cause.LOST) for key in strays)
                return replace(state, adopted=not strays), given_up
            case on.NotAdopted():
                return replace(state, adopted=False), ()
            case on.Isolated():
                return self._isolated(state, event)
            case _:
                assert_never(event)

    def _hold(self, state: State, tenure: Tenure, event: on.HoldEvent, now: Now) -> Move:
        """Decide on what concerns the lease, up to the start of the job and after its end."""
        match event:
            case on.ClaimAnswered():
                return self._claim_answered(state, tenure, event.claim, now)
            case on.LeaseRead():
                return self._lease_read(state, tenure, event.lease)
            case on.LeaseLost():
                return self._lost(state, tenure)
            case on.Renewed():
                return self._renewed(state, tenure, event.sent, now)
            case on.Prepared() | on.PreparationFailed() | on.Quarantined():
                return self._preparation(state, tenure, event)
            case on.Sealed():
                return self._sealed(state, tenure, event, now)
            case on.TooLate():
                late = tenure.stage is Stage.STARTING
                return state, (do.RenewNow(tenure.key),) if late else ()
            case on.Released() | on.ReleaseRefused() | on.Evicted():
                return self._gone(state, tenure, event, now)
            case _:
                assert_never(event)

    def _job(self, state: State, tenure: Tenure, event: on.JobEvent, now: Now) -> Move:
        """Decide on what concerns the job's process and its checkpoints."""
        match event:
            case on.Launched():
                return self._launched(state, tenure, event.process, now)
            case on.JobReady():
                return self._ready(state, tenure)
            case on.JobProgress():
                return _with(state, replace(tenure, step=event.step)), ()
            case on.JobAcked():
                return self._acked(state, tenure, event, now)
            case on.CheckpointFound():
                return self._found(state, tenure, event.step)
            case on.JobExited():
                return self._exited(state, tenure, event, now)
            case on.Swept():
                return self._swept(state, tenure, event, now)
            case on.Committed():
                return self._committed(state, tenure, event, now)
            case on.CommitFailed():
                return self._commit_failed(state, tenure, event, now)
            case _:
                assert_never(event)

    def wake_at(self, state: State) -> float | None:
        """Return when a ``Tick`` is due next, on the boot clock."""
        return moments.wake_at(state, self.periods)

    # Work -----------------------------------------------------------------------------

    def _ticket(self, state: State, event: on.TicketCame, now: Now) -> Move:
        if not state.wants_work:
            return state, (do.ReturnTicket(event.receipt),)
        tenure = Tenure(event.key, Stage.CLAIMING, since=now.boot, receipt=event.receipt)
        return _with(state, tenure), (do.TryClaim(event.key),)

    def _claim_answered(self, state: State, tenure: Tenure, claim: Claim, now: Now) -> Move:
        if tenure.stage is not Stage.CLAIMING:
            return state, ()
        receipt = tenure.receipt or ""
        match claim:
            case Claim.WON:
                won = replace(tenure, stage=Stage.CLAIMED)
                said = (do.DeleteTicket(receipt), do.SendReport(ReportKind.CLAIMED, tenure.key))
                state, more = self._drain_if_going(_with(state, won), won, now)
                return state, (*said, *more)
            case Claim.TAKEN:
                return self._unclaimed(state, do.DeleteTicket(receipt))
            case Claim.MISSING:
                return self._unclaimed(state)
            case Claim.NOT_READY:
                barred = replace(state, barred_until=now.boot + self.periods.lease)
                return self._unclaimed(barred, do.ReturnTicket(receipt))
            case _:
                assert_never(claim)

    def _unclaimed(self, state: State, *said: Action) -> Move:
        state, leaving = self._leave_if_done(replace(state, tenure=None))
        return state, (*said, *leaving)

    def _lease_read(self, state: State, tenure: Tenure, lease: Lease) -> Move:
        if tenure.stage is not Stage.CLAIMED:
            return state, ()
        preparing = replace(
            tenure,
            stage=Stage.PREPARING,
            lease=lease,
            base=lease.base,
            base_fixed=lease.sealed,
        )
        return _with(state, preparing), (self._prepare(preparing),)

    def _prepare(self, tenure: Tenure) -> Action:
        assert tenure.lease is not None  # noqa: S101 - PREPARING begins by reading the lease
        lease = replace(tenure.lease, base=tenure.base) if tenure.base_fixed else tenure.lease
        return do.Prepare(tenure.key, lease, exactly=tenure.base_fixed)

    def _preparation(
        self,
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
                return self._give_back(state, tenure, Ending(Outcome.FAILED, cause, detail))
            case on.Prepared(_, base, step):
                return self._prepared(state, tenure, base, step)
            case _:
                assert_never(event)

    def _prepared(self, state: State, tenure: Tenure, base: str | None, step: int | None) -> Move:
        tenure = replace(tenure, base=base, base_step=step, step=step)
        if tenure.base_fixed:
            starting = replace(tenure, stage=Stage.STARTING)
            return _with(state, starting), (do.RenewNow(tenure.key),)
        sealing = replace(tenure, stage=Stage.SEALING)
        return _with(state, sealing), (do.WriteSeal(tenure.key, base),)

    def _sealed(self, state: State, tenure: Tenure, event: on.Sealed, now: Now) -> Move:
        if tenure.stage is not Stage.SEALING:
            return state, ()
        if event.base != tenure.base:
            again = replace(tenure, stage=Stage.PREPARING, base=event.base, base_fixed=True)
            return _with(state, again), (self._prepare(again),)
        starting = replace(tenure, stage=Stage.STARTING, base_fixed=True)
        return self._start_job(_with(state, starting), starting, event.sent, now)

    def _renewed(self, state: State, tenure: Tenure, sent: float, now: Now) -> Move:
        if tenure.stage is not Stage.STARTING:
            return state, ()
        return self._start_job(state, tenure, sent, now)

    def _start_job(self, state: State, tenure: Tenure, sent: float, now: Now) -> Move:
        """Start only on a lease that was ours less than one renewal period ago."""
        not_after = sent + self.periods.renewal
        if now.boot >= not_after:
            return state, (do.RenewNow(tenure.key),)
        assert tenure.lease is not None  # noqa: S101 - STARTING comes after reading the lease
        launch = do.Launch(tenure.key, tenure.lease, tenure.base, tenure.base_step, not_after)
        return state, (launch,)

    def _launched(self, state: State, tenure: Tenure, process: Process, now: Now) -> Move:
        if tenure.stage is Stage.RUNNING:
            return _with(state, replace(tenure, process=process)), ()
        if tenure.stage is not Stage.STARTING:
            return state, (do.Kill(tenure.key, process),)
        running = replace(tenure, stage=Stage.RUNNING, process=process, since=now.boot)
        data: dict[str, Scalar] = {"restored_step": tenure.base_step, "manifest": tenure.base}
        said = (
            do.SendReport(ReportKind.STARTED, tenure.key, data),
            do.RenewNow(tenure.key),
        )
        state, more = self._drain_if_going(_with(state, running), running, now)
        return state, (*said, *more)

    # A running job --------------------------------------------------------------------

    def _ready(self, state: State, tenure: Tenure) -> Move:
        if tenure.stage is not Stage.RUNNING:
            return state, ()
        woken = replace(tenure, ready=True)
        owed = tenure.request if tenure.request and tenure.request.open else None
        return _with(state, woken), (do.Ask(tenure.key, owed, tenure.process),) if owed else ()

    def _acked(self, state: State, tenure: Tenure, event: on.JobAcked, now: Now) -> Move:
        request = tenure.request
        if tenure.stage is not Stage.RUNNING or request is None or request.id != event.request_id:
            return state, ()
        if not request.open or event.state is request.ack:
            return state, ()
        request = replace(request, ack=event.state, ack_step=event.step)
        match event.state:
            case AckState.SAVING:
                return _asking(state, tenure, asking.marked(request, Mark.ACCEPTED, now)), ()
            case AckState.SAVED:
                request = asking.marked(asking.marked(request, Mark.ACCEPTED, now), Mark.SAVED, now)
                data: dict[str, Scalar] = {"step": event.step, "request": request.id}
                # Who is leaving tells all of it in one last report.
                said = () if request.exits else (do.SendReport(ReportKind.SAVED, tenure.key, data),)
                saved = _reached(replace(tenure, request=request), event.step)
                answered = asking.answered(saved, periods=self.periods, now=now)
                return _with(state, answered), said
            case AckState.DECLINED | AckState.FAILED:
                return self._refused_to_save(state, tenure, request)
            case _:
                assert_never(event.state)

    def _refused_to_save(self, state: State, tenure: Tenure, request: Request) -> Move:
        """Stop waiting: what is on disk or in the bucket already has to do."""
        if not request.exits:
            return _asking(state, tenure, None), ()
        killed = replace(request, killed=True)
        return _asking(state, tenure, killed), (do.Kill(tenure.key, tenure.process),)

    def _found(self, state: State, tenure: Tenure, step: int) -> Move:
        known = step in tenure.bad or step in tenure.found or tenure.committed_at_least(step)
        if tenure.stage is not Stage.RUNNING or known:
            return state, ()
        found = replace(_reached(tenure, step), found=(*tenure.found, step))
        return self._upload_newest(state, found)

    def _upload_newest(self, state: State, tenure: Tenure) -> Move:
        """
        Send the newest step not yet sent.

        One at a time while there is time; under a request the newest never waits for an
        older one, which goes on beside it until the newer is committed.
        """
        step = tenure.newest
        if step is None or step in tenure.uploading:
            return _with(state, tenure), ()
        urgent = tenure.stage is Stage.CLOSING or tenure.request is not None
        if tenure.uploading and not urgent:
            return _with(state, tenure), ()
        sending = replace(tenure, uploading=(*tenure.uploading, step))
        return _with(state, sending), (do.Upload(tenure.key, step),)

    def _committed(self, state: State, tenure: Tenure, event: on.Committed, now: Now) -> Move:
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
        )
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
            said.append(do.SendReport(ReportKind.COMMITTED, tenure.key, data))
        said.append(do.Prune(tenure.key, event.step))
        state, sending = self._upload_newest(
            state, asking.answered(tenure, periods=self.periods, now=now)
        )
        state, closing = self._close(state, now)
        return state, (*said, *sending, *closing)

    def _commit_failed(
        self, state: State, tenure: Tenure, event: on.CommitFailed, now: Now
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
        state, sending = self._upload_newest(state, tenure)
        state, closing = self._close(state, now)
        return state, (do.SendReport(ReportKind.PROGRESS, tenure.key, data), *sending, *closing)

    # The end of an attempt --------------------------------------------------------------

    def _exited(self, state: State, tenure: Tenure, event: on.JobExited, now: Now) -> Move:
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
        return _with(state, closing), (do.Sweep(tenure.key, tenure.process),)

    def _swept(self, state: State, tenure: Tenure, event: on.Swept, now: Now) -> Move:
        if tenure.stage is not Stage.CLOSING:
            return state, ()
        found = tuple(
            step
            for step in event.found
            if step not in tenure.bad and not tenure.committed_at_least(step)
        )
        tenure = replace(tenure, swept=True, found=found, done_step=event.done)
        tenure = _reached(tenure, max((*found, event.done or 0), default=None) or None)
        if tenure.ending:
            return self._release_now(state, tenure, tenure.ending)
        state, sending = self._upload_newest(state, tenure)
        state, closing = self._close(state, now)
        return state, (*sending, *closing)

    def _close(self, state: State, now: Now) -> Move:
        """Release once everything worth it is committed, or no time is left for it."""
        tenure = state.tenure
        if tenure is None or tenure.stage is not Stage.CLOSING or not tenure.swept:
            return state, ()
        commit_by = moments.work_ends(state, self.periods)
        if tenure.found and (commit_by is None or now.boot < commit_by):
            return state, ()
        return self._release_now(state, tenure, endings.ending(tenure))

    def _give_back(self, state: State, tenure: Tenure, ending: Ending) -> Move:
        """End an attempt whose job never started."""
        state, release = self._release_now(state, tenure, ending)
        return state, (do.AbortPreparation(tenure.key), *release)

    def _release_now(self, state: State, tenure: Tenure, ending: Ending) -> Move:
        releasing = replace(tenure, stage=Stage.RELEASING, ending=ending)
        aborted = (do.AbortUploads(tenure.key),) if tenure.uploading else ()
        return _with(state, releasing), (*aborted, self._release(releasing))

    def _release(self, tenure: Tenure) -> Action:
        assert tenure.ending is not None  # noqa: S101 - RELEASING begins with the ending
        return do.Release(tenure.key, tenure.ending, tenure.exit_code, tenure.progress)

    def _gone(
        self,
        state: State,
        tenure: Tenure,
        event: on.Released | on.ReleaseRefused | on.Evicted,
        now: Now,
    ) -> Move:
        match event:
            case on.Released() if tenure.stage is Stage.RELEASING:
                return self._released(state, tenure, now)
            case on.ReleaseRefused() if tenure.stage is Stage.RELEASING:
                return self._evict(state, tenure)
            case on.Evicted() if tenure.stage is Stage.EVICTING:
                return self._over(state, tenure, now)
            case _:
                return state, ()

    def _released(self, state: State, tenure: Tenure, now: Now) -> Move:
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
        )
        state, over = self._over(state, tenure, now)
        return state, (do.SendReport(endings.REPORTS[ending.outcome], tenure.key, data), *over)

    def _lost(self, state: State, tenure: Tenure) -> Move:
        """Give everything up, unless a release is under way: its own answer says more."""
        if tenure.stage in {Stage.RELEASING, Stage.EVICTING, Stage.CLAIMING}:
            return state, ()
        return self._evict(state, tenure)

    def _evict(self, state: State, tenure: Tenure) -> Move:
        evicting = replace(tenure, stage=Stage.EVICTING)
        return _with(state, evicting), (
            do.AbortPreparation(tenure.key),
            do.AbortUploads(tenure.key),
            do.Evict(tenure.key, tenure.process),
            do.SendReport(ReportKind.REFUSED, tenure.key, {"step": tenure.step}),
        )

    def _over(self, state: State, tenure: Tenure, now: Now) -> Move:
        state = replace(state, tenure=None, idle_since=now.boot)
        state, leaving = self._leave_if_done(state)
        idle = () if leaving or state.going else (do.SendReport(ReportKind.IDLE),)
        return state, (do.Wipe(tenure.key), *idle, *leaving)

    # Notices ----------------------------------------------------------------------------

    def _notice(self, state: State, notice: Notice, now: Now) -> Move:
        if notice.kind is NoticeKind.STATE_CHANGE:
            return state, ()
        if notice.doubt is not None:
            return self._called_off(state, notice)
        known = state.standing
        stands = escalate(known.notice if known else None, notice)
        if known:
            known = known.hearing(notice.channel, now.boot)
            state = replace(state, standing=known)
        if known and stands == known.notice:
            return state, ()
        standing = moments.standing(stands, periods=self.periods, now=now)
        if known and known.notice.kind is stands.kind:
            return self._earlier(state, known, stands, standing.reclaim)
        standing = standing.hearing(notice.channel, now.boot)
        # What came over SSM, the functions sent and store themselves.
        return self._stand(state, standing, now, tell=notice.channel is not Channel.SSM)

    def _called_off(self, state: State, notice: Notice) -> Move:
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

    def _stand(self, state: State, standing: Standing, now: Now, *, tell: bool = True) -> Move:
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
        said = (do.SendReport(ReportKind.NOTICED, key, data),) if tell else ()
        if state.tenure is None:
            state, leaving = self._leave_if_done(state)
            return state, (*said, *leaving)
        state, more = self._heed(state, state.tenure, now)
        return state, (*said, *more)

    def _earlier(
        self, state: State, known: Standing, notice: Notice, reclaim: float | None
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
        state = _asking(state, tenure, sooner)
        # Whole seconds are how EC2 tells the time: less than that isn't worth a new file.
        told = shift >= self.periods.reserve and request.open
        return state, (do.Ask(tenure.key, sooner, tenure.process, wake=False),) if told else ()

    def _heed(self, state: State, tenure: Tenure, now: Now) -> Move:
        standing = state.standing
        if standing is None or standing.going:
            return self._drain_if_going(state, tenure, now)
        if tenure.stage is not Stage.RUNNING or tenure.request:
            return state, ()
        last = tenure.last_request
        if last is not None and now.boot - last < self.periods.between_requests:
            return state, ()
        nth = tenure.advices + 1
        again = f":{nth}" if nth > 1 else ""
        # Asked to leave later on, the job must see another request.
        name = f"scheduled:{self.instance_id}" if standing.pending else standing.notice.request_id
        request_id = f"{name}:{tenure.key.attempt}{again}"
        request = asking.to_go_on(
            tenure,
            request_id,
            reason=standing.notice.kind.value,
            periods=self.periods,
            now=now,
        )
        asked = replace(tenure, request=request, last_request=now.boot, advices=nth)
        return _with(state, asked), (do.Ask(tenure.key, request, tenure.process),)

    def _drain_if_going(self, state: State, tenure: Tenure, now: Now) -> Move:
        """Hand the attempt back, if this host is going: saved when there is something to save."""
        if not state.going:
            return state, ()
        cause, reason = _why(state)
        if tenure.stage in BEFORE_START:
            return self._give_back(state, tenure, Ending(Outcome.INTERRUPTED, cause, reason))
        if tenure.stage is not Stage.RUNNING:
            return state, ()
        standing = state.standing
        if standing and standing.notice.kind is NoticeKind.HIBERNATE:
            # It begins at once: nothing would be saved in time, and a released lease lets
            # another host start now.
            ending = Ending(Outcome.INTERRUPTED, cause, reason)
            doomed = replace(tenure, ending=ending)
            return _with(state, doomed), (do.Kill(tenure.key, tenure.process),)
        return self._ask_to_leave(state, tenure, cause, reason, now)

    def _ask_to_leave(
        self, state: State, tenure: Tenure, cause: Cause, reason: str, now: Now
    ) -> Move:
        ends = moments.work_ends(state, self.periods)
        assert ends is not None  # noqa: S101 - a host that is going has an end
        standing = state.standing
        name = (
            standing.notice.request_id
            if standing and standing.going
            else f"stop:{self.instance_id}"
        )
        request = asking.to_leave(
            tenure,
            f"{name}:{tenure.key.attempt}",
            cause=cause,
            reason=reason,
            ends=ends,
            periods=self.periods,
            now=now,
        )
        if request is None:
            return state, ()
        asked = replace(tenure, request=request, last_request=now.boot)
        ask = do.Ask(tenure.key, request, tenure.process, wake=request.open)
        return _with(state, asked), (ask,)

    # Time -------------------------------------------------------------------------------

    def _tick(self, state: State, now: Now) -> Move:
        state = self._forget(state, now)
        hand_over_at = moments.hand_over_at(state, self.periods)
        if state.standing and hand_over_at is not None and now.boot >= hand_over_at:
            return self._stand(state, replace(state.standing, pending=False), now)
        leave_at = moments.leave_at(state, self.periods)
        if leave_at is not None and now.boot >= leave_at:
            return self._leave(state, self._why_leave(state), shutdown=True)
        stopped_at = moments.stopped_at(state, self.periods)
        if stopped_at is not None and now.boot >= stopped_at:
            return self._leave(state, "told to stop, and out of time", shutdown=False)
        tenure = state.tenure
        if tenure and tenure.stage is Stage.RUNNING and tenure.request:
            return self._escalate(state, tenure, tenure.request, now)
        if tenure and tenure.save_due is not None and now.boot >= tenure.save_due:
            return self._save_again(state, tenure, now)
        return self._close(state, now)

    def _save_again(self, state: State, tenure: Tenure, now: Now) -> Move:
        nth = tenure.periodic + 1
        request_id = f"periodic:{self.instance_id}:{tenure.key.attempt}:{nth}"
        request = asking.to_go_on(
            tenure, request_id, reason="periodic", periods=self.periods, now=now
        )
        asked = replace(tenure, request=request, last_request=now.boot, periodic=nth)
        return _with(state, asked), (do.Ask(tenure.key, request, tenure.process),)

    def _forget(self, state: State, now: Now) -> State:
        if state.barred_until is not None and now.boot >= state.barred_until:
            state = replace(state, barred_until=None)
        forget_at = moments.forget_at(state, self.periods)
        if forget_at is not None and now.boot >= forget_at:
            state = replace(state, standing=None)
        return state

    def _escalate(self, state: State, tenure: Tenure, request: Request, now: Now) -> Move:
        if not request.exits:
            expired = now.boot >= request.deadline
            return (_asking(state, tenure, None) if expired else state), ()
        if not request.killed and now.boot >= asking.kill_at(request, self.periods):
            killed = replace(request, killed=True)
            return _asking(state, tenure, killed), (do.Kill(tenure.key, tenure.process),)
        term_at = asking.term_at(tenure)
        if term_at is not None and now.boot >= term_at and tenure.process:
            termed = replace(request, termed=True)
            return _asking(state, tenure, termed), (do.Terminate(tenure.key, tenure.process),)
        return state, ()

    def _why_leave(self, state: State) -> str:
        standing = state.standing
        if standing and standing.reclaim is not None:
            return f"{standing.notice.kind} notice, and not reclaimed"
        return "no work"

    def _isolated(self, state: State, event: on.Isolated) -> Move:
        """Leave when nobody can be heard for long: such a host must not live for ever."""
        if not event.metadata:
            limit = self.periods.isolation
        elif state.tenure and not event.refused:
            limit = self.periods.isolation_busy
        else:
            limit = self.periods.isolation_idle
        if event.seconds < limit:
            return state, ()
        why = "the table refuses us" if event.refused else "nobody can be reached"
        return self._leave(state, why, shutdown=True)

    def _stop(self, state: State, now: Now) -> Move:
        if state.stopping:
            return state, ()
        state = replace(state, stop_by=now.boot + self.periods.stop_budget)
        if state.tenure is None:
            return self._leave_if_done(state)
        return self._drain_if_going(state, state.tenure, now)

    def _leave_if_done(self, state: State) -> Move:
        """Go as soon as nothing is held, if this host was told to; EC2 takes others in time."""
        if state.tenure:
            return state, ()
        if state.stopping:
            return self._leave(state, "told to stop", shutdown=False)
        standing = state.standing
        if standing and standing.going and standing.notice.host_leaves:
            return self._leave(state, f"{standing.notice.kind} notice", shutdown=True)
        return state, ()

    def _leave(self, state: State, reason: str, *, shutdown: bool) -> Move:
        """Go, and leave no process behind that nobody would look after."""
        tenure = state.tenure
        kill = (do.Kill(tenure.key, tenure.process),) if tenure else ()
        # A host under notice is drained: that it goes changes nothing.
        known = state.standing is not None and state.standing.going
        said = () if known else (do.SendReport(ReportKind.LEAVING, data={"reason": reason}),)
        return replace(state, leaving=True), (*kill, *said, do.Leave(reason, shutdown))

    # After a crash of the agent -----------------------------------------------------------

    def _reattach(self, tenure: Tenure) -> tuple[Action, ...]:
        request = tenure.request
        again = (do.Ask(tenure.key, request, tenure.process),) if request and request.open else ()
        doomed = tenure.ending is not None or (request is not None and request.killed)
        kill = (do.Kill(tenure.key, tenure.process),) if doomed else ()
        return (*self._attach(tenure), *again, *kill)

    def _attach(self, tenure: Tenure) -> tuple[Action, ...]:
        if tenure.process is None or tenure.lease is None:
            return ()
        return (
            do.Attach(
                tenure.key, tenure.lease, tenure.base, tenure.committed_manifest, tenure.process
            ),
        )


def _with(state: State, tenure: Tenure) -> State:
    return replace(state, tenure=tenure)


def _asking(state: State, tenure: Tenure, request: Request | None) -> State:
    return _with(state, replace(tenure, request=request))


def _keys(state: State) -> frozenset[LeaseKey]:
    return frozenset({state.tenure.key}) if state.tenure else frozenset()


def _why(state: State) -> tuple[Cause, str]:
    standing = state.standing
    if standing and standing.going:
        return Cause.NOTICE, standing.notice.kind.value
    return Cause.STOP, "the agent was told to stop"


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


def _reached(tenure: Tenure, step: int | None) -> Tenure:
    """Note the highest step known: a save can be news of more than the last progress."""
    if step is None or (tenure.step is not None and tenure.step >= step):
        return tenure
    return replace(tenure, step=step)
