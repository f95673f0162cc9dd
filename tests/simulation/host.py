"""
A host: the agent's real machine and restore rule, its hands and the job made small.

Each hand does what `reprieve_agent.executor` and `reprieve_agent.leases` do, in the same
order of calls, as events of the world's clock. A frozen host does nothing; what was due
meanwhile happens right after the thaw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from reprieve.domain.checkpoint import Manifest, manifest_key
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import LeaseLostError, NotAdoptedError, UnknownOutcomeError
from reprieve.domain.host import InstanceState
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, Outcome, Phase
from reprieve.domain.notice import Notice
from reprieve.ports.leases import Claim, Progress
from reprieve.protocol import Report, ReportKind, Scalar
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.clock import Now
from reprieve_agent.machine import Machine
from reprieve_agent.periods import Periods
from reprieve_agent.restore import NoValidCheckpointError, Restorer
from reprieve_agent.state import AckState, Ending, Process, State
from tests.simulation.faults import Caller, Died
from tests.simulation.promises import Start

if TYPE_CHECKING:
    from tests.simulation.world import World

PERIODS = Periods.of(NoticeClock())
COMMIT_FOR = PERIODS.lease * 5 / 6
STEP_EVERY = 10.0
REQUEUE = 75
CRASHED = 1
SHORT = 0.01


class QuickRestorer(Restorer):
    """The real choice of a checkpoint; the bucket has looked at its bytes already."""

    def _fetch(self, manifest: Manifest, target: Path, account: object) -> None:
        return


@dataclass(slots=True)
class Run:
    """A job's process; ``exit_code`` is None while it runs."""

    key: LeaseKey
    base: str | None
    step: int
    total: int
    deaf: bool
    exit_code: int | None = None
    over: bool = False
    saved: list[int] = field(default_factory=list)
    done: int | None = None


