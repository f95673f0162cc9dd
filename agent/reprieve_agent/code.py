"""
A job's code: fetched, checked, unpacked and set up once per digest on this host.

The setup command runs in the folder it will be used from (virtual environments can't be
moved), so what counts is a mark written after it ended well.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import stat
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from reprieve.domain.errors import ReprieveError, UnknownOutcomeError
from reprieve.domain.spec import JobSpec
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from reprieve_agent.places import Account

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
COPY_BYTES = 1024 * 1024


class SetupError(ReprieveError):
    """The code can't be used; the message says why."""


class Setup(Protocol):
    """The setup command of one attempt."""

    @property
    def begun(self) -> bool:
        """Whether an earlier run of the agent began it: its folder must stay as it is."""

    def run(self, tree: Path) -> None:
        """Run it in *tree*, or wait for it; raise ``SetupError``."""


@dataclass(frozen=True, slots=True)
class CodeCache:
    """Unpacked code below one folder."""

    folder: Path
    store: Checkpoints

    def prepare(
        self,
        spec: JobSpec,
        *,
        work: Path,
        account: Account | None,
        setup: Setup,
        stopped: Callable[[], bool],
    ) -> Path:
        """Return the job's working directory; raise ``SetupError``."""
        tree = self.place(spec, work=work)
        mark = tree.with_name(f"{tree.name}.ready")
        if tree == work or mark.exists():
            return tree
        if not setup.begun:
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir(parents=True)
            if spec.code is not None:
                self._unpack(spec.code, tree, stopped)
            if account:
                _give(tree, account)
        if spec.setup:
            setup.run(tree)
        mark.touch()
        return tree

    def place(self, spec: JobSpec, *, work: Path) -> Path:
        """Return where a job with *spec* runs, once it is prepared."""
        return self.folder / _digest(spec) if spec.code or spec.setup else work

    def _unpack(self, sha256: str, tree: Path, stopped: Callable[[], bool]) -> None:
        archive = self.folder / f"{sha256}.zip"
        archive.unlink(missing_ok=True)
        try:
            self._fetch(sha256, archive, stopped)
            unpack(archive, tree)
        except BadObjectError as error:
            raise SetupError(f"code: {error}") from error
        finally:
            archive.unlink(missing_ok=True)

    def _fetch(self, sha256: str, archive: Path, stopped: Callable[[], bool]) -> None:
        pause = FIRST_PAUSE_SECONDS
        waiting = threading.Event()
        while not stopped():
            try:
                self.store.fetch_code(sha256, archive, stopped=stopped)
            except UnknownOutcomeError as error:
                log.warning("code will be fetched again", extra={"error": str(error)})
                waiting.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                continue
            return
        raise AbortedError("the download of the code was called off")


def unpack(archive: Path, tree: Path) -> None:
    """Unpack plain files and folders only, nothing outside *tree*; raise ``SetupError``."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                _unpack_entry(packed, entry, tree)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SetupError(f"code isn't a usable zip: {error}") from error


def _unpack_entry(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, tree: Path) -> None:
    parts = PurePosixPath(entry.filename).parts
    kind = stat.S_IFMT(entry.external_attr >> 16)
    unsafe = not parts or parts[0] == "/" or ".." in parts or "\\" in entry.filename
    if unsafe or kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise SetupError(f"code holds {entry.filename!r}, which is no plain file inside it")
    target = tree.joinpath(*parts)
    if entry.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(entry) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, COPY_BYTES)
    executable = entry.external_attr >> 16 & 0o111
    target.chmod(0o755 if executable else 0o644)


def _digest(spec: JobSpec) -> str:
    made_with = [spec.image] if spec.image and spec.setup else []
    return hashlib.sha256(json.dumps([spec.code, spec.setup, *made_with]).encode()).hexdigest()[:32]


def _give(tree: Path, account: Account) -> None:
    for root, _directories, files in os.walk(tree):
        os.chown(root, account.uid, account.gid)
        for name in files:
            os.chown(Path(root) / name, account.uid, account.gid, follow_symlinks=False)
