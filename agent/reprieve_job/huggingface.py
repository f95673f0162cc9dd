"""
Hugging Face Trainer: save on request, and leave before anything else runs.

::

    job = reprieve_job.connect(every=600, framework="huggingface")   # before the slow imports
    from reprieve_job.huggingface import ReprieveCallback

    callback = ReprieveCallback(job)
    trainer = Trainer(..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_from)
    trainer.save_model("final")
    job.done(trainer.state.global_step)

Every checkpoint that the Trainer writes, asked for or periodic, becomes one of Reprieve's: its
files are linked, not copied, so the Trainer may rotate its own folder away at any time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from reprieve_job.contract import REQUEUE
from reprieve_job.links import link_tree
from reprieve_job.torch import Ranks

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from reprieve_job.job import Job


class ReprieveCallback(TrainerCallback):
    """
    Ask the Trainer for the checkpoints that the host asks for.

    The Trainer's own ways out go on to evaluation and ``save_model`` as if training were complete,
    with status 0. This callback raises ``SystemExit(75)`` right after the save instead, on every
    rank. A request that meets the last step doesn't stop the script: it is about to be done.
    """

    def __init__(self, job: Job, *, reshardable: bool = False) -> None:
        """Serve *job*; see ``Ranks`` for *reshardable*."""
        self._job = job
        self._reshardable = reshardable

    @property
    def resume_from(self) -> str | None:
        """What ``Trainer.train(resume_from_checkpoint=…)`` takes; None for a fresh start."""
        return None if self._job.resume_dir is None else os.fspath(self._job.resume_dir)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """
        Learn how many steps there will be.

        :raises ValueError: the Trainer would save models only.
        """
        if args.save_only_model:
            raise ValueError(
                "save_only_model=True leaves out the optimizer and the random state: training"
                " can't go on from such a checkpoint"
            )
        self._job.total_steps = state.max_steps
        self._ranks = Ranks(self._job, reshardable=self._reshardable)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Save after this step if any rank has seen a request."""
        # After the optimizer's step: before it the random state is already that of the next one.
        if self._ranks.should_save(state.global_step):
            control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Take what the Trainer has just written, and leave if that was the request."""
        source = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        with self._ranks.checkpoint(state.global_step) as folder:
            if self._job.rank == 0:
                link_tree(source, folder)
        if self._ranks.should_exit():
            raise SystemExit(REQUEUE)
