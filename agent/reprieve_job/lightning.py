"""
Lightning: save on request in the middle of an epoch, and go on as if nothing had happened.

::

    job = reprieve_job.connect(every=600, framework="lightning")   # before the slow imports
    from reprieve_job.lightning import ReprieveCallback, ResumableLoader

    callback = ReprieveCallback(job)
    trainer = Trainer(..., callbacks=[callback])
    trainer.fit(module, ResumableLoader(dataset, batch_size=8), ckpt_path=callback.resume_from)
    job.done(trainer.global_step)

Lightning itself restores no random state and no place in the data. The callback brings the first,
the loader the second; without them a resumed run is silently another run.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback
from torch.utils.data import DataLoader, Sampler

from reprieve_job.contract import REQUEUE
from reprieve_job.torch import Ranks, random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightning.pytorch import LightningModule, Trainer

    from reprieve_job.job import Job

_CHECKPOINT = "lightning.ckpt"


class ReprieveCallback(Callback):
    """
    Save after a batch that a request met, and leave with status 75.

    Never after the last batch of an epoch: Lightning comes back from there as another run. The
    save is then that of the next epoch's first batch. At the end of training there is none, and
    ``job.done`` answers.
    """

    def __init__(self, job: Job, *, reshardable: bool = False) -> None:
        """Serve *job*; see ``Ranks`` for *reshardable*."""
        self._job = job
        self._reshardable = reshardable
        self._step = 0

    @property
    def resume_from(self) -> str | None:
        """What ``Trainer.fit(ckpt_path=…)`` takes; None for a fresh start."""
        folder = self._job.resume_dir
        return None if folder is None else os.fspath(folder / _CHECKPOINT)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Learn how many steps there will be."""
        self._job.total_steps = int(trainer.estimated_stepping_batches)
        self._ranks = Ranks(self._job, reshardable=self._reshardable)
        self._step = trainer.global_step
        self._unrestored = self._job.resume_dir

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Go on drawing where the checkpoint was saved, whatever has been drawn since the start."""
        if self._unrestored is not None:
            state = torch.load(self._random_in(self._unrestored), weights_only=True)
            set_random_state(state)
            self._unrestored = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save and leave if any rank has seen a request."""
        stepped, self._step = trainer.global_step != self._step, trainer.global_step
        if not stepped or batch_idx + 1 == trainer.num_training_batches:
            return  # half-way through accumulated gradients, which no checkpoint holds
        if not self._ranks.should_save(self._step):
            return
        with self._ranks.checkpoint(self._step) as folder:
            trainer.save_checkpoint(folder / _CHECKPOINT)
            torch.save(random_state(), self._random_in(folder))
        if self._ranks.should_exit():
            raise SystemExit(REQUEUE)

    def _random_in(self, folder: Path) -> Path:
        return folder / f"random-{self._job.rank}.pt"


class ResumableLoader(DataLoader):
    """
    A shuffling loader whose order only *seed* and the epoch decide, and whose place can be saved.

    For one process; takes every option of ``DataLoader`` but those that are about order.
    """

    def __init__(self, dataset: Any, *, batch_size: int, seed: int = 0, **options: Any) -> None:
        """Begin with epoch 0."""
        self._order = _Order(len(dataset), batch_size, seed)
        # With a generator of its own, making an iterator draws nothing from the global one.
        own = torch.Generator().manual_seed(seed)
        super().__init__(dataset, batch_sampler=self._order, generator=own, **options)

    def __iter__(self) -> Iterator[Any]:
        """Give the rest of this epoch, or the next one."""
        for batch in super().__iter__():
            # Before the batch is handed out: whoever saves during its step saves the next place.
            self._order.taken += 1
            if self._order.taken == len(self._order):
                self._order.epoch, self._order.taken = self._order.epoch + 1, 0
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the place."""
        return {"epoch": self._order.epoch, "taken": self._order.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a place."""
        self._order.epoch, self._order.taken = state["epoch"], state["taken"]


class _Order(Sampler):
    """The batches of one epoch that are not taken yet."""

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        self._size, self._batch_size, self._seed = size, batch_size, seed
        self.epoch = self.taken = 0

    def __len__(self) -> int:
        return math.ceil(self._size / self._batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        shuffling = torch.Generator().manual_seed(self._seed + self.epoch)
        order = torch.randperm(self._size, generator=shuffling).tolist()
        for start in range(self.taken * self._batch_size, self._size, self._batch_size):
            yield order[start : start + self._batch_size]
