"""
Jobs in a container of the local Docker engine.

A container here is packaging, not a border: the job is the same unprivileged user as without
one, sees the same processes (so that its pids mean the same to the agent) and the same network
(so that the rule which keeps this user off the metadata service holds). It can't become root.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reprieve.domain.lease import LeaseKey
from reprieve_agent.files import read_json
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import Exit, JobStart, Supervisor, public_name

DOCKER = "docker"
REMOVE_SECONDS = 10.0
PAUSE_SECONDS = 0.1
GPUS_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPUS = frozenset({"none", "void", ""})
OF_THE_ENGINE = ("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT")
# An image's PATH is its own. The variables come on stdin, since Docker writes those that it is
# told of to disk, secrets among them. The wake-up signal must not kill a job without a handler.
ENTRY = 'trap "" USR1; eval "$(cat)"; exec "$@" </dev/null'
NOT_INSIDE = frozenset({"PATH", GPUS_VARIABLE})


def host_has_gpus() -> bool:
    """Whether NVIDIA's driver made a device here."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def pull(image: str) -> tuple[str, ...]:
    """Return the command that fetches *image*, or finds that it is there."""
    return (DOCKER, "pull", "--quiet", image)


def engine_env() -> dict[str, str]:
    """Return what `docker` is to see: nothing that a job can choose, since it runs as root."""
    given = {name: os.environ[name] for name in OF_THE_ENGINE if name in os.environ}
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(Path.home())} | given


@dataclass(frozen=True, slots=True)
class ContainerSupervisor:
    """
    Runs jobs that name an image in a container, and the others as they are.

    What `kept_by` keeps is then `docker run`, which hands SIGTERM on to the job's main
    process and ends as that one does.
    """

    kept_by: Supervisor
    has_gpus: bool = field(default_factory=host_has_gpus)

    def launch(self, start: JobStart, *, not_after: float) -> Process:
        """Start it unless it runs; raise ``TooLateError`` or ``LaunchError``."""
        if start.image is not None:
            start = contained(start, start.image, has_gpus=self.has_gpus)
        return self.kept_by.launch(start, not_after=not_after)

    def wait(self, key: LeaseKey, places: Places, process: Process) -> Exit:
        """Return once the job is over, also if it was before and another agent started it."""
        return self.kept_by.wait(key, places, process)

    def terminate(self, process: Process) -> None:
        """SIGTERM to the main process, and to no other."""
        self.kept_by.terminate(process)

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """End every process of the attempt, now and for good; True if none is left."""
        gone = self.kept_by.kill(key, places)
        if (read_json(places.order) or {}).get("starter_env") is None:
            return gone
        # The engine may have been about to start what nobody waits for any more.
        return _remove(public_name(places)) and self.kept_by.kill(key, places)


def contained(start: JobStart, image: str, *, has_gpus: bool) -> JobStart:
    """Return the start of a container in which *start* happens."""
    account = start.account
    uid, gid = (account.uid, account.gid) if account else (os.getuid(), os.getgid())
    groups = account.groups if account else ()
    inside = {k: v for k, v in start.env.items() if k not in NOT_INSIDE}
    token = {"REPRIEVE_TOKEN": start.env["REPRIEVE_TOKEN"]}
    argv = (
        *(DOCKER, "run", "--rm", "--interactive", f"--name={public_name(start.places)}"),
        *("--log-driver=none", "--pid=host", "--network=host", "--ipc=host"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
        f"--user={uid}:{gid}",
        *(f"--group-add={group}" for group in groups if group != gid),
        *_gpus(start.env, has_gpus=has_gpus),
        *(f"--volume={folder}:{folder}" for folder in _folders(start)),
        f"--workdir={start.cwd}",
        "--env=REPRIEVE_TOKEN",  # known from its first moment on
        *("--entrypoint=/bin/sh", image, "-c", ENTRY, "sh", *start.argv),
    )
    return replace(
        start, argv=argv, env=inside, account=None, image=None, starter_env=engine_env() | token
    )


def _gpus(env: Mapping[str, str], *, has_gpus: bool) -> tuple[str, ...]:
    """Give it every GPU of the host, or those that it names."""
    wanted = env.get(GPUS_VARIABLE, "all")
    if not has_gpus or wanted in NO_GPUS:
        return ()
    # Docker reads the value as CSV, so a list of devices has to be quoted.
    return (f"--gpus={wanted}",) if wanted == "all" else (f'--gpus="device={wanted}"',)


def _folders(start: JobStart) -> Iterator[Path]:
    """Yield what the job sees outside a container too, under the same names."""
    folders = [start.places.private, start.places.contract]
    if not start.cwd.is_relative_to(start.places.private):
        folders.append(start.cwd)
    if start.account:
        folders.append(Path(start.account.home))
    yield from folders


def _remove(name: str) -> bool:
    """Remove the container, running or not; False if it may still be there."""
    ends = time.monotonic() + REMOVE_SECONDS
    while not _is_gone(name):
        if time.monotonic() >= ends:
            return False
        time.sleep(PAUSE_SECONDS)  # Docker may be removing it already, since it has ended
    return True


def _is_gone(name: str) -> bool:
    try:
        done = subprocess.run(
            [DOCKER, "rm", "--force", name],
            env=engine_env(),
            check=False,
            capture_output=True,
            text=True,
            timeout=REMOVE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 or "No such container" in done.stderr
