"""
Several ranks as one: they save the same step and leave together, or none does.

Each rank sees a request when it happens to look, so one may be a step ahead of another. The ranks
therefore agree by a collective at the step boundary; whoever has seen the request decides for
all. Without ``torch.distributed`` everything here works for the one process there is.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from reprieve_job.checkpoints import CheckpointError
from reprieve_job.contract import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reprieve_job.job import Job


def agree(flag: bool) -> bool:  # noqa: FBT001 - one word in, one word out
    """Tell every rank alike whether any of them says so. A collective: each rank calls it."""
    if not _together():
        return flag
    device = torch.cuda.current_device() if distributed.get_backend() == "nccl" else "cpu"
    said = torch.tensor(int(flag), dtype=torch.int32, device=device)
    distributed.all_reduce(said, op=distributed.ReduceOp.MAX)
    return bool(said.item())


class Ranks:
    """
    The ranks of one job on one host. Every method but the constructor is a collective.

    :param reshardable: the checkpoint can be loaded by another number of ranks (DCP, a full state
        that each rank loads). Otherwise such a resume is refused: it would go on with parts of
        the state, or with random numbers that belong to nobody.
    :raises ContractError: the checkpoint was saved by another number of ranks.
    """

    def __init__(self, job: Job, *, reshardable: bool = False) -> None:
        """Speak for the ranks of *job*."""
        self.job = job
        saved_by, ranks = job.resume_world_size, distributed.get_world_size() if _together() else 1
        if not reshardable and saved_by not in (None, ranks):
            raise ContractError(
                f"the checkpoint of step {job.resume_step} was saved by {saved_by} rank(s) and is"
                f" to be resumed by {ranks}: start {saved_by}, or pass reshardable=True if it"
                " can be loaded by any number"
            )

    def should_save(self, step: int) -> bool:
        """Say that *step* is complete; tell every rank alike whether to save now."""
        self.job.step(step)
        return agree(self.job.should_save())

    def should_exit(self) -> bool:
        """Tell every rank alike whether to leave with ``REQUEUE`` now."""
        return agree(self.job.should_exit())

    @contextlib.contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """
        Give every rank the same folder to write files of its own names to.

        It becomes the checkpoint of *step* when every rank has left the block without an error.

        :raises CheckpointError: on every rank, when any of them could not save.
        """
        saving = self.job.checkpoint(step) if self.job.rank == 0 else contextlib.nullcontext()
        with _on_every_rank(step), contextlib.ExitStack() as stack:  # the manifest is written
            with _on_every_rank(step):  # rank 0 could begin
                folder = stack.enter_context(saving)
            folder = _from_rank_0(folder)
            with _on_every_rank(step):  # each rank's part is there
                yield folder
        if self.job.rank != 0:
            self.job.answered()


def random_state() -> dict[str, Any]:
    """Return every random state of this process, in a form that ``torch.save`` keeps safely."""
    state = {
        "python": random.getstate(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (kind, keys.tolist(), *rest)
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Go on drawing where ``random_state`` was called."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])


def _together() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


@contextlib.contextmanager
def _on_every_rank(step: int) -> Iterator[None]:
    """Raise on every rank when the block raised on any."""
    try:
        yield
    except BaseException:
        agree(flag=True)
        raise
    if agree(flag=False):
        raise CheckpointError(f"checkpoint of step {step} was not saved: another rank failed")


def _from_rank_0(folder: Path | None) -> Path:
    box = [folder]
    if _together():
        distributed.broadcast_object_list(box, src=0)
    assert box[0] is not None  # noqa: S101 - rank 0 has one, or it would have raised
    return box[0]
