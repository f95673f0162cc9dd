"""A stand-in for reprieve-ctl: it writes down how it was called."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    state = Path(os.environ["REPRIEVE_STATE_DIR"])
    facts = {"arguments": sys.argv[1:], "socket": os.environ["REPRIEVE_SOCKET"]}
    (state / "ctl.json").write_text(json.dumps(facts))
    if "--hang" in sys.argv:
        time.sleep(600)
    sys.stdout.write("x" * 30_000 if "--chatter" in sys.argv else "done")
    sys.exit(4 if "--fail" in sys.argv else 0)


if __name__ == "__main__":
    main()
