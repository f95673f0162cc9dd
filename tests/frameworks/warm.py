"""
Starts Python scripts in processes that have the frameworks imported already.

Importing torch takes seconds and transformers ten more, in every process of every test. This one
imports them once and forks for each order, which is a line of JSON on its standard input:
``{"argv", "env", "cwd", "folder"}``. A fork has imported modules and nothing else: no tensor, no
generator, no thread. ``pid`` and, at the end, ``status`` appear in the order's folder.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"{threads} threads after the imports: a fork would lose all but one")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork() == 0:
            return watch(order)
    return None


def watch(order: dict[str, Any]) -> None:
    """Fork once more: the job, and whoever notes how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder = Path(order["folder"])
    pid = os.fork()
    if pid == 0:
        return run(order, folder)
    note(folder / "pid", pid)
    _, status = os.waitpid(pid, 0)
    note(folder / "status", os.waitstatus_to_exitcode(status))
    os._exit(0)


def run(order: dict[str, Any], folder: Path) -> None:
    """Become the job."""
    os.setsid()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    names = (Path("/dev/null"), folder / "stdout", folder / "stderr")
    for descriptor, name in enumerate(names):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(name, flags), descriptor)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    runpy.run_path(sys.argv[0], run_name="__main__")


def note(path: Path, number: int) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(str(number), encoding="utf-8")
    draft.rename(path)


if __name__ == "__main__":
    main()
