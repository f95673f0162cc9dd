"""The handle a training loop holds: where to resume, when to save, when to leave."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from reprieve_job import contract
from reprieve_job.checkpoints import CheckpointError, CheckpointStore, read_manifest
from reprieve_job.contract import ContractError, Environment, Request
from reprieve_job.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_SECONDS = 0.25
_PROGRESS_SECONDS = 1.0

_AckState = Literal["saving", "saved", "declined", "failed"]

_log = logging.getLogger("reprieve_job")


def connect(
    total_steps: int | None = None,
    *,
    every: float | None = None,
    keep: int | None = 2,
    framework: str = "python",
    checkpoint_dir: str | os.PathLike[str] = "checkpoints",
) -> Job:
    """
    Tell the host that this process can save on request, and return the job's handle.

    Call it once, from the main thread, before the slow imports: from then on a request is heard.

    :param total_steps: the step at which training ends; shown as progress.
    :param every: seconds between periodic saves (see ``Job.should_save``); None saves on request.
    :param keep: whole checkpoints kept on the local disk; None keeps all.
    :param framework: noted in each manifest, for whoever reads the checkpoint.
    :param checkpoint_dir: where checkpoints go **without** Reprieve; a host names its own folder.
    """
    if keep is not None and keep < 1:
        raise ValueError(f"keep must be at least 1, or None for all, not {keep}")
    environment = contract.read_environment(os.environ, standalone_dir=Path(checkpoint_dir))
    store = CheckpointStore(environment.checkpoint_dir, keep=keep)
    job = Job(environment, store, total_steps=total_steps, every=every, framework=framework)
    job.announce()
    return job


class Job:
    """One process of a job; used from one thread, the one that trains."""

    def __init__(
        self,
        environment: Environment,
        store: CheckpointStore,
        *,
        total_steps: int | None,
        every: float | None,
        framework: str,
    ) -> None:
        """Use ``reprieve_job.connect`` instead."""
        self._environment = environment
        self._store = store
        self.total_steps = total_steps
        self._every = math.inf if every is None else every
        self._framework = framework
        self._wakeup = Wakeup()
        self._step: int | None = None
        self._request: Request | None = None
        self._answered: str | None = None  # id of the last request that got its answer
        self._last_save = monotonic()
        self._next_progress = -math.inf
        # Without a host there is nothing to poll, ever.
        self._next_poll = -math.inf if environment.run_dir else math.inf
        self.resume_dir, self.resume_step = self._where_to_resume()

    @property
    def resume_world_size(self) -> int | None:
        """How many processes wrote the checkpoint to resume from; None when nothing tells it."""
        if self.resume_dir is None:
            return None
        world_size = read_manifest(self.resume_dir).get("world_size")
        return world_size if isinstance(world_size, int) else None

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; 0 without a host."""
        return self._environment.attempt

    @property
    def rank(self) -> int:
        """The rank of this process; rank 0 writes progress and checkpoints."""
        return self._environment.rank

    def step(self, n: int) -> Request | None:
        """
        Say that step *n* is complete; return the request that stands, if any.

        Call it at every step boundary, and with the same *n* inside long evaluation or warm-up
        loops. Idle calls read a clock and nothing else; the run directory is looked at every
        0.25 s, or at once after the wake-up signal.
        """
        self._step = n
        if self._wakeup.woken or monotonic() >= self._next_poll:
            self._poll()
        return self._request

    def should_save(self) -> bool:
        """Tell whether to save now: a request waits for it, or ``every`` seconds have passed."""
        return self._waiting() is not None or monotonic() - self._last_save >= self._every

    def should_exit(self) -> bool:
        """
        Tell whether to leave with ``REQUEUE`` now: asked to, and the answer is given.

        Never at ``total_steps``: a job that is complete calls ``done`` and needs no other host.
        """
        return self._told_to_leave() and (self._step is None or self._step != self.total_steps)

    def seconds_left(self) -> float:
        """Return the seconds until the host goes away; ``inf`` when nobody said it does."""
        return math.inf if self._request is None else self._request.seconds_left()

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """
        Give a folder for the files of the checkpoint of *step*, and make it whole at the end.

        A request that stands, or arrives meanwhile, is answered by this save. Saving a step that
        is already saved answers at once and throws the files away. Older checkpoints beyond
        ``keep`` are removed afterwards.

        :raises CheckpointError: the disk is full or fails; the host is told, earlier checkpoints
            stay. Any other exception of the block passes through after the host is told.
        """
        if self.rank != 0:
            raise CheckpointError(
                f"rank {self.rank} must not write the checkpoint of step {step}: rank 0 does"
            )
        self._look()
        if self._store.is_whole(step):
            self._last_save = monotonic()
            self._answer_saved(step)
            with self._store.discarding(step) as folder:
                yield folder
            return
        self._say_saving(step)
        try:
            saving = self._store.saving(step, facts=self._facts(), lasting=self._host_stays)
            with saving as folder:
                yield folder
        except BaseException as error:
            self._answer_failed(step, error)
            raise
        finally:
            self._last_save = monotonic()  # a failed periodic save waits for its next turn too
        self._look()
        self._answer_saved(step)
        self._store.rotate()

    def answered(self) -> None:
        """
        Take the request that stands for answered: rank 0 saved for all ranks.

        For ranks above 0, after a save that all of them agreed on. Nothing is written.
        """
        if self.rank == 0:
            return
        self._look()
        self._last_save = monotonic()
        if self._request is not None:
            self._settle(self._request)

    def decline(self, reason: str) -> None:
        """Answer the request that stands with no: the host falls back to an older checkpoint."""
        request = self._waiting()
        if request is not None:
            self._answer(request, "declined", error=reason)

    def done(self, step: int) -> None:
        """
        Say that the job is complete at *step*; save a last checkpoint before this.

        While a request stands, this is the only proof of completion that the host accepts.
        """
        if self.rank != 0 or self._environment.run_dir is None:
            return
        self._step = step
        self._report_progress()
        contract.write_json(self._environment.run_dir / contract.DONE_FILE, {"step": step})

    def announce(self) -> None:
        """Register this process as the one to wake up (part of ``connect``)."""
        run_dir = self._environment.run_dir
        if run_dir is None:
            return
        listening = self._wakeup.listen()
        ready = {
            "pid": os.getpid(),
            "start_ticks": contract.start_ticks(),
            "rank": self.rank,
            "hook": "signal" if listening else "poll",
        }
        try:
            contract.write_json(run_dir / f"ready.{self.rank}.json", ready)
        except OSError as error:
            raise ContractError(
                f"REPRIEVE_RUN_DIR {run_dir} can't be written: {error.strerror};"
                " it must exist and belong to the job's user"
            ) from error

    def _where_to_resume(self) -> tuple[Path | None, int | None]:
        if self._environment.run_dir is not None:
            return self._environment.resume_dir, self._environment.resume_step
        step = self._store.newest_whole()
        return (None, None) if step is None else (self._store.folder(step), step)

    def _facts(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "world_size": self._environment.world_size,
            "framework": self._framework,
        }

    def _waiting(self) -> Request | None:
        """Return the request that has no answer yet."""
        request = self._request
        return None if request is None or request.id == self._answered else request

    def _host_stays(self) -> bool:
        """Tell whether the host will be there after this save; asked by other threads, too."""
        request = self._request
        return request is None or not request.must_exit

    def _told_to_leave(self) -> bool:
        request = self._request
        return request is not None and request.must_exit and request.id == self._answered

    def _look(self) -> None:
        if self._environment.run_dir is not None:
            self._poll()

    def _poll(self) -> None:
        now = monotonic()
        # Cleared before the look: a request written after it wakes us again.
        self._wakeup.woken = False
        self._next_poll = now + _POLL_SECONDS
        if not self._told_to_leave():  # the last word of a host that goes away
            self._request = self._unanswered_request()
        if now >= self._next_progress and self.rank == 0:
            self._next_progress = now + _PROGRESS_SECONDS
            self._report_progress()

    def _unanswered_request(self) -> Request | None:
        run_dir = self._environment.run_dir
        request = None if run_dir is None else contract.read_request(run_dir)
        if request is None or request.id == self._answered:
            return None
        if request.version != contract.VERSION or request.kind not in contract.KINDS:
            error = f"request of version {request.version}, kind {request.kind!r} is not known"
            self._answer(request, "declined", error=error)
            return None
        return request

    def _say_saving(self, step: int) -> None:
        request = self._waiting()
        if request is not None:
            self._write_ack(request, "saving", step=step)

    def _answer_saved(self, step: int) -> None:
        # An exit request may be answered again by a newer step, never taken back to «saving».
        if self._request is not None:
            self._answer(self._request, "saved", step=step)

    def _answer_failed(self, step: int, error: BaseException) -> None:
        request = self._waiting()
        if request is not None:
            self._answer(request, "failed", step=step, error=str(error) or type(error).__name__)

    def _answer(
        self, request: Request, state: _AckState, *, step: int | None = None, error: str = ""
    ) -> None:
        self._write_ack(request, state, step=step, error=error)
        self._settle(request)

    def _settle(self, request: Request) -> None:
        self._answered = request.id
        if not request.must_exit:
            self._request = None

    def _write_ack(
        self, request: Request, state: _AckState, *, step: int | None, error: str = ""
    ) -> None:
        folder = self._store.folder(step) if state == "saved" and step is not None else None
        ack = {
            "request_id": request.id,
            "state": state,
            "step": step,
            "path": None if folder is None else str(folder.absolute()),
            "error": error or None,
        }
        self._tell_host(f"ack.{self.rank}.json", ack)

    def _report_progress(self) -> None:
        if self._step is not None:
            facts = {"step": self._step, "total": self.total_steps, "at_unix": time.time()}
            self._tell_host(contract.PROGRESS_FILE, facts)

    def _tell_host(self, name: str, content: dict[str, Any]) -> None:
        """Write a file for the host; training goes on when that fails."""
        run_dir = self._environment.run_dir
        if run_dir is None:
            return
        try:
            contract.write_json(run_dir / name, content)
        except OSError as error:
            _log.warning("host not told: %s: %s", run_dir / name, error.strerror)
