"""
One host's computer: a directory, a process tree under ``hostinit``, and the agent in it.

The agent is the real one. Its environment is what the launch template's user data writes to
``/etc/reprieve/agent.env``, with the paths moved into the host's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reprieve_cli.local import processes

if TYPE_CHECKING:
    from collections.abc import Callable

AGENT_ENV = re.compile(
    r"cat\s*>\s*/etc/reprieve/agent\.env\s*<<\s*'?REPRIEVE_AGENT_ENV'?\n(.*?)\n?REPRIEVE_AGENT_ENV",
    re.DOTALL,
)
BOOT_LIMIT = re.compile(r"--unit=reprieve-boot-limit --on-active=(\d+)")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class NoAgentError(Exception):
    """The user data installs no agent."""


@dataclass(frozen=True, slots=True)
class Site:
    """What all hosts share."""

    directory: Path
    """Each host gets a directory below it."""
    endpoint: str
    """Where the SDK calls go."""
    metadata: str
    """Base address of the metadata services, without a slash at the end."""
    region: str
    ca_bundle: Path | None = None
    python: str = sys.executable
    agent_module: str = "reprieve_agent"
    extra: dict[str, str] = field(default_factory=dict)
    """Further variables for every agent and command."""


def agent_variables(user_data: str) -> dict[str, str]:
    """Read what *user_data* writes to agent.env; raise ``NoAgentError`` if it does not."""
    found = AGENT_ENV.search(user_data)
    if found is None:
        raise NoAgentError("the user data writes no /etc/reprieve/agent.env")
    pairs = (line.split("=", 1) for line in found[1].splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


class Machine:
    def __init__(self, instance_id: str, user_data: str, site: Site) -> None:
        self.instance_id = instance_id
        self._site = site
        self._user_data = user_data
        self.directory = site.directory / instance_id
        self._init: asyncio.subprocess.Process | None = None
        self._commands: set[asyncio.subprocess.Process] = set()

    # ------------------------------------------------------------------ what runs on it
    @property
    def pid(self) -> int | None:
        """The agent's process id, while it runs."""
        if self._init is None or self._init.returncode is not None:
            return None
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.directory / "agent.pid").read_text(encoding="ascii"))
            return pid if processes.alive(pid) else None
        return None

    @property
    def boot_limit_seconds(self) -> float | None:
        """How long the user data lets the agent take to be ready; None: as long as it likes."""
        found = BOOT_LIMIT.search(self._user_data)
        return float(found[1]) if found else None

    @property
    def ready(self) -> bool:
        """Whether the agent has said that it is, in this boot."""
        return (self._run_dir / "ready").exists()

    async def boot(self, on_shutdown: Callable[[], None]) -> None:
        """
        Start the agent under a new boot id; *on_shutdown* is called if the host ends itself.

        State survives a boot, the run directory does not. Raise ``NoAgentError`` when the
        user data installs no agent: then the host is on, but nothing runs.
        """
        environment = self._agent_environment()
        shutil.rmtree(self._run_dir, ignore_errors=True)
        for folder in (self._run_dir, self._state_dir, self.directory / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.directory / "boot_id").write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._install_ctl()
        with (self.directory / "agent.log").open("ab") as log:
            init = await asyncio.create_subprocess_exec(
                self._site.python,
                *("-m", "reprieve_cli.local.world.hostinit", str(os.getpid())),
                str(self.directory / "agent.pid"),
                *(self._site.python, "-m", self._site.agent_module),
                env=environment,
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._init = init
        self._watch = asyncio.create_task(self._wait(init, on_shutdown))

    async def _wait(
        self, init: asyncio.subprocess.Process, on_shutdown: Callable[[], None]
    ) -> None:
        if await init.wait() == 0 and self._init is init:
            on_shutdown()

    async def press_power_button(self, seconds: float) -> None:
        """Ask the agent to end (SIGTERM) and wait up to *seconds*; ``kill`` comes after."""
        init = self._init
        if init is None or init.returncode is not None:
            return
        self._init = None  # its end is no news now
        with contextlib.suppress(ProcessLookupError):
            init.send_signal(signal.SIGPWR)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(init.wait(), seconds)
        _end(init)

    def stop_agent(self) -> None:
        """Let the agent end (SIGTERM to it alone) and never start it again in this boot."""
        if self._init is not None and self._init.returncode is None:
            self._init.send_signal(signal.SIGUSR2)

    def kill(self) -> None:
        """End everything at once, without a word to anybody."""
        init, self._init = self._init, None
        for process in [*self._commands, *([init] if init else [])]:
            _end(process)

    def freeze(self) -> None:
        for process in self._trees():
            processes.freeze(process.pid)
        processes.send([command.pid for command in self._running_commands()], signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._trees():
            processes.thaw(process.pid)
        processes.send([command.pid for command in self._running_commands()], signal.SIGCONT)

    def _trees(self) -> list[asyncio.subprocess.Process]:
        running = [] if self._init is None or self._init.returncode is not None else [self._init]
        return running + self._running_commands()

    def _running_commands(self) -> list[asyncio.subprocess.Process]:
        return [command for command in self._commands if command.returncode is None]

    # ------------------------------------------------------------------ Run Command
    async def run_script(
        self, script: str, *, variables: dict[str, str], seconds: float
    ) -> tuple[int | None, bytes, bytes]:
        """
        Run *script* as SSM's agent would; return (exit code, stdout, stderr).

        The exit code is None when it took longer than *seconds* and was killed.
        """
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", script),
            env={**self._base_environment(), **self._ctl_environment(), **variables},
            cwd=self.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._commands.add(process)
        try:
            output, trouble = await asyncio.wait_for(process.communicate(), seconds)
        except TimeoutError:
            _end(process)
            return None, b"", b""
        finally:
            self._commands.discard(process)
        return process.returncode, output, trouble

    # ------------------------------------------------------------------ environments
    @property
    def _run_dir(self) -> Path:
        return self.directory / "run"

    @property
    def _state_dir(self) -> Path:
        return self.directory / "state"

    def _base_environment(self) -> dict[str, str]:
        site = self._site
        environment = {
            "PATH": f"{self.directory / 'bin'}:{Path(site.python).parent}:{SYSTEM_PATH}",
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": site.endpoint,
            "AWS_REGION": site.region,
            "AWS_DEFAULT_REGION": site.region,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{site.metadata}/imds/{self.instance_id}/",
        }
        if site.ca_bundle:
            environment["AWS_CA_BUNDLE"] = str(site.ca_bundle)
        return {**environment, **site.extra}

    def _agent_environment(self) -> dict[str, str]:
        base = self._base_environment()
        return {
            **base,
            "PYTHONUNBUFFERED": "1",
            **agent_variables(self._user_data),
            "STATE_DIR": str(self._state_dir),
            "RUN_DIR": str(self._run_dir),
            "SUPERVISOR": "child",
            "JOB_USER": "",
            "JOB_PATH": base["PATH"],
            "BOOT_ID_FILE": str(self.directory / "boot_id"),
            "AWS_REGION": self._site.region,
        }

    def _ctl_environment(self) -> dict[str, str]:
        return {
            "REPRIEVE_SOCKET": str(self._run_dir / "agent.sock"),
            "REPRIEVE_STATE_DIR": str(self._state_dir),
        }

    def _install_ctl(self) -> None:
        command = shlex.join([self._site.python, "-m", f"{self._site.agent_module}.ctl"])
        path = self.directory / "bin" / "reprieve-ctl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


def _end(process: asyncio.subprocess.Process) -> None:
    """Kill *process* and all below it; its descendants first, so that none is orphaned."""
    if process.returncode is not None:
        return
    processes.kill_descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
