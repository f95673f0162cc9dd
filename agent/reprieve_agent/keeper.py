"""
The small process between the agent and a job: it outlives a crash of the agent.

It starts the job with SIGUSR1 ignored (the wake-up must not kill a job that has no handler
yet, and what is ignored stays so across exec), becomes the parent of whatever the job
orphans, and writes down how the main process ended. Then it ends all that the job left
running, and exits as the job did. Told to stop, which systemd does when the host shuts
down, it has the agent ask the job to save; only then SIGTERM, to the main process alone.
Run as `python -I -S keeper.py ORDER`, where ORDER is a JSON file; standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import socket
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
SIGNALLED = 128  # what a shell adds to the number of a signal


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
            write_exit(order, end)
            return 1
        order["env"] = secrets | order["env"]
    try:
        job = start(order)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        detail = f"{order['argv'][0]}: {error.strerror}"
        write_exit(order, {"exit_code": code, "detail": detail, "stopped": False})
        return code
    write(order["process_file"], me | {"pid": job.pid, "ticks": ticks(job.pid)})
    agent = order.get("agent")
    signal.signal(signal.SIGTERM, lambda _signum, _frame: stop(job.pid, agent, told_to_stop))
    if told_to_stop:
        terminate(job.pid)
    exit_code = wait_for(job.pid)
    job.returncode = exit_code  # reaped above: Popen must not look for it
    write_exit(order, {"exit_code": exit_code, "stopped": bool(told_to_stop)})
    end_children()
    return exit_code if exit_code >= 0 else SIGNALLED - exit_code


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
    # A container's variables are no business of the program that starts it, which is root.
    inside = order.get("starter_env") is not None
    stdin = exports(order["env"]) if inside else os.open(os.devnull, os.O_RDONLY)
    try:
        with Path(order["log_file"]).open("ab") as log_file:
            return subprocess.Popen(
                order["argv"],
                env=order["starter_env"] if inside else order["env"],
                cwd=order["cwd"],
                stdin=stdin,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **as_user,
            )
    finally:
        os.close(stdin)


def exports(env: dict[str, str]) -> int:
    """Return a file in memory by which a shell comes to have *env*."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
    script = os.memfd_create("environment")
    os.write(script, "".join(lines).encode())
    os.lseek(script, 0, os.SEEK_SET)
    return script


def stop(pid: int, agent: dict[str, Any] | None, told_to_stop: list[int]) -> None:
    """
    Have the job leave.

    Most jobs just die of SIGTERM, so the agent is to ask for a checkpoint first. If it can't,
    if its time is up, or if somebody insists, SIGTERM is what is left.
    """
    told_to_stop.append(signal.SIGTERM)
    if agent and len(told_to_stop) == 1 and tell(agent):
        signal.signal(signal.SIGALRM, lambda _signum, _frame: terminate(pid))
        signal.setitimer(signal.ITIMER_REAL, agent["save_seconds"])
    else:
        terminate(pid)


def tell(agent: dict[str, Any]) -> bool:
    """Tell the agent to hand its job over; False if it doesn't say that it will."""
    path = agent["socket"]
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(agent["answer_seconds"])
            # By way of the open folder: a socket's own path may have 107 bytes only.
            asked.connect(f"/proc/self/fd/{folder}/{Path(path).name}")
            os.close(folder)
            asked.sendall(b'{"op": "stop"}\n')
            answer = json.loads(asked.recv(READ_BYTES))
            return isinstance(answer, dict) and answer.get("result") == "stopping"
    except (OSError, ValueError):
        return False


def terminate(pid: int) -> None:
    """Send SIGTERM to the main process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


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


def write_exit(order: dict[str, Any], content: dict[str, Any]) -> None:
    """Write down how it ended; on a full disk our own exit status has to tell."""
    with contextlib.suppress(OSError):
        write(order["exit_file"], content)


def write(path: str, content: dict[str, Any]) -> None:
    """Replace a file in one rename."""
    draft = Path(f"{path}.tmp")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
