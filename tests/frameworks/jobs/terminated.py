"""A rank that saves for as many seconds as its argument says, after SIGTERM."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType


def save(_signum: int, _frame: FrameType | None) -> None:
    time.sleep(float(sys.argv[1]))
    Path(f"saved-{os.environ['RANK']}").touch()
    raise SystemExit(0)


signal.signal(signal.SIGTERM, save)
Path(f"ready-{os.environ['RANK']}").touch()
while True:
    time.sleep(60)
