"""What the agent is told by its environment file."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from reprieve.domain.clock import NoticeClock


class ConfigError(Exception):
    """A setting that is missing or unusable; the message says which, and what to do."""


class SupervisorKind(StrEnum):
    """Who keeps the job's processes."""

    CHILD = "child"
    SYSTEMD = "systemd"


@dataclass(frozen=True, slots=True)
class Config:
    """The agent's settings; the environment names are these in capitals."""

    stack: str
    pool: str
    jobs_table: str
    checkpoints_bucket: str
    work_queue_url: str
    reports_queue_url: str
    aws_region: str
    clock: NoticeClock
    state_dir: Path
    run_dir: Path
    job_user: str
    job_path: str
    supervisor: SupervisorKind
    boot_id_file: Path
    shutdown_command: tuple[str, ...]
    log_group: str = ""  # for jobs' output; empty: it goes to the bucket alone
    job_role_arn: str = ""  # of the deployment's jobs; empty if it names none

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings; raise ``ConfigError`` naming all that is wrong at once."""
        missing = [name for name in REQUIRED if not environ.get(name)]
        if missing:
            raise ConfigError(f"not set: {', '.join(missing)} (see /etc/reprieve/agent.env)")
        supervisor = _supervisor(environ.get("SUPERVISOR", SupervisorKind.SYSTEMD))
        default_shutdown = "systemctl poweroff" if supervisor is SupervisorKind.SYSTEMD else ""
        return cls(
            stack=environ["STACK"],
            pool=environ["POOL"],
            jobs_table=environ["JOBS_TABLE"],
            checkpoints_bucket=environ["CHECKPOINTS_BUCKET"],
            work_queue_url=environ["WORK_QUEUE_URL"],
            reports_queue_url=environ["REPORTS_QUEUE_URL"],
            aws_region=environ["AWS_REGION"],
            clock=NoticeClock.of_seconds(_seconds(environ.get("NOTICE_SECONDS", "120"))),
            state_dir=_absolute("STATE_DIR", environ.get("STATE_DIR", "/var/lib/reprieve")),
            run_dir=_absolute("RUN_DIR", environ.get("RUN_DIR", "/run/reprieve")),
            job_user=environ.get("JOB_USER", ""),
            job_path=environ.get("JOB_PATH") or environ.get("PATH", os.defpath),
            supervisor=supervisor,
            boot_id_file=Path(environ.get("BOOT_ID_FILE") or "/proc/sys/kernel/random/boot_id"),
            shutdown_command=tuple(environ.get("SHUTDOWN_COMMAND", default_shutdown).split()),
            log_group=environ.get("LOG_GROUP", ""),
            job_role_arn=environ.get("JOB_ROLE_ARN", ""),
        )

    def boot_id(self) -> str:
        """Return this boot's identity."""
        try:
            return self.boot_id_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigError(f"BOOT_ID_FILE {self.boot_id_file}: {error.strerror}") from error


REQUIRED = (
    "STACK",
    "POOL",
    "JOBS_TABLE",
    "CHECKPOINTS_BUCKET",
    "WORK_QUEUE_URL",
    "REPORTS_QUEUE_URL",
    "AWS_REGION",
)


def _supervisor(text: str) -> SupervisorKind:
    try:
        kind = SupervisorKind(text)
    except ValueError:
        choices = " or ".join(SupervisorKind)
        raise ConfigError(f"SUPERVISOR must be {choices}, not {text!r}") from None
    if kind is SupervisorKind.SYSTEMD and not shutil.which("systemd-run"):
        raise ConfigError("SUPERVISOR=systemd needs systemd-run in PATH; use SUPERVISOR=child")
    return kind


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(f"NOTICE_SECONDS must be a number of seconds above 0, not {text!r}")
    return seconds


def _absolute(name: str, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ConfigError(f"{name} must be an absolute path, not {text!r}")
    return path
