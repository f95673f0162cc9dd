"""A rank that needs two seconds to save after SIGTERM, as frameworks of their own do."""

import os
import signal
import time
from pathlib import Path
from types import FrameType


def save(_signum: int, _frame: FrameType | None) -> None:
    time.sleep(2)
    Path(f"saved-{os.environ['RANK']}").touch()
    raise SystemExit(0)


signal.signal(signal.SIGTERM, save)
Path(f"ready-{os.environ['RANK']}").touch()
while True:
    time.sleep(60)
