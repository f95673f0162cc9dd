"""
Making checkpoints of what a job without the helper leaves in its output folder.

Once a folder of a profile's kind is quiet it is linked under the contract's name, checked
there, described in a manifest and renamed: from then on it is a checkpoint like any other.
Links cost no space, and the job's own rotation can't take the files away from an upload.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from reprieve.domain.checkpoint import step_of
from reprieve.domain.lease import LeaseKey
from reprieve_agent import events as on
from reprieve_agent.checkpoint import MANIFEST
from reprieve_agent.clock import boot_seconds
from reprieve_agent.events import Event
from reprieve_agent.files import write_json
from reprieve_agent.places import Account, Places
from reprieve_agent.profiles import Candidate, Profile, Whole, WreckError

log = logging.getLogger(__name__)

HASHED_AT_ONCE = 4

Mark = tuple[tuple[int, int, int], ...]
"""Size, time of change and inode of each file."""


def lay_out(places: Places, account: Account | None) -> None:
    """
    Show the job the restored checkpoint where it would have left it.

    A script that looks into its own output folder for where to go on so needs no change. The
    manifest stays out of it: that is no file of the job's.
    """
    shutil.rmtree(places.output, ignore_errors=True)
    places.output.mkdir()
    places.output.chmod(0o770)
    for root, folders, names in os.walk(places.resume):
        inside = places.output / Path(root).relative_to(places.resume)
        for name in folders:
            (inside / name).mkdir()
        made = [inside / name for name in names if inside / name != places.output / MANIFEST]
        for target in made:
            _link_or_copy(Path(root, target.name), target)
        if account:
            for path in (inside, *made):
                os.chown(path, account.uid, account.gid)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def step_in(manifest: str | None) -> int:
    """Return the step of a committed manifest, -1 if there is none."""
    place = step_of(manifest) if manifest else None
    return place[1] if place else -1


@dataclass(slots=True)
class Adopter:
    """
    Looks for new checkpoints of one attempt, beside its job.

    ``after`` is the step that is durable already, ``busy`` tells which files the job has
    open for writing.
    """

    key: LeaseKey
    places: Places
    profile: Profile
    after: int
    quiet_seconds: float
    busy: Callable[[], set[str]]
    emit: Callable[[Event], None]
    _seen: dict[str, tuple[Mark, float]] = field(default_factory=dict)
    _judged: dict[str, tuple[Mark, str]] = field(default_factory=dict)
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Look in a thread of its own."""
        threading.Thread(target=self._run, name="adopter", daemon=True).start()

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()

    def finish(self, *, by: float | None) -> None:
        """
        Look a last time, the job being gone: what isn't whole now never will be.

        Return at *by*, on the boot clock, at the latest: then an older commit has to do.
        """
        self.end()
        looking = threading.Thread(target=self._look_calmly, kwargs={"final": True}, daemon=True)
        looking.start()
        looking.join(None if by is None else max(by - boot_seconds(), 0.0))
        if looking.is_alive():
            log.error("no time to look at the last checkpoint", extra={"lease": str(self.key)})

    def look(self, *, final: bool = False) -> None:
        """Make a checkpoint of the newest step that is one."""
        with self._looking:
            for candidate in self._newer():
                mark = _mark(self.places.output, candidate)
                if not final and not self._is_quiet(candidate, mark):
                    continue
                fault = self._adopted(candidate, mark)
                if fault is None:
                    return  # older ones have nothing to offer now
                if final:
                    self._give_up(candidate, fault)

    def _run(self) -> None:
        while not self._ended.wait(self.quiet_seconds / 4):
            self._look_calmly()

    def _look_calmly(self, *, final: bool = False) -> None:
        try:
            self.look(final=final)
        except Exception:  # whatever a job writes there, what follows must come
            log.exception("output folder can't be read", extra={"lease": str(self.key)})

    def _newer(self) -> list[Candidate]:
        """Return what may be newer than the newest durable step; the newest first."""
        found = self.profile.candidates(self.places.output)
        newer = [c for c in found if c.step is None or c.step > self.after]
        return sorted(newer, key=lambda candidate: candidate.step or 0, reverse=True)

    def _is_quiet(self, candidate: Candidate, mark: Mark) -> bool:
        now = boot_seconds()
        seen, since = self._seen.get(candidate.name, (None, now))
        if seen != mark:
            self._seen[candidate.name] = (mark, now)
            return False
        if now - since < self.quiet_seconds:
            return False
        open_now = self.busy()
        return not any(str(self.places.output / path) in open_now for path in candidate.paths)

    def _give_up(self, candidate: Candidate, fault: str) -> None:
        if candidate.step is not None:
            why = f"{candidate.name}: {fault}"
            self.emit(on.CommitFailed(self.key, candidate.step, why))
        if candidate.name in self._judged:  # a wreck: an older one may need its space
            for path in candidate.paths:
                (self.places.output / path).unlink(missing_ok=True)

    def _adopted(self, candidate: Candidate, mark: Mark) -> str | None:
        """Keep *candidate* as a checkpoint, or say why not; a wreck is judged once."""
        known, why = self._judged.get(candidate.name, (None, ""))
        if known == mark:
            return why
        try:
            self._adopt(candidate, mark)
        except OSError as error:  # of this host, as a full disk is: it may pass
            why = str(error)
        except WreckError as error:
            why = str(error)
            self._judged[candidate.name] = (mark, why)
        except Exception as error:
            log.exception("checkpoint can't be judged", extra={"found": candidate.name})
            why = f"it can't be judged: {error!r}"
            self._judged[candidate.name] = (mark, why)
        else:
            return None
        facts = {"lease": str(self.key), "found": candidate.name, "reason": why}
        log.warning("no checkpoint", extra=facts)
        return why

    def _adopt(self, candidate: Candidate, mark: Mark) -> None:
        """
        Keep *candidate* as a checkpoint; raise ``WreckError``.

        What is looked at is the linked files: the job may rotate its own away meanwhile, but
        not write to them.
        """
        draft = self.places.private / "adopting"  # ours alone: the job can't put links there
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            for path in candidate.paths:
                _link(self.places.output, path, draft)
            whole = self.profile.check(draft, candidate)
            if candidate.step is None:
                raise WreckError("nothing tells its step")
            self._describe(draft, candidate, candidate.step, whole)
            if _mark(draft, candidate) != mark:
                raise WreckError("it changed while it was looked at")
            draft.rename(self.places.checkpoints / f"step-{candidate.step}")
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self.after = candidate.step
        log.info(
            "checkpoint adopted",
            extra={"lease": str(self.key), "step": candidate.step, "found": candidate.name},
        )

    def _describe(self, draft: Path, candidate: Candidate, step: int, whole: Whole) -> None:
        for name, content in whole.extra.items():
            (draft / name).write_bytes(content)
        paths = [*candidate.paths, *whole.extra]
        with ThreadPoolExecutor(HASHED_AT_ONCE, thread_name_prefix="hash") as pool:
            files = list(pool.map(partial(_described, draft), paths))
        manifest = {
            "v": 1,
            "step": step,
            "attempt": self.key.attempt,
            "world_size": whole.world_size,
            "framework": self.profile.name,
            "files": files,
        }
        write_json(draft / MANIFEST, manifest)


def _mark(root: Path, candidate: Candidate) -> Mark:
    mark = []
    for path in candidate.paths:
        with suppress(OSError):
            status = (root / path).lstat()
            mark.append((status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(mark)


def _described(folder: Path, path: str) -> dict[str, object]:
    with (folder / path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": path, "size": os.fstat(file.fileno()).st_size, "sha256": digest}


def _link(output: Path, path: str, draft: Path) -> None:
    """
    Link one file, no part of its path being a link; raise ``WreckError``.

    The job chooses the names, and the agent may read more than the job.
    """
    *parents, name = PurePosixPath(path).parts
    target = draft.joinpath(*parents)
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        folder = None
        for parent in (str(output), *parents):
            folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
        os.link(name, target / name, src_dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG((target / name).lstat().st_mode):
        raise WreckError(f"{path} isn't a plain file")
