"""Committing local checkpoints: every file checked and stored, the manifest last."""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from reprieve.domain.checkpoint import FileEntry, Manifest, data_key, manifest_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from reprieve_agent import checkpoint
from reprieve_agent import events as on
from reprieve_agent.checkpoint import LocalManifest, NotWholeError, OpenFile
from reprieve_agent.clock import boot_seconds
from reprieve_agent.events import Event

log = logging.getLogger(__name__)

FILES_AT_ONCE = 4
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True)
class Uploads:
    """The uploads of one attempt. Each runs in a thread and can be called off."""

    key: LeaseKey
    folder: Path
    store: Checkpoints
    emit: Callable[[Event], None]
    may_commit: Callable[[], bool]
    parent: str | None
    _running: dict[int, threading.Event] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, step: int) -> None:
        """Commit *step* in a thread of its own, unless that is under way."""
        with self._lock:
            if step in self._running:
                return
            stop = self._running[step] = threading.Event()
        threading.Thread(
            target=self._run, args=(step, stop), name=f"upload-{step}", daemon=True
        ).start()

    def abort(self, steps: tuple[int, ...] | None = None) -> None:
        """Call off the uploads of *steps*, or all; what isn't committed then never will be."""
        with self._lock:
            for step, stop in self._running.items():
                if steps is None or step in steps:
                    stop.set()

    def _run(self, step: int, stop: threading.Event) -> None:
        event: Event | None = None
        try:
            event = self._commit(step, stop)
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

    def _commit(self, step: int, stop: threading.Event) -> Event:
        began = boot_seconds()
        folder = checkpoint.folder_of(self.folder, step)
        if folder is None:
            raise NotWholeError(f"step-{step} is gone")
        with checkpoint.opened(folder, step) as (manifest, files):
            entries = self._store_files(files, stop)
            uploaded = boot_seconds()
            standing = self._write_manifest(manifest, entries, stop)
        return on.Committed(
            self.key,
            step,
            manifest=standing.key,
            digest=hashlib.sha256(standing.to_json()).hexdigest(),
            bytes=standing.size,
            seconds=boot_seconds() - began,
            uploaded=uploaded,
        )

    def _store_files(
        self, files: tuple[OpenFile, ...], stop: threading.Event
    ) -> tuple[FileEntry, ...]:
        """Check and send side by side, the largest first; nothing counts before all is done."""
        save_id = uuid.uuid4().hex
        failed = threading.Event()

        def stopped() -> bool:
            return stop.is_set() or failed.is_set()

        largest_first = sorted(files, key=lambda file: file.about.size, reverse=True)
        with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="file") as pool:
            sent = [pool.submit(self._send, file, save_id, stopped) for file in largest_first]
            checked = [pool.submit(file.verify, stopped) for file in largest_first]
            try:
                for check in checked:
                    check.result()
                entries = [future.result() for future in sent]
            except BaseException:
                failed.set()
                raise
        order = {file.about.path: place for place, file in enumerate(files)}
        return tuple(sorted(entries, key=lambda entry: order[entry.path]))

    def _send(self, file: OpenFile, save_id: str, stopped: Callable[[], bool]) -> FileEntry:
        about = file.about
        key = data_key(self.key.job, self.key.attempt, save_id, about.path)
        _until_known(
            lambda: self.store.put_file(key, file.handle, stopped=stopped),
            what=key,
            stopped=stopped,
        )
        return FileEntry(about.path, key, about.size, about.sha256)

    def _write_manifest(
        self, local: LocalManifest, entries: tuple[FileEntry, ...], stop: threading.Event
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
                )
            try:
                standing = self.store.commit(manifest)
            except UnknownOutcomeError as error:
                log.warning("manifest will be written again", extra={"error": str(error)})
                stop.wait(FIRST_PAUSE_SECONDS)
                continue
            with self._lock:
                self.parent = standing.key
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


def _until_known(call: Callable[[], None], *, what: str, stopped: Callable[[], bool]) -> None:
    """Repeat *call* over passing trouble until it is stopped."""
    pause = FIRST_PAUSE_SECONDS
    waiting = threading.Event()
    while not stopped():
        try:
            call()
        except UnknownOutcomeError as error:
            log.warning("transfer will be repeated", extra={"key": what, "error": str(error)})
            waiting.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            continue
        return
    raise AbortedError(f"the transfer of {what} was called off")


def _content(manifest: Manifest) -> list[tuple[str, int, str]]:
    return sorted((file.path, file.size, file.sha256) for file in manifest.files)
