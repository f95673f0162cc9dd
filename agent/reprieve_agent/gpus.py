"""
Whether this host's GPUs can be trusted with a job, as ``nvidia-smi`` tells.

Asked before the first ticket and after the processes of an attempt were killed: what a job did
to a GPU outlives it. A host without that program is taken at its word.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from dataclasses import dataclass

log = logging.getLogger(__name__)

COUNTS = "index,name,ecc.errors.uncorrected.volatile.total"
PATIENCE_SECONDS = 30.0  # without persistence mode the driver is loaded first
# The kernel takes a moment to end what holds a GPU.
SETTLE_SECONDS = 5.0
POLL_SECONDS = 0.25
# What nvidia-smi writes in place of a value, or besides one, when a GPU is beyond use.
LOST = ("err!", "is lost", "requires reset", "unknown error", "fallen off the bus")
LONGEST_TEXT = 160


@dataclass(frozen=True, slots=True)
class Gpus:
    """
    The GPUs of this host.

    *expected* is how many its type has, None if nobody knows; *path* is where programs are
    looked for.
    """

    expected: int | None
    path: str | None = None

    def fault(self) -> str | None:
        """Say what is wrong with them, or None."""
        program = shutil.which("nvidia-smi", path=self.path)
        if program is None:
            return None
        answer = _ask(program, f"--query-gpu={COUNTS}")
        fault = answer.fault or _lost(answer.text) or self._too_few(answer.lines) or _ecc(answer)
        if fault:
            log.error("GPUs can't be trusted", extra={"fault": fault})
        return fault

    def fault_after_kill(self) -> str | None:
        """Say what is wrong now that no process should be left on them, or None."""
        program = shutil.which("nvidia-smi", path=self.path)
        if program is None:
            return None
        ends = time.monotonic() + SETTLE_SECONDS
        while True:
            answer = _ask(program, "--query-compute-apps=pid,name")
            if answer.fault or not answer.lines:
                return self.fault()
            if time.monotonic() >= ends:
                fault = f"still in use after the kill: {'; '.join(answer.lines)}"[:LONGEST_TEXT]
                log.error("GPUs can't be trusted", extra={"fault": fault})
                return fault
            time.sleep(POLL_SECONDS)

    def _too_few(self, lines: list[str]) -> str | None:
        if self.expected is None or len(lines) >= self.expected:
            return None
        return f"{len(lines)} of {self.expected} GPUs answer"


@dataclass(frozen=True, slots=True)
class _Answer:
    lines: list[str]
    text: str
    fault: str | None = None


def _ask(program: str, query: str) -> _Answer:
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return _Answer([], "", f"nvidia-smi doesn't answer within {PATIENCE_SECONDS:g} s")
    except OSError as error:
        return _Answer([], "", f"nvidia-smi: {error.strerror}")
    text = f"{done.stdout}\n{done.stderr}"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        last = " ".join(text.split())[:LONGEST_TEXT]
        return _Answer([], text, f"nvidia-smi exits {done.returncode}: {last}")
    return _Answer(lines, text)


def _lost(text: str) -> str | None:
    low = text.lower()
    return next((f"nvidia-smi says {word!r}" for word in LOST if word in low), None)


def _ecc(answer: _Answer) -> str | None:
    """Say which GPU lost data since it was reset; one without ECC names no number."""
    for line in answer.lines:
        index, *_, errors = [part.strip() for part in line.split(",")]
        if errors.isdigit() and int(errors):
            return f"GPU {index} has {errors} uncorrected memory errors"
    return None
