"""Room on the disk for one more save, looked after before a job is asked for one."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from reprieve_agent import checkpoint

log = logging.getLogger(__name__)

# A save lies beside the last one until it is whole, and may have grown since.
ROOM_FOR_SAVES = 1.3


def free_bytes(folder: Path) -> int:
    """Return how much an unprivileged user may still write there."""
    return shutil.disk_usage(folder).free


def make(
    checkpoints: Path,
    *,
    committed: int | None,
    last_bytes: int | None,
    free: Callable[[Path], int] = free_bytes,
) -> None:
    """
    Delete superfluous checkpoints if there isn't room for another like the last.

    What is in the bucket can go, but for the newest; what isn't stays, however full the disk.
    """
    if last_bytes is None or committed is None or free(checkpoints) >= last_bytes * ROOM_FOR_SAVES:
        return
    checkpoint.prune(checkpoints, committed, kept=1)
    left = free(checkpoints)
    if left < last_bytes * ROOM_FOR_SAVES:
        log.warning("disk is short", extra={"free_bytes": left, "last_save_bytes": last_bytes})
