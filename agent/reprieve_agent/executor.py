"""
Carrying the machine's actions out.

Whatever may block runs in a thread of its own and comes back as an event. Each action can
be repeated: after a crash of the agent it will be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, ParamSpec, assert_never

from reprieve.domain.errors import LeaseLostError
from reprieve.domain.lease import LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import checkpoint, contract, room
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import now
from reprieve_agent.config import Config
from reprieve_agent.events import Event
from reprieve_agent.leases import ClosedError
from reprieve_agent.log_stream import LogStream
from reprieve_agent.logs import LogPusher
from reprieve_agent.places import Places
from reprieve_agent.state import Process, State
from reprieve_agent.supervisor import marker
from reprieve_agent.surroundings import Host, Outside

if TYPE_CHECKING:
    from reprieve_agent.companions import Companions
    from reprieve_agent.starter import Starter

log = logging.getLogger(__name__)

P = ParamSpec("P")

LOG_PUSHES_PER_NOTICE = 24
FINAL_LOG_OF_NOTICE = 1 / 60  # 2 s


class Executor:
    """The hands of one agent."""

    def __init__(
        self, config: Config, host: Host, outside: Outside, emit: Callable[[Event], None]
    ) -> None:
        self._config = config
        self._host = host
        self._outside = outside
        self._emit = emit
        self._companions: dict[LeaseKey, Companions] = {}
        self._pushers: dict[LeaseKey, LogPusher] = {}
        self._state: State | None = None

    @cached_property
    def _starter(self) -> Starter:
        # Not before the first job: an idle host keeps none of it in memory.
        from reprieve_agent.starter import Starter  # noqa: PLC0415

        return Starter(self._config, self._host, self._outside, self._emit)

    def follow(self, state: State) -> None:
        """Let what runs by itself know where things stand."""
        tenure = state.tenure
        self._state = state
        self._outside.desk.follow(state.follows, tenure.progress if tenure else None)
        self._outside.work.want(tickets=state.wants_work)

    def attend(self, state: State) -> None:
        """
        Let what reads and sends for the job hurry while an answer is awaited.

        After the job was asked: what looks for the answer would take the processor from the asking.
        """
        tenure = state.tenure
        companions = self._companions.get(tenure.key) if tenure else None
        if companions and tenure:
            awaited = tenure.request is not None and tenure.request.open
            companions.watcher.hurry(urgent=awaited)
            companions.uploads.hurry(urgent=awaited)

    def carry_out(self, action: Action) -> None:
        """Do it, or begin it."""
        match action:
            case do.SendReport(kind, key, data):
                about = self._host.facts if kind is ReportKind.READY else {}
                self._outside.reports.send(kind, key, about | data)
            case do.DeleteTicket(receipt):
                self._in_thread(self._outside.work.delete, receipt)
            case do.ReturnTicket(receipt):
                self._in_thread(self._outside.work.give_back, receipt)
            case do.TryClaim() | do.WriteSeal() | do.RenewNow() | do.Release() | do.ReleaseStray():
                self._about_lease(action)
            case do.Prepare() | do.AbortPreparation() | do.Launch() | do.Attach():
                self._about_start(action)
            case do.Ask() | do.Terminate() | do.Kill() | do.Sweep() | do.Evict() | do.Wipe():
                self._about_process(action)
            case do.Upload() | do.AbortUploads() | do.Prune():
                self._about_checkpoints(action)
            case do.Leave():
                raise TypeError("leaving is the loop's own affair")
            case _:
                assert_never(action)

    # The lease --------------------------------------------------------------------------

    def _about_lease(
        self, action: do.TryClaim | do.WriteSeal | do.RenewNow | do.Release | do.ReleaseStray
    ) -> None:
        match action:
            case do.RenewNow(key):
                self._outside.desk.renew_now(key)
            case do.TryClaim(key):
                self._in_thread(self._claim, key)
            case do.WriteSeal(key, base):
                self._in_thread(self._seal, key, base)
            case do.Release():
                self._in_thread(self._release, action)
            case do.ReleaseStray(key, cause):
                self._in_thread(self._outside.desk.release_stray, key, cause)
            case _:
                assert_never(action)

    def _claim(self, key: LeaseKey) -> None:
        self._emit(on.ClaimAnswered(key, self._outside.desk.claim(key)))

    def _seal(self, key: LeaseKey, base: str | None) -> None:
        try:
            row, sent = self._outside.desk.seal(key, base)
        except LeaseLostError:
            self._emit(on.LeaseLost(key))
        else:
            self._emit(on.Sealed(key, row.base, sent))

    def _release(self, action: do.Release) -> None:
        self._push_log_soon(action.key)
        try:
            self._outside.desk.release(action.key, action.ending, action.exit_code, action.progress)
        except LeaseLostError:
            self._emit(on.ReleaseRefused(action.key))
        else:
            self._emit(on.Released(action.key))

    # The start of a job -----------------------------------------------------------------

    def _about_start(
        self, action: do.Prepare | do.AbortPreparation | do.Launch | do.Attach
    ) -> None:
        match action:
            case do.Prepare(key):
                self._pusher(key)
                self._in_thread(self._starter.prepare, action, self._starter.begin(key))
            case do.AbortPreparation(key):
                self._starter.call_off(key)
                self._in_thread(self._outside.supervisor.kill, key, self._places(key).setup)
            case do.Launch():
                self._in_thread(self._launch, action)
            case do.Attach(key, lease, base, committed, process):
                self._accompany(key, lease.spec, committed or base, process)
            case _:
                assert_never(action)

    def _launch(self, action: do.Launch) -> None:
        process = self._starter.launch(action)
        if process:
            self._emit(on.Launched(action.key, process))
            self._accompany(action.key, action.lease.spec, action.base, process)

    def _accompany(
        self, key: LeaseKey, spec: JobSpec, parent: str | None, process: Process
    ) -> None:
        """Watch the job until it ends, unless that is done already."""
        if key in self._companions:
            return
        places = self._places(key)
        if self._outside.role:
            self._in_thread(self._outside.role.open, key, places)
        # Not before the first job: an idle host keeps none of it in memory.
        from reprieve_agent.companions import Companions  # noqa: PLC0415

        companions = Companions.of(
            key,
            spec,
            self._places(key),
            process,
            outside=self._outside,
            notice=self._config.clock.notice,
            parent=parent,
            host_type=self._host.identity.type,
            emit=self._emit,
        )
        self._companions[key] = companions
        companions.start()
        self._pusher(key)
        self._in_thread(self._wait, key, companions, process)

    def _wait(self, key: LeaseKey, companions: Companions, process: Process) -> None:
        ended = self._outside.supervisor.wait(key, self._places(key), process)
        companions.watcher.end()
        companions.watcher.look()  # its last words come before the news of its end
        self._emit(on.JobExited(key, ended.exit_code, ended.detail, ended.stopped))

    # A job's processes ------------------------------------------------------------------

    def _about_process(
        self, action: do.Ask | do.Terminate | do.Kill | do.Sweep | do.Evict | do.Wipe
    ) -> None:
        match action:
            case do.Ask():
                self._ask(action)
            case do.Terminate(_, process):
                self._outside.supervisor.terminate(process)
            case do.Kill(key):
                self._in_thread(self._outside.supervisor.kill, key, self._places(key))
            case do.Sweep(key):
                self._in_thread(self._sweep, key)
            case do.Evict(key):
                self._in_thread(self._evict, key)
            case do.Wipe(key):
                self._in_thread(self._wipe, key)
            case _:
                assert_never(action)

    def _ask(self, action: do.Ask) -> None:
        """Write the request, then ring; the file is the request, the signal only hurries it."""
        places = self._places(action.key)
        try:
            self._make_room(places)
            contract.write_request(places, action.request, now())
        except OSError as error:
            log.error("request not written", extra={"error": str(error)})  # noqa: TRY400
            return
        woken = 0
        if action.wake and action.process:
            woken = contract.wake(places, root=action.process.keeper, marker=marker(action.key))
        log.info(
            "asked the job",
            extra={
                "lease": str(action.key),
                "request": action.request.id,
                "kind": action.request.kind.value,
                "woken": woken,
            },
        )

    def _make_room(self, places: Places) -> None:
        tenure = self._state.tenure if self._state else None
        if tenure and places.checkpoints.exists():
            room.make(
                places.checkpoints,
                committed=tenure.committed_step,
                last_bytes=tenure.upload_bytes,
            )

    def _sweep(self, key: LeaseKey) -> None:
        places = self._places(key)
        self._outside.supervisor.kill(key, places)
        self._check_gpus()
        companions = self._companions.get(key)
        if companions and companions.adopter:
            companions.adopter.finish(by=self._work_ends(key))
        found = tuple(checkpoint.whole_steps(places.checkpoints))
        self._emit(on.Swept(key, found, contract.done_step(places)))

    def _work_ends(self, key: LeaseKey) -> float | None:
        """Return when this host goes, on the boot clock, if the attempt was told to leave."""
        tenure = self._state.tenure if self._state else None
        request = tenure.request if tenure and tenure.key == key else None
        return request.deadline if request and request.exits else None

    def _evict(self, key: LeaseKey) -> None:
        """Free the host of a lost attempt; until its last process is gone nothing else may run."""
        while not self._outside.supervisor.kill(key, self._places(key)):
            log.error("lost job still runs", extra={"lease": str(key)})
        self._check_gpus()
        self._outside.desk.drop_hold(key)
        self._emit(on.Evicted(key))

    def _check_gpus(self) -> None:
        """Before the host is free again; one that is going takes no more jobs, and has no time."""
        going = self._state is not None and self._state.going
        if self._outside.gpus and not going:
            fault = self._outside.gpus.fault_after_kill()
            if fault:
                self._emit(on.GpusFailed(fault))

    def _wipe(self, key: LeaseKey) -> None:
        companions = self._companions.pop(key, None)
        if companions:
            companions.end()
        pusher = self._pushers.pop(key, None)
        if pusher:
            pusher.end()
            pusher.push(last=True)
        self._starter.forget(key)  # its files stay until nothing works on them any more
        if self._outside.role:
            self._outside.role.close(key)
        self._places(key).remove()

    # Checkpoints ------------------------------------------------------------------------

    def _about_checkpoints(self, action: do.Upload | do.AbortUploads | do.Prune) -> None:
        companions = self._companions.get(action.key)
        match action:
            case do.Upload(_, step, estimates) if companions:
                companions.uploads.start(step, estimates)
            case do.AbortUploads(_, steps) if companions:
                companions.uploads.abort(steps)
            case do.Prune(key, committed):
                self._in_thread(checkpoint.prune, self._places(key).checkpoints, committed)
            case _:
                log.warning("nothing accompanies this job", extra={"action": repr(action)})

    def _push_log_soon(self, key: LeaseKey) -> None:
        """Let the log out before the release says that the attempt is over, if that is quick."""
        push = partial(self._pusher(key).push, last=True)
        pushing = threading.Thread(target=push, daemon=True)
        pushing.start()
        pushing.join(self._config.clock.notice.total_seconds() * FINAL_LOG_OF_NOTICE)

    def _pusher(self, key: LeaseKey) -> LogPusher:
        """Return what pushes the attempt's log, from its setup on."""
        pusher = self._pushers.get(key)
        if pusher is None:
            places, group = self._places(key), self._outside.log_group
            pusher = LogPusher(
                key,
                places.log,
                self._outside.store,
                period=self._config.clock.notice.total_seconds() / LOG_PUSHES_PER_NOTICE,
                stream=LogStream(key, places.log, places.log_sent, group) if group else None,
            )
            self._pushers[key] = pusher
            pusher.start()
        return pusher

    # ------------------------------------------------------------------------------------

    def _places(self, key: LeaseKey) -> Places:
        return Places.of(key, state_dir=self._config.state_dir, run_dir=self._config.run_dir)

    def _in_thread(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        def run() -> None:
            try:
                call(*args, **kwargs)
            except ClosedError:
                return  # the agent ends
            except Exception:
                log.exception("action failed", extra={"action": getattr(call, "__name__", "")})

        threading.Thread(target=run, daemon=True).start()
