"""
Committing local checkpoints: every file checked and stored, the manifest last.

A file whose content is in the newest commit already isn't sent again: the new manifest
names the old bytes. Of a job that trains a few of its weights, that is most of them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from reprieve.domain.checkpoint import FileEntry, Manifest, Measured, data_key, manifest_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from reprieve_agent import checkpoint
from reprieve_agent import events as on
from reprieve_agent.ahead import Ahead
from reprieve_agent.checkpoint import LocalManifest, NotWholeError, OpenFile
from reprieve_agent.clock import boot_seconds
from reprieve_agent.estimator import Estimates
from reprieve_agent.events import Event
from reprieve_agent.ledgers import Ledgers

log = logging.getLogger(__name__)

FILES_AT_ONCE = 4
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
NOTHING_MEASURED = Estimates()


@dataclass(slots=True)
class Uploads:
    """The uploads of one attempt. Each runs in a thread and can be called off."""

    key: LeaseKey
    folder: Path
    store: Checkpoints
    emit: Callable[[Event], None]
    may_commit: Callable[[], bool]
    parent: str | None
    ledgers: Ledgers = field(default_factory=Ledgers)
    host_type: str = ""
    _running: dict[int, threading.Event] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _newest: Manifest | None = None
    _ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        """Make what sends finished files of unfinished saves; it does nothing until hurried."""
        self._ahead = Ahead(self.key, self.folder, self.store, self._known)

    def hurry(self, *, urgent: bool) -> None:
        """While *urgent*, send what a save has finished before the save is whole."""
        if urgent:
            self._ahead.start()
        else:
            self._ahead.end()

    def start(self, step: int, estimates: Estimates = NOTHING_MEASURED) -> None:
        """Commit *step* in a thread of its own, unless that is under way."""
        with self._lock:
            if step in self._running:
                return
            stop = self._running[step] = threading.Event()
        threading.Thread(
            target=self._run, args=(step, estimates, stop), name=f"upload-{step}", daemon=True
        ).start()

    def abort(self, steps: tuple[int, ...] | None = None) -> None:
        """Call off the uploads of *steps*, or all; what isn't committed then never will be."""
        if steps is None:
            self._ahead.abort()
        with self._lock:
            for step, stop in self._running.items():
                if steps is None or step in steps:
                    stop.set()

    def _run(self, step: int, estimates: Estimates, stop: threading.Event) -> None:
        event: Event | None = None
        try:
            event = self._commit(step, estimates, stop)
        except AbortedError:
            log.info("upload called off", extra={"lease": str(self.key), "step": step})
        except (NotWholeError, BadObjectError, OSError) as error:
            event = on.CommitFailed(self.key, step, str(error))
        except Exception as error:
            log.exception("upload failed", extra={"lease": str(self.key), "step": step})
            event = on.CommitFailed(self.key, step, repr(error))
        finally:
            with self._lock:
                del self._running[step]
        if event:
            self.emit(event)

    def _commit(self, step: int, estimates: Estimates, stop: threading.Event) -> Event:
        began = boot_seconds()
        folder = checkpoint.folder_of(self.folder, step)
        if folder is None:
            raise NotWholeError(f"step-{step} is gone")
        with checkpoint.opened(folder, step) as (manifest, files):
            unmeasured = threading.Event()
            entries, sent = self._store_files(step, files, stop, unmeasured)
            uploaded = boot_seconds()
            sent_seconds = None if unmeasured.is_set() else uploaded - began
            told = estimates.saved(
                sent=sent, sent_seconds=sent_seconds, save_seconds=manifest.seconds
            )
            measured = told.on(self.host_type)
            standing = self._write_manifest(manifest, entries, measured, stop)
        self.ledgers.close(step)
        return on.Committed(
            self.key,
            step,
            manifest=standing.key,
            digest=hashlib.sha256(standing.to_json()).hexdigest(),
            bytes=standing.size,
            seconds=boot_seconds() - began,
            uploaded=uploaded,
            sent=sent,
            sent_seconds=sent_seconds,
            save_seconds=manifest.seconds,
        )

    def _store_files(
        self,
        step: int,
        files: tuple[OpenFile, ...],
        stop: threading.Event,
        unmeasured: threading.Event,
    ) -> tuple[tuple[FileEntry, ...], int]:
        """
        Check and send side by side, the largest first; nothing counts before all is done.

        Return the files' entries, and how many bytes had to be sent for them. *unmeasured* is
        set when the time it took says nothing about the link.
        """
        known = self._known(stop)
        save_id = uuid.uuid4().hex
        failed = threading.Event()

        def stopped() -> bool:
            return stop.is_set() or failed.is_set()

        files = self._described(files, stopped)
        largest_first = sorted(files, key=lambda file: file.about.size, reverse=True)
        new = {
            content: file for file in largest_first if (content := _content_of(file)) not in known
        }
        with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="file") as pool:
            sent = {
                content: pool.submit(self._send, step, file, save_id, stopped, unmeasured)
                for content, file in new.items()
            }
            checked = [pool.submit(self._check, file, stopped) for file in largest_first]
            try:
                for check in checked:
                    check.result()
                keys = known | {content: future.result() for content, future in sent.items()}
            except BaseException:
                failed.set()
                raise
        entries = tuple(
            FileEntry(f.about.path, keys[_content_of(f)], f.about.size, _content_of(f)[0])
            for f in files
        )
        return entries, sum(file.about.size for file in new.values())

    def _described(
        self, files: tuple[OpenFile, ...], stopped: Callable[[], bool]
    ) -> tuple[OpenFile, ...]:
        """Read those whose digest the job left to us, while they are being sent."""
        for file in files:
            if file.about.sha256 is None:
                self._ahead.begin(file.descriptor, file.about.path)
        return tuple(
            replace(file, about=replace(file.about, sha256=self._digest(file, stopped)))
            if file.about.sha256 is None
            else file
            for file in files
        )

    def _check(self, file: OpenFile, stopped: Callable[[], bool]) -> None:
        file.compare(self._digest(file, stopped))

    def _digest(self, file: OpenFile, stopped: Callable[[], bool]) -> str:
        """Return the digest of a file; what is sent ahead is read then, and not read again."""
        return self._ahead.sha256(file.descriptor) or file.read(stopped)

    def _known(self, stop: threading.Event) -> dict[tuple[str, int], str]:
        """
        Return where the contents of the newest commit lie.

        Of no older one: what isn't in the newest may be collected while we refer to it.
        """
        with self._lock:
            newest, parent = self._newest, self.parent
        if newest is None and parent is not None:
            found: list[Manifest] = []
            try:
                _until_known(
                    lambda: found.append(self.store.manifest(parent)),
                    what=parent,
                    stopped=stop.is_set,
                )
            except BadObjectError as error:
                log.warning("nothing to compare with", extra={"error": str(error)})
                return {}
            (newest,) = found
            with self._lock:
                self._newest = self._newest or newest
        return {(f.sha256, f.size): f.key for f in newest.files} if newest else {}

    def _send(
        self,
        step: int,
        file: OpenFile,
        save_id: str,
        stopped: Callable[[], bool],
        unmeasured: threading.Event,
    ) -> str:
        about = file.about
        early = self._ahead.take(file.descriptor)
        if early is not None:
            unmeasured.set()
            return early
        fresh = data_key(self.key.job, self.key.attempt, save_id, about.path)
        ledger = self.ledgers.of(step, _content_of(file)[0], key=fresh)
        if ledger.done or ledger.upload_id:
            unmeasured.set()
        if not ledger.done:
            repeated = _until_known(
                lambda: self.store.put_file(
                    ledger.key, file.handle, ledger=ledger, stopped=stopped
                ),
                what=ledger.key,
                stopped=stopped,
            )
            if repeated:
                unmeasured.set()
            ledger.end()
        return ledger.key

    def _write_manifest(
        self,
        local: LocalManifest,
        entries: tuple[FileEntry, ...],
        measured: Measured | None,
        stop: threading.Event,
    ) -> Manifest:
        """Write it while the lease is surely ours; the first commit of a step stands."""
        key = manifest_key(self.key.job, self.key.attempt, local.step)
        while True:
            self._wait_for_lease(stop)
            with self._lock:
                manifest = Manifest(
                    job=self.key.job,
                    attempt=self.key.attempt,
                    token=self.key.token,
                    step=local.step,
                    parent=self.parent if self.parent != key else None,
                    files=entries,
                    saved_at=datetime.now(UTC),
                    framework=local.framework,
                    world_size=local.world_size,
                    measured=measured,
                )
            try:
                standing = self.store.commit(manifest)
            except UnknownOutcomeError as error:
                log.warning("manifest will be written again", extra={"error": str(error)})
                stop.wait(FIRST_PAUSE_SECONDS)
                continue
            with self._lock:
                self.parent, self._newest = standing.key, standing
            if _content(standing) != _content(manifest):
                log.warning("step was committed before, with other content", extra={"key": key})
            return standing

    def _wait_for_lease(self, stop: threading.Event) -> None:
        waited = False
        while not stop.is_set():
            if self.may_commit():
                return
            if not waited:
                log.warning("commit waits for a renewal", extra={"lease": str(self.key)})
            waited = True
            stop.wait(FIRST_PAUSE_SECONDS)
        raise AbortedError("the commit was called off")


def _until_known(call: Callable[[], None], *, what: str, stopped: Callable[[], bool]) -> bool:
    """Repeat *call* over passing trouble until it is stopped; tell whether it was repeated."""
    pause = FIRST_PAUSE_SECONDS
    waiting = threading.Event()
    tries = 0
    while not stopped():
        tries += 1
        try:
            call()
        except UnknownOutcomeError as error:
            log.warning("transfer will be repeated", extra={"key": what, "error": str(error)})
            waiting.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            continue
        return tries > 1
    raise AbortedError(f"the transfer of {what} was called off")


def _content_of(file: OpenFile) -> tuple[str, int]:
    assert file.about.sha256 is not None  # noqa: S101 - it was made where the job gave none
    return file.about.sha256, file.about.size


def _content(manifest: Manifest) -> list[tuple[str, int, str]]:
    return sorted((file.path, file.size, file.sha256) for file in manifest.files)
