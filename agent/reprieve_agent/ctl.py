"""``python -m reprieve_agent.ctl``: ``bin/reprieve-ctl`` where it isn't installed by itself."""

from __future__ import annotations

import runpy
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "reprieve-ctl"

if __name__ == "__main__":
    runpy.run_path(str(PROGRAM), run_name="__main__")
