"""
The small process between the agent and a job: it outlives a crash of the agent.

It starts the job with SIGUSR1 ignored (the wake-up must not kill a job that has no handler
yet, and what is ignored stays so across exec), becomes the parent of whatever the job
orphans, passes SIGTERM on to the main process only, and writes down how that one ended.
Then it ends all that the job left running. Run as
`python -I -S keeper.py ORDER`, where ORDER is a JSON file; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
START_TIME_FIELD = 19  # of /proc/<pid>/stat, counted after the command's closing parenthesis
NOT_EXECUTABLE, NOT_FOUND = 126, 127
POLL_SECONDS = 0.005
READ_BYTES = 65_536
HANDOVER_SECONDS = 60.0  # a crashed agent is back sooner


def main(order_path: str) -> int:
    """Start the job, wait for it, leave nothing behind."""
    order = json.loads(Path(order_path).read_text(encoding="utf-8"))
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    told_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _frame: told_to_stop.append(signum))
    me = {"keeper": os.getpid(), "keeper_ticks": ticks(os.getpid())}
    write(order["process_file"], me)
    if "secrets_pipe" in order:
        secrets = receive(order["secrets_pipe"], told_to_stop)
        if secrets is None:
            detail = "its secrets were not handed over"
            end = {"exit_code": None, "detail": detail, "stopped": bool(told_to_stop)}
            write(order["exit_file"], end)
            return 0
        order["env"] = secrets | order["env"]
    try:
        job = start(order)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        detail = f"{order['argv'][0]}: {error.strerror}"
        write(order["exit_file"], {"exit_code": code, "detail": detail, "stopped": False})
        return 0
    write(order["process_file"], me | {"pid": job.pid, "ticks": ticks(job.pid)})
    signal.signal(signal.SIGTERM, lambda _signum, _frame: pass_on(job.pid, told_to_stop))
    if told_to_stop:
        pass_on(job.pid, told_to_stop)
    exit_code = wait_for(job.pid)
    job.returncode = exit_code  # reaped above: Popen must not look for it
    write(order["exit_file"], {"exit_code": exit_code, "stopped": bool(told_to_stop)})
    end_children()
    return 0


def receive(pipe_path: str, told_to_stop: list[int]) -> dict[str, str] | None:
    """Return the agent's last whole line, or None if none comes; an agent may die over it."""
    pipe = os.open(pipe_path, os.O_RDONLY | os.O_NONBLOCK)
    ends = time.monotonic() + HANDOVER_SECONDS
    received = b""
    while not told_to_stop and time.monotonic() < ends:
        with contextlib.suppress(BlockingIOError):
            received += os.read(pipe, READ_BYTES)
        if received.endswith(b"\n") and received.strip():
            os.close(pipe)
            secrets: dict[str, str] = json.loads(received.strip().rpartition(b"\n")[2])
            return secrets
        time.sleep(POLL_SECONDS)
    return None


def start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the job in a session of its own, its output at the end of the log."""
    as_user = {name: order[name] for name in ("user", "group", "extra_groups") if name in order}
    with Path(order["log_file"]).open("ab") as log_file:
        return subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **as_user,
        )


def pass_on(pid: int, told_to_stop: list[int]) -> None:
    """Tell the main process to stop, and remember that somebody asked."""
    told_to_stop.append(signal.SIGTERM)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def wait_for(main_pid: int) -> int:
    """Reap until the main process ends; return its exit code, negative for a signal."""
    while True:
        pid, status = os.wait()
        if pid == main_pid:
            return os.waitstatus_to_exitcode(status)


def end_children() -> None:
    """Kill what the job orphaned; each death hands us its own children in turn."""
    while True:
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(POLL_SECONDS)


def children() -> list[int]:
    """Return our direct children."""
    me = os.getpid()
    text = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii")
    return [int(pid) for pid in text.split()]


def ticks(pid: int) -> int | None:
    """Return when *pid* started."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[START_TIME_FIELD])


def write(path: str, content: dict[str, Any]) -> None:
    """Replace a file in one rename."""
    draft = Path(f"{path}.tmp")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