@dataclass(slots=True)
class Agent:
    """One instance and what runs on it."""

    world: World
    instance_id: str
    pool: str
    skew: float
    alive: bool = True
    up: bool = False
    frozen: bool = False
    cut_until: float = 0.0
    spoke_at: float | None = None
    gone_at: float | None = None
    reclaimed_at: float | None = None
    metadata: Notice | None = None
    boot_n: int = 0
    life: int = 0
    state: State = field(init=False)
    machine: Machine = field(init=False)
    caller: Caller = field(init=False)
    disk: State | None = None
    run: Run | None = None
    doomed: set[LeaseKey] = field(default_factory=set)
    stopped: set[LeaseKey] = field(default_factory=set)
    aborted: set[tuple[LeaseKey, int]] = field(default_factory=set)
    uploading: set[tuple[LeaseKey, int]] = field(default_factory=set)
    parent: str | None = None
    watched: LeaseKey | None = None
    _deferred: list[Callable[[], None]] = field(default_factory=list)
    _followed: tuple[LeaseKey, Progress] | None = None
    _read: LeaseKey | None = None
    _asked: LeaseKey | None = None
    _over: LeaseKey | None = None
    _renewed_at: float | None = None
    _beats: int = 0
    _polling: bool = False
    _waiting: bool = False
    _heard: float = 0.0
    _wake: float | None = None

    def __post_init__(self) -> None:
        periods = replace(PERIODS, idle=self.world.schedule.idle)
        self.machine = Machine(self.instance_id, periods)
        self.caller = Caller("host", self)
        self.state = State(boot_id="", idle_since=0.0)

    # The machine under it ------------------------------------------------------------------

    @property
    def holder(self) -> Holder:
        return Holder(self.instance_id, f"boot-{self.boot_n}")

    @property
    def job(self) -> str | None:
        """The job that it has, running or not yet."""
        return self.state.tenure.key.job if self.state.tenure else None

    def now(self) -> Now:
        return Now(self.world.now() + timedelta(seconds=self.skew), self.world.now_s)

    def later(self, seconds: float, call: Callable[[], None], *, outlives: bool = False) -> None:
        """Do it in a while, if this boot (and, unless it *outlives* it, this agent) still runs."""
        boot, life = self.boot_n, self.life

        def due() -> None:
            if self.boot_n != boot or (self.life != life and not outlives):
                return
            if self.frozen:
                self._deferred.append(due)
                return
            try:
                call()
            except Died:
                return

        self.world.later(seconds, due)

    def boot(self) -> None:
        """Start the agent of a new instance, if it wasn't taken back while it booted."""
        if not self.alive:
            return
        if self.world.memory.fleet.instances[self.instance_id].state is not InstanceState.ALIVE:
            return
        self.boot_n += 1
        self._start_agent()

    def die(self) -> None:
        """Stop everything on it, for good."""
        self.up, self.run = False, None
        self.world.running.discard(self.instance_id)
        self.boot_n += 1000

    def freeze(self, seconds: float) -> None:
        """Let nothing on it move for a while."""
        if self.frozen or not self.up:
            return
        self.frozen = True
        boot = self.boot_n
        self.world.later(seconds, lambda: self._thaw(boot))

    def _thaw(self, boot: int) -> None:
        if not self.frozen or self.boot_n != boot:
            return
        self.world.say(f"{self.instance_id} thaws")
        self.frozen = False
        due, self._deferred = self._deferred, []
        for nth, call in enumerate(due):
            self.world.later(0.001 * (nth + 1), call)

    def reboot(self) -> None:
        """Lose every process; the disk stays."""
        if not self.up:
            return
        self.boot_n += 1
        self.world.running.discard(self.instance_id)
        self.up, self.run, self.frozen, self._deferred = False, None, False, []
        self.doomed, self.stopped = set(), set()
        self.later(40, self._start_agent, outlives=True)

    def restart_agent(self) -> None:
        """Kill the agent alone: its supervisor starts it again, the job runs on."""
        if not self.up:
            return
        self.life += 1
        self.up = False
        self.doomed, self.stopped = set(), set()
        self.later(1, self._start_agent, outlives=True)

    def stop(self) -> None:
        """Tell the agent to stop, as systemd does; it is started again once it has left."""
        if self.up:
            self.emit(on.StopAsked())

    def _start_agent(self) -> None:
        if not self.alive:
            return
        self.life += 1
        self.up = True
        self._followed = self._read = self._asked = self._over = self._renewed_at = None
        self.watched, self.uploading, self._wake = None, set(), None
        self._polling = self._waiting = False
        self._heard = self.world.now_s
        saved, boot_id = self.disk, self.holder.boot_id
        self.state = State(boot_id=boot_id, idle_since=self.world.now_s)
        if saved and saved.boot_id == boot_id:
            self._apply(*self.machine.recover(saved, self.now()))
        else:
            self._apply(*self.machine.start(self.state, self.now()))
            if saved and saved.tenure:
                self._carry_out(do.ReleaseStray(saved.tenure.key, Cause.REBOOT))
        self._beat_soon(SHORT)
        self.later(2, self.read_metadata)

    def emit(self, event: on.Event) -> None:
        """Put it into the agent's inbox."""
        if self.up:
            self.later(SHORT, lambda: self._step(event))

    def _step(self, event: on.Event) -> None:
        if not self.state.leaving:
            self._apply(*self.machine.step(self.state, event, self.now()))

    def _apply(self, state: State, actions: tuple[do.Action, ...]) -> None:
        self.disk = self.state = state
        self._follow()
        leave = None
        for action in actions:
            if isinstance(action, do.Leave):
                leave = action
            else:
                self._carry_out(action)
        if leave:
            self._leave(leave)
        elif not state.leaving:
            self._set_alarm()

    def _set_alarm(self) -> None:
        wake = self.machine.wake_at(self.state)
        if wake is not None and (self._wake is None or wake < self._wake - SHORT):
            self._wake = wake
            self.later(max(SHORT, wake - self.world.now_s), lambda: self._tick(wake))

    def _tick(self, wake: float) -> None:
        if self._wake == wake:
            self._wake = None
            self._step(on.Tick())
            self._set_alarm()

    def _leave(self, leave: do.Leave) -> None:
        self.world.say(f"{self.instance_id} leaves: {leave.reason}")
        self.up = False
        self.life += 1
        if leave.shutdown:
            self.later(3, lambda: self.world.die(self, told=True), outlives=True)
        else:
            self.later(2, self._start_agent, outlives=True)

    def _follow(self) -> None:
        tenure = self.state.tenure
        key = self.state.follows
        known = self._followed
        self._followed = (key, tenure.progress) if key and tenure else None
        if (known[0] if known else None) != key:
            self._read = self._renewed_at = self._over = None
            self._beat_soon(SHORT)
        elif (
            known and self._followed and known[1].committed_step != self._followed[1].committed_step
        ):
            self._beat_soon(SHORT)
        if self.state.wants_work and not self._waiting:
            self.poll_soon()

    # Notices and tickets -------------------------------------------------------------------

    def notice(self, notice: Notice) -> None:
        """Hear of it by a channel, if anybody listens."""
        if self.up and self.alive:
            self.later(SHORT, lambda: self.emit(on.NoticeSeen(notice)))

    def read_metadata(self) -> None:
        if self.metadata and self.up and self.alive:
            self.notice(self.metadata)

    def poll_soon(self) -> None:
        """Ask for a ticket, unless that is about to be done."""
        self._waiting = False
        if not self._polling:
            self._polling = True
            self.later(self.world.rng.uniform(0.1, 2), self._poll)

    def _poll(self) -> None:
        self._polling = False
        if not self.state.wants_work:
            return
        now = self.world.now_s
        if now < self.cut_until:
            self._polling = True
            self.later(5, self._poll)
            return
        queue = self.world.tickets[self.pool]
        visible = [receipt for receipt, entry in queue.items() if entry.visible_at <= now]
        if not visible:
            self._waiting = True
            self.world.pollers[self.pool].add(self.instance_id)
            return
        receipt = visible[self.world.rng.randrange(len(visible))]
        entry = queue[receipt]
        entry.visible_at, entry.receives = now + 60, entry.receives + 1
        self.world.later(60, lambda: self.world.ring(self.pool))
        if entry.receives > 50:
            del queue[receipt]
        self.emit(on.TicketCame(entry.ticket.key, receipt))

    def _ticket(self, receipt: str, *, delete: bool) -> None:
        queue = self.world.tickets[self.pool]
        if receipt not in queue:
            return
        if delete:
            del queue[receipt]
        else:
            queue[receipt].visible_at = self.world.now_s
            self.world.ring(self.pool)

    # Hands -----------------------------------------------------------------------------------

    def _carry_out(self, action: do.Action) -> None:  # noqa: C901, PLR0912 - one line for each
        match action:
            case do.SendReport(kind, about, data):
                self._report(kind, about, data)
            case do.DeleteTicket(receipt):
                self.later(SHORT, lambda: self._ticket(receipt, delete=True))
            case do.ReturnTicket(receipt):
                self.later(SHORT, lambda: self._ticket(receipt, delete=False))
            case do.TryClaim(key):
                self.later(SHORT, lambda: self._claim(key))
            case do.WriteSeal(key, base):
                self.later(SHORT, lambda: self._seal(key, base))
            case do.RenewNow(key):
                self._asked = key
                self._beat_soon(SHORT)
            case do.Release():
                self.later(SHORT, lambda: self._release(action))
            case do.ReleaseStray(key, cause):
                self.later(SHORT, lambda: self._release_stray(key, cause))
            case do.Prepare(key):
                lasts = self.world.rng.uniform(*self.world.schedule.restores)
                self.later(lasts, lambda: self._prepare(action))
            case do.AbortPreparation(key):
                self.stopped.add(key)
                self.later(SHORT, lambda: self._kill(key))
            case do.Launch():
                self._call("launch", lambda: None)
                self.later(0.1, lambda: self._launch(action))
            case do.Attach(key, _, base, committed, _):
                self._accompany(key, committed or base)
            case do.Ask(key, request):
                self.later(
                    self.world.rng.uniform(0.1, 3),
                    lambda: self._asked_job(key, request.id, request.exits),
                )
            case do.Terminate(key):
                self.later(SHORT, lambda: self._exit(key, 143))
            case do.Kill(key):
                self.later(SHORT, lambda: self._kill(key))
            case do.Sweep(key):
                self.later(0.1, lambda: self._sweep(key))
            case do.Evict(key):
                self.later(0.1, lambda: self._evict(key))
            case do.Upload(key, step):
                self._upload(key, step)
            case do.AbortUploads(key, steps):
                self.aborted |= {
                    u for u in self.uploading if u[0] == key and (steps is None or u[1] in steps)
                }
            case do.Wipe(key):
                if self.run and self.run.key == key and self.run.over:
                    self.run = None
                self.watched = None
            case do.Prune() | do.Leave():
                pass

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        answer = self.world.host_call(self, name, call)
        if name.startswith("leases.") and self.up:
            self.spoke_at = self._heard = self.world.now_s
        return answer

    def _report(self, kind: ReportKind, key: LeaseKey | None, data: dict[str, Scalar]) -> None:
        if self.world.now_s < self.cut_until:
            return
        self.world.report(Report(kind, self.instance_id, self.now().wall, 0, key, dict(data)))

    def _repeated(self, call: Callable[[], Any], pause: float = 0.3) -> Any:
        """Make the call; if the table doesn't answer, do so again, and return None for now."""
        try:
            return call()
        except UnknownOutcomeError:
            self.later(pause, lambda: self._repeated(call, min(pause * 2, 5.0)))
            return None

    def _claim(self, key: LeaseKey) -> None:
        def call() -> None:
            leases = self.world.memory.leases
            claim: Claim = self._call("leases.claim", lambda: leases.claim(key, self.holder))
            self.world.say(f"{self.instance_id} claims {key}: {claim}")
            self.emit(on.ClaimAnswered(key, claim))

        self._repeated(call)

    def _seal(self, key: LeaseKey, base: str | None) -> None:
        def call() -> None:
            sent, leases = self.world.now_s, self.world.memory.leases
            try:
                row = self._call("leases.seal", lambda: leases.seal(key, self.holder, base))
            except LeaseLostError:
                self.emit(on.LeaseLost(key))
                return
            self.world.say(f"{self.instance_id} seals {key} on {row.base}")
            self.emit(on.Sealed(key, row.base, sent))

        self._repeated(call)

    def _write_release(
        self, key: LeaseKey, ending: Ending, code: int | None, progress: Progress
    ) -> None:
        self._call(
            "leases.release",
            lambda: self.world.memory.leases.release(
                key,
                self.holder,
                outcome=ending.outcome,
                cause=ending.cause,
                exit_code=code,
                progress=progress,
                detail=ending.detail,
            ),
        )

    def _release(self, action: do.Release) -> None:
        key = action.key

        def call() -> None:
            try:
                self._write_release(key, action.ending, action.exit_code, action.progress)
            except LeaseLostError:
                self.emit(on.ReleaseRefused(key))
                return
            self._over = key
            self.world.say(f"{self.instance_id} releases {key}: {action.ending.outcome}")
            if action.ending.outcome is Outcome.FINISHED:
                self.world.promises.finished.add(key.job)
            self.emit(on.Released(key))

        self._repeated(call)

    def _release_stray(self, key: LeaseKey, cause: Cause) -> None:
        ending = Ending(Outcome.INTERRUPTED, cause, "held, but not running on this host")

        def call() -> None:
            try:
                self._write_release(key, ending, None, Progress(phase=Phase.CLAIMED))
            except LeaseLostError:
                leases = self.world.memory.leases
                self._call("leases.drop_hold", lambda: leases.drop_hold(self.instance_id, key))

        self._repeated(call)

    def _beat_soon(self, seconds: float) -> None:
        self._beats += 1
        nth = self._beats
        self.later(seconds, lambda: self._beat(nth))

    def _beat(self, nth: int) -> None:
        """Renew or be idle; the newest wish for a beat is the one that counts."""
        if nth != self._beats or not self.up:
            return
        pause = PERIODS.renewal
        followed = self._followed
        try:
            if followed is None:
                self._idle()
            elif followed[0] != self._over:
                self._renew(*followed)
        except UnknownOutcomeError:
            pause = PERIODS.renewal / 4
            silent = self.world.now_s - self._heard
            self.emit(on.Isolated(silent, metadata=True, refused=False))
        if nth == self._beats:
            self._beat_soon(pause)

    def _idle(self) -> None:
        leases = self.world.memory.leases
        try:
            holds = self._call("leases.idle", lambda: leases.idle(self.instance_id))
        except NotAdoptedError:
            self.emit(on.NotAdopted())
        else:
            self.emit(on.HoldsRead(holds))

    def _renew(self, key: LeaseKey, progress: Progress) -> None:
        leases, sent, asked = self.world.memory.leases, self.world.now_s, self._asked == key
        try:
            lease: Lease = self._call(
                "leases.renew", lambda: leases.renew(key, self.holder, progress)
            )
        except LeaseLostError:
            self._over = key
            self.emit(on.LeaseLost(key))
            return
        if self._followed and self._followed[0] == key:
            self._renewed_at = sent
        if self._read != key:
            self._read = key
            self.emit(on.LeaseRead(key, lease))
        if asked:
            self._asked = None
            self.emit(on.Renewed(key, sent))

    # The start -------------------------------------------------------------------------------

    def _prepare(self, action: do.Prepare) -> None:
        key = action.key
        if key in self.stopped:
            return
        restorer = QuickRestorer(
            cast("Any", self.world.bucket),
            report=lambda _key, _why: None,
            stopped=lambda: False,
            by=self.instance_id,
        )
        target = cast("Path", SimpleNamespace(iterdir=lambda: iter(())))
        try:
            restored = self._call(
                "restore",
                lambda: (
                    restorer.restore_exactly(action.lease.base, target, None)
                    if action.exactly
                    else restorer.restore(action.lease, target, None)
                ),
            )
        except NoValidCheckpointError as error:
            self.emit(on.PreparationFailed(key, Cause.NO_VALID_CHECKPOINT, str(error)))
            return
        prepared = on.Prepared(key, restored.base, restored.step)
        self.later(self.world.rng.uniform(0.1, 9), lambda: self._step(prepared))

    def _launch(self, action: do.Launch) -> None:
        key = action.key
        if key in self.stopped and not self.run:
            return
        if self.run is None or self.run.key != key:
            if key in self.doomed:
                self.emit(on.JobExited(key, None, "the attempt was ended before its start"))
                return
            if self.world.now_s >= action.not_after:
                self.emit(on.TooLate(key))
                return
            if self.run and not self.run.over:
                raise AssertionError(f"{self.instance_id} starts {key} beside {self.run.key}")
            work = self.world.works[key.job]
            step = action.base_step or 0
            total = int(work.seconds / STEP_EVERY)
            self.run = Run(key, action.base, step, total, work.deaf)
            self.world.running.add(self.instance_id)
            self.world.say(f"{self.instance_id} starts {key} from {action.base}")
            self.world.promises.started(Start(key, self.instance_id, action.base, step))
            self.later(STEP_EVERY, lambda: self._work(key), outlives=True)
            self._call("start", lambda: None)
        self.emit(on.Launched(key, Process(keeper=1, keeper_ticks=1, pid=2, ticks=2)))
        self._accompany(key, action.base)

    def _accompany(self, key: LeaseKey, parent: str | None) -> None:
        if self.watched == key:
            return
        self.watched, self.parent = key, parent
        run = self._run_of(key)
        if run is None:
            self.emit(on.JobExited(key, None, "the job's keeper was killed"))
            return
        if not run.deaf:
            self.emit(on.JobReady(key))
        for step in run.saved:
            self.emit(on.CheckpointFound(key, step))
        if run.over:
            self.emit(on.JobExited(key, run.exit_code))

    # The job -----------------------------------------------------------------------------------

    def _run_of(self, key: LeaseKey) -> Run | None:
        return self.run if self.run and self.run.key == key else None

    def _tell(self, event: on.Event) -> None:
        if self.watched is not None and self.up:
            self.emit(event)

    def _work(self, key: LeaseKey) -> None:
        run = self._run_of(key)
        if run is None or run.over:
            return
        run.step += 1
        if run.step % 2 == 0:
            self._tell(on.JobProgress(key, run.step))
        if run.deaf and run.step % 5 == 0:
            self._save(run)  # it saves when it likes
        if run.step >= run.total:
            self._save(run)
            run.done = run.step
            self.world.done.add(key.job)
            self._exit(key, 0)
            return
        self.later(STEP_EVERY, lambda: self._work(key), outlives=True)

    def _save(self, run: Run) -> None:
        if run.step not in run.saved:
            run.saved.append(run.step)
            self._tell(on.CheckpointFound(run.key, run.step))

    def _asked_job(self, key: LeaseKey, request: str, exits: bool) -> None:  # noqa: FBT001
        run = self._run_of(key)
        if run is None or run.over or run.deaf:
            return
        self._tell(on.JobAcked(key, request, AckState.SAVING, None))
        self.later(
            self.world.rng.uniform(0.5, 15),
            lambda: self._asked_save(key, request, exits=exits),
            outlives=True,
        )

    def _asked_save(self, key: LeaseKey, request: str, *, exits: bool) -> None:
        run = self._run_of(key)
        if run is None or run.over:
            return
        self._save(run)
        self._tell(on.JobAcked(key, request, AckState.SAVED, run.step))
        if exits:
            self.later(1, lambda: self._exit(key, REQUEUE), outlives=True)

    def crash_job(self, job: str) -> None:
        """Let the job fail by its own fault."""
        if self.run and self.run.key.job == job and not self.run.over and not self.frozen:
            self.world.crashes[job] += 1
            self._exit(self.run.key, CRASHED)

    def _exit(self, key: LeaseKey, code: int | None) -> None:
        run = self._run_of(key)
        if run and not run.over:
            run.over, run.exit_code = True, code
            self.world.running.discard(self.instance_id)
            self._tell(on.JobExited(key, code, "" if code == 0 else f"exit {code}"))

    def _kill(self, key: LeaseKey) -> None:
        self.doomed.add(key)
        self._exit(key, -9)

    def _sweep(self, key: LeaseKey) -> None:
        self._kill(key)
        run = self._run_of(key)
        found = tuple(run.saved) if run else ()
        self.emit(on.Swept(key, found, run.done if run else None))

    def _evict(self, key: LeaseKey) -> None:
        self._kill(key)
        leases = self.world.memory.leases

        def call() -> None:
            self._call("leases.drop_hold", lambda: leases.drop_hold(self.instance_id, key))
            self.emit(on.Evicted(key))

        self._repeated(call)

    # Commits -------------------------------------------------------------------------------------

    def _upload(self, key: LeaseKey, step: int) -> None:
        if self.watched != key or (key, step) in self.uploading:
            return
        self.uploading.add((key, step))
        self.aborted.discard((key, step))
        self.later(self.world.rng.uniform(0.5, 12), lambda: self._write_manifest(key, step))

    def _write_manifest(self, key: LeaseKey, step: int) -> None:
        if (key, step) in self.aborted:
            self.uploading.discard((key, step))
            return
        renewed, followed = self._renewed_at, self._followed
        mine = followed is not None and followed[0] == key and self._over != key
        if not mine or renewed is None or self.world.now_s - renewed >= COMMIT_FOR:
            self.later(0.5, lambda: self._write_manifest(key, step))
            return
        # A freeze between the look at the lease and the write is what the seal is for.
        self._call("commit", lambda: None)
        self.later(SHORT, lambda: self._commit(key, step))

    def _commit(self, key: LeaseKey, step: int) -> None:
        name = manifest_key(key.job, key.attempt, step)
        manifest = Manifest(
            job=key.job,
            attempt=key.attempt,
            token=key.token,
            step=step,
            parent=self.parent if self.parent != name else None,
            files=self.world.bucket.files(key.job, key.attempt, f"save-{self.world.steps}"),
            saved_at=self.now().wall,
        )
        if name not in self.world.manifests and key.job in self.world.torn:
            self.world.torn.discard(key.job)
            self.world.bad[name] = self.world.now_s
            self.world.say(f"FAULT {name} is half-written")
        standing = self.world.bucket.commit(manifest)
        self.world.say(f"{self.instance_id} commits {name}")
        self.parent = standing.key
        self.uploading.discard((key, step))
        self.emit(on.Committed(key, step, standing.key, "digest", 1, 1.0))
