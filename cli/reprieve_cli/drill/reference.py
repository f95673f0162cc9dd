"""The run that nobody interrupts: the same command, alone, without a host."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from reprieve_cli.drill.scenario import JobPlan

CHECKPOINTS = "checkpoints"  # where the helper saves without a host
_LIMIT_SECONDS = 120


class NoReferenceError(Exception):
    """The command doesn't succeed by itself, so there is nothing to compare with."""


@dataclass(slots=True)
class References:
    """Runs each command once, however many scenarios compare with it."""

    _known: dict[tuple[object, ...], str] = field(default_factory=dict)

    def digest(self, plan: JobPlan, file: str) -> str:
        """Return the SHA-256 of *file* of the last checkpoint; raise ``NoReferenceError``."""
        key = (plan.code, plan.reference or plan.command, plan.env, file)
        if key not in self._known:
            self._known[key] = _run(plan, file)
        return self._known[key]


def _run(plan: JobPlan, file: str) -> str:
    with tempfile.TemporaryDirectory(prefix="reprieve-") as scratch:
        folder = Path(scratch, "code")
        if plan.code is None:
            folder.mkdir()
        else:
            shutil.copytree(plan.code, folder, ignore=shutil.ignore_patterns(CHECKPOINTS))
        command = plan.reference or plan.command
        ended = subprocess.run(
            list(command),
            cwd=folder,
            env=_environment(plan),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        if ended.returncode != 0:
            said = ended.stdout.strip().splitlines() or ["nothing"]
            raise NoReferenceError(f"alone, {' '.join(command)} ends with: {said[-1]}")
        return hashlib.sha256(_last(folder, file).read_bytes()).hexdigest()


def _environment(plan: JobPlan) -> dict[str, str]:
    """Give it what a host would, and nothing of Reprieve's or of ours."""
    here = Path(sys.executable).parent
    return {
        "PATH": f"{here}:/usr/local/bin:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        **dict(plan.env),
    }


def _last(folder: Path, file: str) -> Path:
    saved = sorted(folder.glob(f"{CHECKPOINTS}/step-*/{file}"), key=lambda path: _step(path, file))
    found = saved[-1] if saved else folder / file
    if not found.is_file():
        raise NoReferenceError(f"the uninterrupted run leaves no {file}")
    return found


def _step(path: Path, file: str) -> int:
    folder = path.parents[len(Path(file).parts) - 1]
    return int(folder.name.removeprefix("step-"))
