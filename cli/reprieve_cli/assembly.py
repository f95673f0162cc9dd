"""The synthesised stack, made once for each content of what it is made from."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprieve_cli.errors import AnswerIsNoError, BadInputError

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".reprieve" / "assemblies"
POLL_SECONDS = 0.2
CALLED_OFF = "the synthesis was called off"
KEPT = 4  # assemblies, about 50 MB each

# Everything that the template and its assets are made from; the host's wheel holds the CLI too.
SOURCES = (
    "app.py",
    "cdk.json",
    "pyproject.toml",
    "requirements",
    "infra",
    "functions",
    "layers",
    "agent",
    "cli",
)
LEFT_OUT = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})


def synthesise(context: Mapping[str, Any], *, called_off: threading.Event | None = None) -> Path:
    """
    Return the folder of the cloud assembly for *context*, which overrides cdk.json's.

    Raises ``BadInputError`` outside a checkout or for a configuration that the app refuses,
    ``AnswerIsNoError`` soon after it is *called_off*.
    """
    if not (ROOT / "app.py").is_file():
        raise BadInputError("this needs a checkout of the repository: clone it, then `make demo`")
    wanted = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"] | context
    folder = CACHE / _digest(wanted)
    CACHE.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(called_off or threading.Event()) as going:
        if not (folder / "manifest.json").is_file():
            _synthesise(wanted, folder, going)
        os.utime(folder)
        _forget_old()
    return folder


@contextmanager
def _one_at_a_time(called_off: threading.Event) -> Iterator[threading.Event]:
    """Wait for whoever synthesises here already: it may be the same, and it takes both cores."""
    directory = os.open(CACHE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while not _locked(directory):
            if called_off.wait(POLL_SECONDS):
                raise AnswerIsNoError(CALLED_OFF)
        yield called_off
    finally:
        os.close(directory)


def _locked(directory: int) -> bool:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _synthesise(context: Mapping[str, Any], folder: Path, called_off: threading.Event) -> None:
    """Make it beside its place and move it there, so that nobody meets a half-made one."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".") as draft:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        } | {
            "CDK_OUTDIR": str(Path(draft, "out")),
            "CDK_CONTEXT_JSON": json.dumps(context),
            # The template's own tests validate it; here it costs seconds of every start.
            "CDK_VALIDATION": "false",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # aws-cdk-lib takes seconds to compile
        ended = _run_app(environment, called_off)
        if ended.returncode:
            if os.strerror(errno.ENOSPC).lower() in ended.stderr.lower():  # whoever met it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            said = (ended.stderr or ended.stdout).strip().splitlines() or ["no output"]
            kind = BadInputError if ended.returncode == BadInputError.exit_code else AnswerIsNoError
            raise kind(f"the stack can't be synthesised: {said[-1].removeprefix('reprieve: ')}")
        try:
            Path(draft, "out").rename(folder)
        except OSError:
            if not (folder / "manifest.json").is_file():  # else somebody made the same meanwhile
                raise


def _run_app(
    environment: Mapping[str, str], called_off: threading.Event
) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while True:
            try:
                out, err = process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if called_off.is_set():
                    process.send_signal(signal.SIGINT)  # it removes what it has made, as on Ctrl-C
                    process.communicate()
                    raise AnswerIsNoError(CALLED_OFF) from None
                continue
            return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _digest(context: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps([context, sys.version, sys.platform]).encode())
    for source in SOURCES:
        for file in _files(ROOT / source):
            digest.update(f"{file.relative_to(ROOT)}\0{file.stat().st_mode:o}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:24]


def _files(path: Path) -> Iterator[Path]:
    if path.name in LEFT_OUT:
        return
    if path.is_dir():
        for child in sorted(path.iterdir()):
            yield from _files(child)
    elif path.is_file():
        yield path


def _forget_old() -> None:
    folders = [path for path in CACHE.iterdir() if not path.name.startswith(".")]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for folder in folders[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
