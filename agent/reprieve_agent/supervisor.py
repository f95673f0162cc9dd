"""Who keeps a job's processes: what the agent asks of it, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reprieve.domain.lease import LeaseKey
from reprieve_agent.files import read_json
from reprieve_agent.places import Account, Places
from reprieve_agent.state import Process


class LaunchError(Exception):
    """The job's keeper didn't come up; nothing of the job runs."""


class TooLateError(Exception):
    """The start was delayed beyond the moment until which it was allowed."""


@dataclass(frozen=True, slots=True)
class JobStart:
    """
    What is to be started; *secrets* join its environment without lying in any file.

    With an *image* it runs in a container. With a *starter_env* that is what *argv* gets,
    and it reads the job's own environment from its stdin, as lines for a shell.
    """

    key: LeaseKey
    places: Places
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    account: Account | None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    image: str | None = None
    starter_env: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a job ended; *stopped* if the system's own shutdown stopped it first."""

    exit_code: int | None
    detail: str = ""
    stopped: bool = False


class Supervisor(Protocol):
    """
    Who keeps the job's processes. They outlive the agent, and the next one finds them.

    A start is idempotent: what already runs for that attempt is found, not started again.
    """

    def launch(self, start: JobStart, *, not_after: float) -> Process:
        """Start it unless it runs; raise ``TooLateError`` or ``LaunchError``."""

    def wait(self, key: LeaseKey, places: Places, process: Process) -> Exit:
        """Return once the job is over, also if it was before and another agent started it."""

    def terminate(self, process: Process) -> None:
        """SIGTERM to the main process, and to no other."""

    def kill(self, key: LeaseKey, places: Places) -> bool:
        """
        End every process of the attempt, now and for good: a later launch is refused.

        True if none is left.
        """


def marker(key: LeaseKey) -> str:
    """Return the entry of the environment by which every process of an attempt is known."""
    return f"REPRIEVE_TOKEN={key.token}"


def begun(places: Places) -> bool:
    """Whether the job itself was started: whatever it was to be given, it has."""
    process = read_json(places.process) or {}
    return process.get("pid") is not None or read_json(places.exit) is not None


def public_name(places: Places) -> str:
    """Return the name under which others on this host know an attempt."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in places.name)
    return f"reprieve-job-{name}"
