"""The agent's loop: one queue of events, the machine in the middle, the executor around it."""

from __future__ import annotations

import logging
import queue
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from reprieve.domain.lease import Cause, LeaseKey
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import boot_seconds, now
from reprieve_agent.config import Config
from reprieve_agent.events import Event
from reprieve_agent.executor import Executor
from reprieve_agent.machine import Machine
from reprieve_agent.notify import notify
from reprieve_agent.reports import Reports
from reprieve_agent.state import State, Tenure
from reprieve_agent.statefile import StateFile

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 5.0
FLUSH_SECONDS = 5.0
SHUTDOWN_SECONDS = 30.0
THREAD_SILENCE_SECONDS = 90.0


class Part(Protocol):
    """Something that runs beside the loop."""

    def start(self) -> None:
        """Begin, in a thread of its own."""

    def end(self) -> None:
        """Stop."""


class Beating(Part, Protocol):
    """A part whose thread must never hang; ``last_try`` is on the boot clock."""

    last_try: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs beside the loop: the watchdog also minds those that beat."""

    beating: tuple[Beating, ...]
    others: tuple[Part, ...]
    reports: Reports

    def start(self) -> None:
        """Begin all of them."""
        for part in (self.reports, *self.beating, *self.others):
            part.start()

    def end(self) -> None:
        """Stop all of them."""
        for part in (*self.others, *self.beating, self.reports):
            part.end()


class Inbox:
    """The one queue. It may be written to from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event | threading.Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        """Add an event."""
        self._queue.put(event)

    def put_and_wait(self, event: Event, seconds: float) -> bool:
        """Add an event and wait until it is decided; False if that takes too long."""
        decided = threading.Event()
        self._queue.put(event)
        self._queue.put(decided)
        return decided.wait(seconds)

    def get(self, seconds: float) -> Event:
        """Return the next event, or a ``Tick`` when none came for *seconds*."""
        try:
            while isinstance(event := self._queue.get(timeout=seconds), threading.Event):
                event.set()
        except queue.Empty:
            return on.Tick()
        return event


class Agent:
    """One host's agent."""

    def __init__(
        self, config: Config, boot_id: str, machine: Machine, inbox: Inbox, executor: Executor
    ) -> None:
        self._config = config
        self._boot_id = boot_id
        self._machine = machine
        self._inbox = inbox
        self._executor = executor
        self._file = StateFile(config.state_dir / "job.json", run_dir=config.run_dir)
        self._changed = threading.Condition()
        self._over: Tenure | None = None
        self._leave: do.Leave | None = None
        self._pinged_at = 0.0
        self.state = State(boot_id=boot_id, idle_since=boot_seconds())

    def run(self, parts: Parts) -> str:
        """Work until it is time to leave; return why."""
        self._begin()
        parts.start()
        # A host whose agent never comes so far is powered off by its boot timer.
        (self._config.run_dir / "ready").touch()
        notify("READY=1")
        while self._leave is None:
            self._ping(parts)
            self._apply(*self._machine.step(self.state, self._next(), now()))
        notify("STOPPING=1")
        leave = self._leave
        parts.reports.flush(min(FLUSH_SECONDS, self._config.clock.margin.total_seconds()))
        parts.end()
        log.info("leaving", extra={"reason": leave.reason, "shutdown": leave.shutdown})
        if leave.shutdown and self._config.shutdown_command:
            subprocess.run(self._config.shutdown_command, check=False, timeout=SHUTDOWN_SECONDS)
        return leave.reason

    def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until *holds*, asked after every change of the state."""
        with self._changed:
            return self._changed.wait_for(holds, timeout=seconds)

    def attempt(self, key: LeaseKey) -> tuple[Tenure | None, bool]:
        """Return an attempt as it stands or as it ended, and whether it is over."""
        tenure = self.state.tenure
        if tenure and tenure.key == key:
            return tenure, False
        over = self._over
        return (over if over and over.key == key else None), True

    def _begin(self) -> None:
        saved = self._file.load()
        if saved and saved.boot_id == self._boot_id:
            log.info("going on after a restart", extra={"stage": _stage(saved)})
            self._apply(*self._machine.recover(saved, now()))
            return
        self._apply(*self._machine.start(self.state, now()))
        if saved and saved.tenure:  # of another boot: its job is gone, it can only be given up
            key = saved.tenure.key
            log.info("giving up what an earlier boot held", extra={"lease": str(key)})
            self._executor.carry_out(do.ReleaseStray(key, Cause.REBOOT))
            self._executor.carry_out(do.Wipe(key))

    def _next(self) -> Event:
        wake_at = self._machine.wake_at(self.state)
        wait = LONGEST_WAIT_SECONDS
        if wake_at is not None:
            wait = min(wait, wake_at - boot_seconds())
        return self._inbox.get(wait) if wait > 0 else on.Tick()

    def _apply(self, state: State, actions: tuple[Action, ...]) -> None:
        """Write down what was decided, and only then act on it."""
        before = self.state
        if _durable(before) != _durable(state):
            self._save(state)
        if before.tenure and (state.tenure is None or state.tenure.key != before.tenure.key):
            self._over = before.tenure
        self.state = state
        self._executor.follow(state)
        for action in actions:
            if isinstance(action, do.Leave):
                self._leave = action
            else:
                self._executor.carry_out(action)
        self._executor.attend(state)
        with self._changed:
            self._changed.notify_all()

    def _save(self, state: State) -> None:
        try:
            self._file.save(state)
        except OSError as error:
            # A full disk must not end a job that is about to save: HOLDS still names the lease.
            log.error("state not saved", extra={"error": str(error)})  # noqa: TRY400

    def _ping(self, parts: Parts) -> None:
        """Tell systemd that the loop turns and that no thread that matters hangs."""
        at = boot_seconds()
        if at - self._pinged_at < LONGEST_WAIT_SECONDS / 2:
            return
        self._pinged_at = at
        limit = THREAD_SILENCE_SECONDS + 2 * self._config.clock.renewal.total_seconds()
        if all(at - part.last_try < limit for part in parts.beating):
            notify("WATCHDOG=1")


def _durable(state: State) -> State:
    """Leave out what isn't a transition: the step of a running job changes all the time."""
    if state.tenure is None:
        return state
    return replace(state, tenure=replace(state.tenure, step=None))


def _stage(state: State) -> str | None:
    return state.tenure.stage.value if state.tenure else None
