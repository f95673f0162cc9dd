"""Waiting for what real processes do, and the token by which theirs are told apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

PATIENCE_SECONDS = 20.0


def own_token() -> str:
    """Return a token that no other test has: by it a job's processes are found in /proc."""
    return uuid4().hex


def wait_until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition; fail when it doesn't come true in time."""
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)
