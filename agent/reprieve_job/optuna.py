"""
Optuna: a sweep that goes on where it stopped, with no trial lost, doubled or running for ever.

::

    job = reprieve_job.connect(framework="optuna")
    sweep = Sweep(job, n_trials=20)
    study = optuna.create_study(storage=sweep.storage, study_name="s", load_if_exists=True)
    sweep.optimize(study, objective)       # objective calls sweep.poll() in its inner loop
    job.done(len(study.trials))

The study lives in a journal file that travels in the checkpoints, one after each trial. A trial
is the unit that is run twice: an interrupted one is marked failed, and its parameters are queued
again. With a storage of your own that survives hosts (a database), call
``requeue_running(study)`` before ``optimize`` and give one worker one study.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from reprieve_job.contract import REQUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

    from reprieve_job.job import Job

_JOURNAL = "study.journal"
_AGAIN = "runs_again"  # user attribute: the number of the interrupted trial


class InterruptedTrialError(Exception):
    """The host goes away: this trial ends here and is run again from its start elsewhere."""


class Sweep:
    """One study, in which one trial runs at a time."""

    def __init__(self, job: Job, *, n_trials: int) -> None:
        """Go on with the study of the checkpoint, if there is one."""
        self._job = job
        self._n_trials = n_trials
        self._ended = job.resume_step or 0
        self._interrupted = False
        self._journal = Path(tempfile.mkdtemp(prefix="reprieve-study-")) / _JOURNAL
        if job.resume_dir is not None:
            shutil.copyfile(job.resume_dir / _JOURNAL, self._journal)
        self.storage = JournalStorage(JournalFileBackend(str(self._journal)))

    def poll(self) -> None:
        """
        Look for a request between two steps of a trial.

        :raises InterruptedTrialError: it is to leave; let it pass through the objective.
        """
        request = self._job.step(self._ended)
        if request is not None and request.must_exit:
            self._interrupted = True
            raise InterruptedTrialError(request.reason)

    def optimize(self, study: Study, objective: Callable[[Trial], float]) -> None:
        """
        Run trials until ``n_trials`` are complete or pruned; save the study after each.

        :raises SystemExit: with ``REQUEUE``, once the study is saved and the host goes away.
        """
        requeue_running(study)
        if study.trials:
            # A sampler made anew with a fixed seed would propose the same parameters again.
            study.sampler.reseed_rng()
        while _count(study, TrialState.COMPLETE, TrialState.PRUNED) < self._n_trials:
            study.optimize(objective, n_trials=1, catch=(InterruptedTrialError,))
            if self._interrupted:
                self._interrupted = False
                last = max(study.get_trials(deepcopy=False), key=_end)
                study.enqueue_trial(last.params, user_attrs={_AGAIN: last.number})
            # Each trial is a step, a failed one too: an older checkpoint must not stand for it.
            self._ended = _count(study, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
            self._job.step(self._ended)
            with self._job.checkpoint(self._ended) as folder:
                shutil.copyfile(self._journal, folder / _JOURNAL)
            if self._job.should_exit():
                raise SystemExit(REQUEUE)


def requeue_running(study: Study) -> None:
    """Fail the trials that a lost process left running, and queue their parameters again."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params, user_attrs={_AGAIN: trial.number})


def _count(study: Study, *states: TrialState) -> int:
    return len(study.get_trials(deepcopy=False, states=states))


def _end(trial: FrozenTrial) -> float:
    return trial.datetime_complete.timestamp() if trial.datetime_complete else 0.0
