"""
The agent's end of the pipe by which a keeper gets what must not lie in a file.

A named pipe works under systemd too, and its bytes exist in memory only. A keeper takes the
last whole line, so what a dying agent left half written does no harm.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from pathlib import Path

PATIENCE_MS = 5_000


def lay(pipe: Path) -> None:
    """Make the pipe anew; only its owner may open it."""
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)


def give(pipe: Path, values: Mapping[str, str]) -> bool:
    """Hand *values* over; False if nobody reads yet, or no longer."""
    message = f"\n{json.dumps(dict(values))}\n".encode()
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _written(descriptor, message)
    finally:
        os.close(descriptor)


def _written(descriptor: int, message: bytes) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    while message:
        if not poll.poll(PATIENCE_MS):
            return False
        try:
            message = message[os.write(descriptor, message) :]
        except BlockingIOError:
            continue
        except OSError:
            return False
    return True
