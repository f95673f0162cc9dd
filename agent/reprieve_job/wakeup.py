"""
The wake-up signal: it only says «look now».

The request itself is a file; a lost signal costs a quarter of a second, not a checkpoint.
"""

from __future__ import annotations

import atexit
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


class Wakeup:
    """A flag that the wake-up signal sets."""

    def __init__(self) -> None:
        """Start without a wake-up."""
        self.woken = False

    def listen(self) -> bool:
        """
        Let SIGUSR1 set the flag; return False outside the main thread, where Python can't.

        Before the interpreter dismantles itself the signal is ignored again: at that point Python
        would put the default action back, and a late signal would turn a clean exit 75 into a
        death by signal.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGUSR1, self._wake)
        atexit.register(signal.signal, signal.SIGUSR1, signal.SIG_IGN)
        return True

    def _wake(self, _signum: int, _frame: FrameType | None) -> None:
        # Nothing else here: the handler may run between any two bytecodes of the training step.
        self.woken = True
