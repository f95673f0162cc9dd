"""
Stands for Docker: `docker run`, `rm` and `pull`, as far as the agent uses them, and their engine.

It runs the real process, on this machine's own files. As with Docker, that process is no child of
`docker run` but of the engine's: it lives on when `docker run` is killed, it inherits neither the
environment of that one nor what it ignores, and what it leaves running ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
ENGINE_ERROR, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
HERE = Path(__file__).resolve().parent
CONTAINERS, SOCKET, CALLS = HERE / "containers", HERE / "engine.sock", HERE / "calls"
IMAGE_PATH = "/usr/local/bin:/usr/bin:/bin"
MESSAGE_BYTES = 65_536


def main() -> int:
    verb, *arguments = sys.argv[1:]
    if verb == "engine":
        return engine()
    with CALLS.open("a") as calls:
        calls.write(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}) + "\n")
    return {"run": run, "rm": remove, "pull": pull}[verb](arguments)


def pull(arguments: list[str]) -> int:
    if arguments[-1].startswith("missing"):
        return refuse(f"Error response from daemon: manifest for {arguments[-1]} not found", 1)
    return 0


def remove(arguments: list[str]) -> int:
    file = CONTAINERS / arguments[-1]
    try:
        shim = int(file.read_text())
    except FileNotFoundError:
        return refuse(f"Error response from daemon: No such container: {file.name}", 1)
    while file.exists():
        kill_below(shim)
        time.sleep(0.01)
    return 0


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--rm", "--interactive"):
        parser.add_argument(flag, action="store_true", required=True)
    for option in ("name", "log-driver", "pid", "network", "ipc", "user", "workdir", "entrypoint"):
        parser.add_argument(f"--{option}", required=True)
    for option in ("cap-drop", "security-opt", "group-add", "volume", "env", "gpus"):
        parser.add_argument(f"--{option}", action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    container = vars(parser.parse_args(arguments))
    container["env"] = environment(container["env"])
    if (CONTAINERS / container["name"]).exists():
        return refuse(f"docker: Conflict. The name {container['name']} is in use.", ENGINE_ERROR)
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(str(SOCKET))
        except OSError:
            return refuse("docker: Cannot connect to the Docker daemon.", ENGINE_ERROR)
        socket.send_fds(asked, [json.dumps(container).encode()], [0, 1, 2])
        pid = int(asked.recv(MESSAGE_BYTES))
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda number, _frame: send(pid, number))
        return int(asked.recv(MESSAGE_BYTES) or ENGINE_ERROR)


def refuse(why: str, status: int) -> int:
    sys.stderr.write(f"{why}\n")
    return status


def environment(entries: list[str]) -> dict[str, str]:
    env = {"PATH": IMAGE_PATH, "HOSTNAME": "container"}
    for entry in entries:
        name, has_value, value = entry.partition("=")
        env[name] = value if has_value else os.environ[name]
    return env


def engine() -> int:
    """Start a shim for each container asked for, until killed."""
    CONTAINERS.mkdir(exist_ok=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(SOCKET))
        listener.listen()
        while True:
            asked, _ = listener.accept()
            with asked:
                if os.fork() == 0:
                    listener.close()
                    os._exit(keep(asked))


def keep(asked: socket.socket) -> int:
    """Be the shim of one container: parent of its processes, and the end of all but the first."""
    said, streams, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
    container = json.loads(said)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    file = CONTAINERS / container["name"]
    file.write_text(str(os.getpid()))
    pid = os.fork()
    if pid == 0:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        inside(container)
    for stream in streams:
        os.close(stream)
    asked.send(str(pid).encode())
    found, status = os.wait()
    while found != pid:
        found, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    while kill_below(os.getpid()):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    file.unlink()
    with contextlib.suppress(BrokenPipeError):
        asked.send(str(code if code >= 0 else 128 - code).encode())
    return 0


def inside(container: dict[str, object]) -> None:
    """Become the process."""
    given = argparse.Namespace(**container)
    for signum in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(signum, signal.SIG_DFL)
    uid, gid = map(int, given.user.split(":"))
    try:
        os.setsid()
        os.setgroups([int(group) for group in given.group_add])
        os.setgid(gid)
        os.setuid(uid)
        os.chdir(given.workdir)
        os.execve(given.entrypoint, [given.entrypoint, *given.command], given.env)
    except FileNotFoundError:
        os._exit(NOT_FOUND)
    except OSError:
        os._exit(NOT_EXECUTABLE)


def kill_below(root: int) -> bool:
    """Kill all below *root*; False if there was nothing."""
    found = descendants(root)
    for pid in found:
        send(pid, signal.SIGKILL)
    return bool(found)


def descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found = [root]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def send(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


if __name__ == "__main__":
    raise SystemExit(main())
