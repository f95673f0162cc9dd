"""
Choosing and fetching the checkpoint that an attempt starts from.

Only the job's own lineage counts: the manifests of the last attempt that sealed, newest
first; failing those the base it started from; failing that the base's ancestors. A bad
one (missing, wrong size or digest) is put aside with its reason and the one before is
tried; passing trouble of S3 says nothing about a checkpoint and is waited out.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from reprieve.domain.checkpoint import Manifest, step_of
from reprieve.domain.errors import ReprieveError, UnknownOutcomeError
from reprieve.domain.lease import Lease
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Account

log = logging.getLogger(__name__)

T = TypeVar("T")

FILES_AT_ONCE = 8
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


class NoValidCheckpointError(ReprieveError):
    """The lineage has checkpoints, and every one of them is bad."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What lies in the resume folder; nothing for a fresh start."""

    base: str | None = None
    step: int | None = None


class Quarantine:
    """The bad checkpoints that this host has met, with their reasons."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reasons = {
            key: reason
            for key, reason in (read_json(path) or {}).items()
            if isinstance(reason, str)
        }

    def reason(self, key: str) -> str | None:
        """Return why *key* isn't used."""
        return self._reasons.get(key)

    def add(self, key: str, reason: str) -> None:
        """Remember."""
        self._reasons[key] = reason
        write_json(self._path, self._reasons)


@dataclass(frozen=True, slots=True)
class Restorer:
    """Fills the resume folder of one attempt."""

    store: Checkpoints
    quarantine: Quarantine
    report: Callable[[str, str], None]  # a manifest's key and what is wrong with it
    stopped: Callable[[], bool]

    def restore(self, lease: Lease, target: Path, account: Account | None) -> Restored:
        """Restore the newest good checkpoint of the lineage; none at all is a fresh start."""
        bad = 0
        for key in self._lineage(lease):
            restored = self._try(key, target, account)
            if restored:
                return restored
            bad += 1
        if bad:
            raise NoValidCheckpointError(f"all {bad} checkpoints of the lineage are bad")
        if lease.pointer:
            raise NoValidCheckpointError(
                f"the bucket has none, though {lease.pointer} was committed"
            )
        _empty(target)
        return Restored()

    def restore_exactly(self, key: str | None, target: Path, account: Account | None) -> Restored:
        """Restore the base that the lease already names."""
        if key is None:
            _empty(target)
            return Restored()
        restored = self._try(key, target, account)
        if restored is None:
            raise NoValidCheckpointError(f"{key}, the sealed base, is bad")
        return restored

    def _lineage(self, lease: Lease) -> Iterator[str]:
        job, seen = lease.key.job, set[str]()
        if lease.sealed_attempt > 0:
            for key in self._known(lambda: self.store.manifests(job, lease.sealed_attempt)):
                seen.add(key)
                yield key
        base = lease.base
        while base and base not in seen:
            chain = [base, *self._older(job, base)]
            for key in chain:
                if key not in seen:
                    seen.add(key)
                    yield key
            base = self._ancestor(chain)

    def _older(self, job: str, base: str) -> list[str]:
        """Return the earlier commits of the base's own attempt: its ancestors, also if it's bad."""
        place = step_of(base)
        if place is None:
            return []
        attempt, step = place
        keys = self._known(lambda: self.store.manifests(job, attempt))
        return [key for key in keys if (found := step_of(key)) and found[1] < step]

    def _ancestor(self, chain: list[str]) -> str | None:
        """Return the manifest before this chain, from the first of it that can be read."""
        inside = set(chain)
        for key in reversed(chain):
            try:
                parent = self._known(partial(self.store.manifest, key)).parent
            except BadObjectError:
                continue
            if parent not in inside:
                return parent
        return None

    def _try(self, key: str, target: Path, account: Account | None) -> Restored | None:
        reason = self.quarantine.reason(key)
        if reason is None:
            try:
                manifest = self._known(lambda: self.store.manifest(key))
                self._fetch(manifest, target, account)
            except BadObjectError as error:
                reason = str(error)
                self.quarantine.add(key, reason)
            else:
                return Restored(base=key, step=manifest.step)
        log.warning("checkpoint passed over", extra={"manifest": key, "reason": reason})
        self.report(key, reason)
        return None

    def _fetch(self, manifest: Manifest, target: Path, account: Account | None) -> None:
        """Make *target* hold exactly this checkpoint's files."""
        _empty(target)
        failed = threading.Event()

        def stopped() -> bool:
            return self.stopped() or failed.is_set()

        with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="fetch") as pool:
            fetched = [
                pool.submit(
                    self._known,
                    partial(self.store.fetch, file, target / file.path, stopped=stopped),
                )
                for file in manifest.files
            ]
            try:
                for future in fetched:
                    future.result()
            except BaseException:
                failed.set()
                _empty(target)
                raise
        if account:
            _give(target, account)

    def _known(self, call: Callable[[], T]) -> T:
        """Repeat *call* over passing trouble, for as long as the attempt is ours."""
        pause = FIRST_PAUSE_SECONDS
        waiting = threading.Event()
        while not self.stopped():
            try:
                return call()
            except UnknownOutcomeError as error:
                log.warning("restore will be repeated", extra={"error": str(error)})
                waiting.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        raise AbortedError("the restore was called off")


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _give(folder: Path, account: Account) -> None:
    for root, _directories, files in os.walk(folder):
        os.chown(root, account.uid, account.gid)
        for name in files:
            os.chown(Path(root) / name, account.uid, account.gid, follow_symlinks=False)
