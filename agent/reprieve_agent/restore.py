"""
Choosing and fetching the checkpoint that an attempt starts from.

Only the job's own lineage counts: the manifests of the last attempt that sealed, newest
first; failing those the base it started from; failing that the base's ancestors. A bad
one (missing, wrong size or digest) is set aside in the bucket with its reason, so that no
other host fetches it again, and the one before is tried. Passing trouble of S3 says
nothing about a checkpoint and is waited out.

A mark spares a download and condemns nothing by itself: a host with bad memory finds
fault with what is good. Before an attempt gives up, what others set aside is checked again.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from reprieve.domain.checkpoint import Manifest, Measured, step_of
from reprieve.domain.errors import ReprieveError, UnknownOutcomeError
from reprieve.domain.lease import Lease
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from reprieve_agent.checkpoint import MANIFEST
from reprieve_agent.files import write_json
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
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Restorer:
    """Fills the resume folder of one attempt; *by* is the host, for those who read its marks."""

    store: Checkpoints
    report: Callable[[str, str], None]  # a manifest's key and what is wrong with it
    stopped: Callable[[], bool]
    by: str = ""

    def restore(self, lease: Lease, target: Path, account: Account | None) -> Restored:
        """Restore the newest good checkpoint of the lineage; none at all is a fresh start."""
        marks = self._known(lambda: self.store.marks(lease.key.job))
        marked, gaps = [], Gaps(self._pass_over)
        for key in self._lineage(lease):
            gaps.reached(key)
            if key in marks:
                self._pass_over(key, f"set aside before: {marks[key]}")
                marked.append(key)
            elif restored := self._try(key, target, account, gaps):
                return restored
        gaps.reached(None)
        for key in marked:
            if restored := self._try(key, target, account, gaps):
                return restored
        if gaps.seen:
            raise NoValidCheckpointError(f"all {len(gaps.seen)} checkpoints of the lineage are bad")
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
        restored = self._try(key, target, account, Gaps(self._pass_over))
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

    def _try(self, key: str, target: Path, account: Account | None, gaps: Gaps) -> Restored | None:
        try:
            manifest = self._known(lambda: self.store.manifest(key))
            gaps.expect(manifest.parent)
            self._fetch(manifest, target, account)
        except BadObjectError as error:
            self._set_aside(key, str(error))
            return None
        return Restored(base=key, step=manifest.step, measured=manifest.measured)

    def _set_aside(self, key: str, reason: str) -> None:
        try:
            self.store.set_aside(key, reason, by=self.by)
        except UnknownOutcomeError as error:  # it costs the next host a download
            log.warning("mark not written", extra={"manifest": key, "error": str(error)})
        self._pass_over(key, reason)

    def _pass_over(self, key: str, reason: str) -> None:
        log.warning("checkpoint passed over", extra={"manifest": key, "reason": reason})
        self.report(key, reason)

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
        _describe(manifest, target)
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


@dataclass(slots=True)
class Gaps:
    """
    Names the checkpoints that a later one continued from, and that aren't there any more.

    Nobody lists what doesn't exist; but who is told why step 300 was passed over for step
    100 wants to hear of step 200, too.
    """

    tell: Callable[[str, str], None]
    seen: set[str] = field(default_factory=set)
    _expected: str | None = None

    def expect(self, parent: str | None) -> None:
        """Note what the checkpoint at hand continued from."""
        self._expected = parent

    def reached(self, key: str | None) -> None:
        """Go on to the next one of the lineage, None after the last."""
        expected, self._expected = self._expected, None
        if expected and expected != key and expected not in self.seen and _between(expected, key):
            self.tell(expected, "its manifest doesn't exist")
        if key:
            self.seen.add(key)


def _between(expected: str, key: str | None) -> bool:
    """Whether *expected* comes before *key* in a walk from the newest to the oldest."""
    wanted, found = step_of(expected), step_of(key) if key else None
    return wanted is not None and (found is None or wanted > found)


def _describe(manifest: Manifest, target: Path) -> None:
    """Say in the job's own form what was restored; last, as the job wrote it."""
    if any(file.path == MANIFEST for file in manifest.files):
        return
    files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in manifest.files]
    content = {
        "v": 1,
        "step": manifest.step,
        "attempt": manifest.attempt,
        "world_size": manifest.world_size,
        "framework": manifest.framework,
        "files": files,
    }
    write_json(target / MANIFEST, content)


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
