"""
A job that keeps the contract by hand: ``named.py FOLDER…`` saves under the names that it is given.

Beside them it leaves folders that are whole but for their names, of a step beyond all others. Told
to leave it says what is still there; started again it says what it was given, and is done.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

ODD = ("handpicked", "step-1000-tmp")
BEYOND = 5_000_000


def save(folder: Path, step: int) -> None:
    state = f"state of {folder.name}".encode()
    part = folder.with_name(f".{folder.name}.part")
    part.mkdir()
    (part / "state").write_bytes(state)
    digest = hashlib.sha256(state).hexdigest()
    manifest = {
        "v": 1,
        "step": step,
        "attempt": int(os.environ["REPRIEVE_ATTEMPT"]),
        "world_size": 1,
        "framework": "by hand",
        "files": [{"path": "state", "size": len(state), "sha256": digest}],
    }
    (part / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    part.rename(folder)


def main() -> None:
    checkpoints = Path(os.environ["REPRIEVE_CKPT_DIR"])
    if os.environ["REPRIEVE_RESUME_STEP"]:
        state = Path(os.environ["REPRIEVE_RESUME_DIR"], "state").read_text(encoding="utf-8")
        sys.stdout.write(f"resumed from the {state}\n")
        return
    for name in ODD:
        save(checkpoints / name, BEYOND)
    for name in sys.argv[1:]:
        save(checkpoints / name, int(name.removeprefix("step-")))
    request = Path(os.environ["REPRIEVE_RUN_DIR"], "request.json")
    while not request.exists():
        time.sleep(0.05)
    there = sorted(path.name for path in checkpoints.iterdir())
    sys.stdout.write(f"there are {' '.join(there)}\n")
    sys.exit(75)


if __name__ == "__main__":
    main()
