"""
Accelerate: save on request with ``save_state``, on every process at the same step.

::

    job = reprieve_job.connect(every=600, framework="accelerate")   # before the slow imports
    accelerator = Accelerator()
    from reprieve_job.accelerate import Trigger

    trigger = Trigger(job, accelerator)
    ...                                        # prepare()
    if job.resume_dir is not None:
        accelerator.load_state(trigger.resume_from)
    for step in ...:
        ...
        trigger.after(step)                    # saves and leaves if that is the request
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reprieve_job.contract import REQUEUE
from reprieve_job.torch import Ranks

if TYPE_CHECKING:
    from accelerate import Accelerator

    from reprieve_job.job import Job


class Trigger:
    """
    Accelerate's trigger, pulled by the host.

    :raises ContractError: the checkpoint was saved by another number of processes; see ``Ranks``.
    """

    def __init__(self, job: Job, accelerator: Accelerator, *, reshardable: bool = False) -> None:
        """Serve *job*."""
        self._job = job
        self._accelerator = accelerator
        self._ranks = Ranks(job, reshardable=reshardable)

    @property
    def resume_from(self) -> str | None:
        """What ``Accelerator.load_state`` takes; None for a fresh start."""
        return None if self._job.resume_dir is None else os.fspath(self._job.resume_dir)

    def after(self, step: int) -> bool:
        """
        Say that optimizer step *step* is complete, save if any process has seen a request.

        Each process calls it. Returns whether it has saved.

        :raises SystemExit: with ``REQUEUE``, on every process, once the state is saved.
        """
        self._job.step(step)
        if self._job.should_save():
            self._accelerator.set_trigger()
        if not self._accelerator.check_trigger():
            return False
        with self._ranks.checkpoint(step) as folder:
            self._accelerator.save_state(os.fspath(folder))
        if self._ranks.should_exit():
            raise SystemExit(REQUEUE)
        return True
