"""Contract version 1 with the job: its environment, and the files in its run directory."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from reprieve.domain.lease import LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve_agent import checkpoint, processes
from reprieve_agent import events as on
from reprieve_agent.clock import Now
from reprieve_agent.events import Event
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Places
from reprieve_agent.state import AckState, Request

log = logging.getLogger(__name__)

VERSION = 1
REQUEST, PROGRESS, DONE = "request.json", "progress.json", "done.json"
READY_NAME = re.compile(r"ready\.(\d+)\.json", re.ASCII)
ACK_NAME = re.compile(r"ack\.(\d+)\.json", re.ASCII)
SMALL_FILE_BYTES = 64 * 1024
HELPER = "reprieve_job"


def plain_environment(spec: JobSpec, *, path: str, home: str, user: str) -> dict[str, str]:
    """Return what a setup command sees: nothing of the agent's own environment."""
    system = {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    account = {"USER": user, "LOGNAME": user} if user else {}
    return system | account | spec.env


def environment(
    key: LeaseKey, places: Places, *, spec: JobSpec, base_step: int | None, grace: timedelta
) -> dict[str, str]:
    """Return what the contract promises a job beyond that."""
    promised = {
        "REPRIEVE_CONTRACT": str(VERSION),
        "REPRIEVE_JOB_ID": key.job,
        "REPRIEVE_ATTEMPT": str(key.attempt),
        "REPRIEVE_TOKEN": key.token,
        "REPRIEVE_RUN_DIR": str(places.contract),
        "REPRIEVE_CKPT_DIR": str(places.output if spec.profile else places.checkpoints),
        "REPRIEVE_RESUME_DIR": str(places.resume),
        "REPRIEVE_RESUME_STEP": "" if base_step is None else str(base_step),
        "REPRIEVE_SIGNAL": "USR1",
        "REPRIEVE_GRACE_S": f"{grace.total_seconds():g}",
        "REPRIEVE_NODE_RANK": "0",
        "REPRIEVE_NNODES": "1",
    }
    if spec.helper:
        own = spec.env.get("PYTHONPATH")
        promised["PYTHONPATH"] = f"{own}:{places.python}" if own else str(places.python)
    return promised


def lay_helper(places: Places) -> None:
    """
    Put the helper, and nothing else of ours, where the job's own Python looks for it.

    A copy: the agent's own folder has more packages, which must not hide the job's.
    """
    source = Path(__file__).parents[1] / HELPER
    shutil.rmtree(places.python, ignore_errors=True)
    shutil.copytree(source, places.python / HELPER, ignore=shutil.ignore_patterns("__pycache__"))


def write_request(places: Places, request: Request, now: Now) -> None:
    """
    Ask the job; the same request again only moves its deadlines.

    A job that is to go on has no deadline: nobody said that its host goes away.
    """
    content = {
        "v": VERSION,
        "id": request.id,
        "kind": request.kind.value,
        "reason": request.reason,
        "deadline_unix": None,
        "deadline_boottime_ns": None,
        "save_by_unix": None,
    }
    if request.exits:
        content |= {
            "deadline_unix": now.wall_at(request.deadline).timestamp(),
            "deadline_boottime_ns": int(request.deadline * 1e9),
            "save_by_unix": now.wall_at(request.save_by).timestamp(),
        }
    write_json(places.contract / REQUEST, content)


def wake(places: Places, *, root: int | None, marker: str) -> int:
    """
    Send SIGUSR1 to the processes that registered, and to no other; return how many there were.

    The job names them, so each must be one of its own and the very process that registered.
    """
    woken = 0
    for ready in _matching(places.contract, READY_NAME):
        said = read_json(ready, limit_bytes=SMALL_FILE_BYTES) or {}
        pid, ticks = said.get("pid"), said.get("start_ticks")
        if not (isinstance(pid, int) and isinstance(ticks, int)):
            continue
        if processes.is_of_job(pid, root, marker):
            woken += processes.send(pid, ticks, signal.SIGUSR1)
    return woken


def done_step(places: Places) -> int | None:
    """Return the step at which the job said that it is complete."""
    return _step(read_json(places.contract / DONE, limit_bytes=SMALL_FILE_BYTES) or {})


@dataclass(slots=True)
class Watcher:
    """Reads what the job writes, and says what is new."""

    key: LeaseKey
    places: Places
    emit: Callable[[Event], None]
    calm_period: float
    urgent_period: float
    urgent: bool = False
    _known: dict[str, tuple[int, int]] = field(default_factory=dict)
    _steps: set[int] = field(default_factory=set)
    _ended: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look in a thread of its own."""
        threading.Thread(target=self.run, name="contract", daemon=True).start()

    def hurry(self, *, urgent: bool) -> None:
        """Look often while an answer is awaited."""
        if urgent and not self.urgent:
            self._wake.set()
        self.urgent = urgent

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self._wake.set()

    def run(self) -> None:
        """Look until ended."""
        while not self._ended.is_set():
            try:
                self.look()
            except Exception:  # whatever a job writes there, the next look must come
                log.exception("run directory can't be read")
            self._wake.wait(self.urgent_period if self.urgent else self.calm_period)
            self._wake.clear()

    def look(self) -> None:
        """Look once."""
        for name in self._changed():
            said = read_json(self.places.contract / name, limit_bytes=SMALL_FILE_BYTES)
            event = self._event(name, said) if said else None
            if event:
                self.emit(event)
        for step in checkpoint.whole_steps(self.places.checkpoints, known=self._steps):
            self._steps.add(step)
            self.emit(on.CheckpointFound(self.key, step))

    def _changed(self) -> list[str]:
        changed = []
        with suppress(FileNotFoundError), os.scandir(self.places.contract) as entries:
            for entry in entries:
                if entry.name == PROGRESS or _is_word(entry.name):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        mark = (status.st_mtime_ns, status.st_ino)
                        if self._known.get(entry.name) != mark:
                            self._known[entry.name] = mark
                            changed.append(entry.name)
        # Progress first: what an answer says is then never older than the step known.
        return sorted(changed, key=lambda name: name != PROGRESS)

    def _event(self, name: str, said: dict[str, Any]) -> Event | None:
        if name == PROGRESS:
            step = _step(said)
            return None if step is None else on.JobProgress(self.key, step)
        if READY_NAME.fullmatch(name):
            return on.JobReady(self.key)
        try:
            state = AckState(said.get("state", ""))
        except ValueError:
            return None
        if state is AckState.SAVED and _rank(ACK_NAME, name) != self._first_rank(name):
            return None
        request_id, error = str(said.get("request_id")), str(said.get("error") or "")
        return on.JobAcked(self.key, request_id, state, _step(said), error[:200])

    def _first_rank(self, ack: str) -> int:
        """
        Return the rank that answers «saved» for all: the lowest that registered.

        One rank writes the manifest, and only when every other's part is there. That a save
        has begun or failed anywhere counts at once: it is one save.
        """
        ready = [path.name for path in _matching(self.places.contract, READY_NAME)]
        return min((_rank(READY_NAME, name) for name in ready), default=_rank(ACK_NAME, ack))


def periods(notice_seconds: float) -> tuple[float, float]:
    """Return how often to look, calmly and while an answer is awaited."""
    return min(0.5, notice_seconds / 60), min(0.05, notice_seconds / 200)


def _is_word(name: str) -> bool:
    return bool(READY_NAME.fullmatch(name) or ACK_NAME.fullmatch(name))


def _rank(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else 0


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))


def _step(said: dict[str, Any]) -> int | None:
    step = said.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None
