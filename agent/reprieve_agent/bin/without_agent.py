"""
Ask the agent on this host to save its job, or what it is doing.

    reprieve-ctl preempt --request-id ID --kind KIND [--noticed-at T] [--deadline T] [--wait S]
    reprieve-ctl status

The last line of the output is one JSON object. Exit codes of preempt: 0 committed,
10 an older checkpoint is durable, 11 no job, 20 still saving when the wait ended,
30 nothing durable, 40 the agent is down and the job was asked directly, 2 usage.

Without the agent the job is asked by the contract itself: the request file, the wake-up
signal to the processes that registered, and a look for the folder that appears. Then the
agent is started again, so that what was saved gets uploaded.

Standard library only: this runs with whatever Python the image has.
"""

# ruff: noqa: INP001, PTH105, PTH110, PTH112, PTH116, PTH118, PTH123, PTH208, T201, PLC0415, S606
# ruff: noqa: FURB162, UP017
# Any Python from 3.9 runs this, and pathlib takes longer to import than all the rest.

from __future__ import annotations

import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself takes longer to import than all the rest
    from collections.abc import Mapping
    from typing import Any

USAGE, NO_JOB, DIRECT = 2, 11, 40
VERSION = 1
DEFAULT_STATE_DIR = "/var/lib/reprieve"
POLL_SECONDS = 0.05
START_TIME_FIELD = 19  # of /proc/<pid>/stat, counted after the command's closing parenthesis
# After these the host stays for now; the agent, once it is back, hands over in time.
STAYS = ("rebalance", "maintenance")


def usage() -> int:
    """Say how it is called."""
    print((__doc__ or "").strip(), file=sys.stderr)
    return USAGE


def shortened(answer: str, code: int) -> str:
    """Return the one thing that matters of an answer that is too long for SSM to keep."""
    try:
        result = str(json.loads(answer).get("result"))[:100]
    except ValueError:
        result = "unreadable"
    return json.dumps({"result": result, "exit": code, "cut": True})


def main(options: dict[str, Any], environ: Mapping[bytes, bytes], error: str) -> int:
    """Do without the agent what can be done without it."""
    if options["op"] == "status":
        return say({"result": "agent down", "error": error}, DIRECT)
    state_dir = os.fsdecode(environ.get(b"REPRIEVE_STATE_DIR", DEFAULT_STATE_DIR.encode()))
    job = running_job(state_dir)
    if job is None:
        return say({"result": "agent down, no job", "error": error}, NO_JOB)
    contract = job["contract_dir"]
    request = {
        "v": VERSION,
        "id": job.get("request_id") or f"{options['request_id']}:{job['attempt']}",
        "kind": "checkpoint" if options["kind"] in STAYS else "checkpoint_exit",
        "reason": options["kind"],
    }
    deadline = unix(options.get("deadline"))
    if deadline is not None:
        boot = time.clock_gettime(time.CLOCK_BOOTTIME) + deadline - time.time()
        request.update(
            deadline_unix=deadline, save_by_unix=deadline, deadline_boottime_ns=int(boot * 1e9)
        )
    before = newest_step(job["checkpoints_dir"])
    write(os.path.join(contract, "request.json"), request)
    woken = wake(contract)
    step = wait_for_save(job["checkpoints_dir"], before, options["wait"])
    restarted = restart_agent()
    answer = {
        "result": "agent down, asked the job",
        "error": error,
        "request": request["id"],
        "job": job["id"],
        "attempt": job["attempt"],
        "woken": woken,
        "saved_step": step,
        "committed_step": job.get("committed_step"),
        "agent_restarted": restarted,
    }
    return say(answer, DIRECT)


def running_job(folder: str) -> dict[str, Any] | None:
    """Return what the agent wrote about its running job, or None."""
    saved = read(os.path.join(folder, "job.json")) or {}
    job = saved.get("job")
    return job if isinstance(job, dict) and os.path.isdir(job.get("contract_dir", "")) else None


def wake(contract: str) -> int:
    """Signal the processes that registered, if they are still the same and the job's own."""
    owner = os.stat(contract).st_uid
    woken = 0
    for name in sorted(os.listdir(contract)):
        if name.startswith("ready.") and name.endswith(".json"):
            said = read(os.path.join(contract, name)) or {}
            woken += wake_one(said.get("pid"), said.get("start_ticks"), owner)
    return woken


def wake_one(pid: object, ticks: object, owner: int) -> int:
    """Send the wake-up signal; return 1 if it was sent."""
    if not isinstance(pid, int) or not isinstance(ticks, int) or pid <= 1:
        return 0
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            started = int(file.read().rpartition(")")[2].split()[START_TIME_FIELD])
        if started != ticks or os.stat(f"/proc/{pid}").st_uid != owner:
            return 0
        signal.pidfd_send_signal(handle, signal.SIGUSR1)
    except OSError:
        return 0
    finally:
        os.close(handle)
    return 1


def wait_for_save(checkpoints: str, before: int | None, seconds: float) -> int | None:
    """Return the newest whole step once there is a newer one, or when the wait ends."""
    ends = time.monotonic() + seconds
    while True:
        newest = newest_step(checkpoints)
        if newest != before or time.monotonic() >= ends:
            return newest
        time.sleep(POLL_SECONDS)


def newest_step(checkpoints: str) -> int | None:
    """Return the highest step that has a manifest: it is written last."""
    try:
        names = os.listdir(checkpoints)
    except OSError:
        return None
    steps = [
        int(name[5:])
        for name in names
        if name.startswith("step-")
        and name[5:].isdigit()
        and os.path.exists(os.path.join(checkpoints, name, "MANIFEST.json"))
    ]
    return max(steps, default=None)


def restart_agent() -> bool:
    """Let systemd start the agent again, which uploads what was saved."""
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.execvp("systemctl", ["systemctl", "--no-block", "restart", "reprieve-agent"])
        except OSError:
            os._exit(1)
    _, code = os.waitpid(pid, 0)
    return code == 0


def unix(text: str | None) -> float | None:
    """Return seconds since 1970 of an ISO time, or None."""
    from datetime import datetime, timezone  # slow, and rarely needed

    try:
        at = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def read(path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write(path: str, content: dict[str, Any]) -> None:
    """Replace a file in one rename."""
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(draft, path)


def say(answer: dict[str, Any], code: int) -> int:
    """Print the answer as one short line; return the exit status."""
    print(json.dumps(answer))
    return code
