"""
Contract version 1 as a job sees it: its environment, the run directory's files, the exit code.

docs/job-contract.md is the normative text; the names here are the same.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
REQUEUE = 75
"""Exit status of a job that saved and wants to go on elsewhere (EX_TEMPFAIL)."""

CHECKPOINT = "checkpoint"
CHECKPOINT_EXIT = "checkpoint_exit"
KINDS = frozenset({CHECKPOINT, CHECKPOINT_EXIT})

REQUEST_FILE = "request.json"
PROGRESS_FILE = "progress.json"
DONE_FILE = "done.json"

_START_TIME_FIELD = 19  # of /proc/<pid>/stat, counted after the command's closing parenthesis


class ContractError(RuntimeError):
    """The environment or the run directory is not what contract version 1 promises."""


@dataclass(frozen=True)
class Request:
    """What the host asks for: a checkpoint, and perhaps to leave after it."""

    id: str
    kind: str
    reason: str
    version: int
    deadline_unix: float | None
    deadline_boottime_ns: int | None
    save_by_unix: float | None

    @property
    def must_exit(self) -> bool:
        """True when the job has to leave with ``REQUEUE`` once its state is saved."""
        return self.kind == CHECKPOINT_EXIT

    def seconds_left(self) -> float:
        """
        Return the seconds until the host goes away; ``inf`` when the request names no deadline.

        The boot-time clock is preferred: it does not jump when somebody sets the wall clock.
        """
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        if self.deadline_boottime_ns is not None and boottime is not None:
            return (self.deadline_boottime_ns - time.clock_gettime_ns(boottime)) / 1e9
        if self.deadline_unix is not None:
            return self.deadline_unix - time.time()
        return math.inf


@dataclass(frozen=True)
class Environment:
    """What the host told this job at its start; ``run_dir`` is None without a host."""

    run_dir: Path | None
    checkpoint_dir: Path
    resume_dir: Path | None
    resume_step: int | None
    attempt: int
    rank: int
    world_size: int


def read_environment(environ: Mapping[str, str], *, standalone_dir: Path) -> Environment:
    """Read the job's environment; raise ``ContractError`` where it breaks the contract."""
    rank = _integer(environ, "REPRIEVE_RANK", default=_integer(environ, "RANK", default=0))
    world_size = _integer(environ, "WORLD_SIZE", default=1)
    if "REPRIEVE_CONTRACT" not in environ:
        return Environment(
            run_dir=None,
            checkpoint_dir=standalone_dir,
            resume_dir=None,
            resume_step=None,
            attempt=0,
            rank=rank,
            world_size=world_size,
        )
    if environ["REPRIEVE_CONTRACT"] != str(VERSION):
        raise ContractError(
            f"REPRIEVE_CONTRACT is {environ['REPRIEVE_CONTRACT']!r} but this reprieve_job speaks"
            f" version {VERSION}: use the reprieve_job that belongs to the host's agent"
        )
    resume_dir, resume_step = _resume(environ)
    return Environment(
        run_dir=_directory(environ, "REPRIEVE_RUN_DIR"),
        checkpoint_dir=_directory(environ, "REPRIEVE_CKPT_DIR"),
        resume_dir=resume_dir,
        resume_step=resume_step,
        attempt=_integer(environ, "REPRIEVE_ATTEMPT", default=0),
        rank=rank,
        world_size=world_size,
    )


def read_request(run_dir: Path) -> Request | None:
    """
    Return the request that stands in *run_dir*, or None.

    A file that can't be read or is no request counts as none: it is looked at again at the next
    poll, and training must not stop for it.
    """
    try:
        return _parse_request((run_dir / REQUEST_FILE).read_bytes())
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
        return None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """
    Replace *path* in one move, so that a reader sees the old content or the new, never a part.

    Not synced to disk: the run directory dies with the host anyway.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps({"v": VERSION, **content}), encoding="utf-8")
    draft.replace(path)


def start_ticks() -> int | None:
    """Return this process's start time in clock ticks since boot, which tells a reused pid."""
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_START_TIME_FIELD])


def _resume(environ: Mapping[str, str]) -> tuple[Path | None, int | None]:
    step = environ.get("REPRIEVE_RESUME_STEP", "")
    if not step:
        return None, None
    folder = _directory(environ, "REPRIEVE_RESUME_DIR")
    # Starting over without a word would look like success and cost every step so far.
    if not folder.is_dir() or not any(folder.iterdir()):
        raise ContractError(
            f"REPRIEVE_RESUME_STEP is {step} but there is no checkpoint in {folder}"
        )
    return folder, _integer(environ, "REPRIEVE_RESUME_STEP", default=0)


def _directory(environ: Mapping[str, str], name: str) -> Path:
    value = environ.get(name, "")
    if not value:
        raise ContractError(
            f"REPRIEVE_CONTRACT is set but {name} is not: the host's agent must set both"
        )
    return Path(value)


def _integer(environ: Mapping[str, str], name: str, *, default: int) -> int:
    value = environ.get(name, "")
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise ContractError(f"{name} must be a whole number, not {value!r}") from None


def _parse_request(content: bytes) -> Request:
    found = json.loads(content)
    boottime_ns = found.get("deadline_boottime_ns")
    return Request(
        id=str(found["id"]),
        kind=str(found["kind"]),
        reason=str(found.get("reason", "")),
        version=int(found["v"]),
        deadline_unix=_optional_float(found.get("deadline_unix")),
        deadline_boottime_ns=None if boottime_ns is None else int(boottime_ns),
        save_by_unix=_optional_float(found.get("save_by_unix")),
    )


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)
