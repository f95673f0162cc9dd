"""Where the things of one attempt lie on this host."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from reprieve.domain.lease import LeaseKey

LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged user a job runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    name: str

    @classmethod
    def named(cls, name: str) -> Account:
        """Look the user up; raise ``KeyError`` if there is none."""
        entry = pwd.getpwnam(name)
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        return cls(entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, name)


@dataclass(frozen=True, slots=True)
class Places:
    """
    The folders of one attempt.

    ``private`` is the agent's own; ``contract``, ``checkpoints``, ``resume`` and ``work`` are
    shared with the job. ``contract`` lies in the run directory, which is memory on a real host.
    """

    name: str
    private: Path
    contract: Path
    log: Path  # all that the setup command and the job printed

    @classmethod
    def of(cls, key: LeaseKey, *, state_dir: Path, run_dir: Path) -> Places:
        """Return the places of one attempt; a hostile job name can't lead out of them."""
        name = f"{quote(key.job, safe='')[:LONGEST_NAME]}-{key.attempt:06d}"
        private = state_dir / "attempts" / name
        return cls(name, private, run_dir / "jobs" / name, private / "job.log")

    @property
    def setup(self) -> Places:
        """The places of the setup command, which runs before the job and as the job does."""
        return replace(self, name=f"{self.name}-setup", private=self.private / "setup")

    @property
    def image(self) -> Places:
        """The places of the fetch of a container's image."""
        return replace(self, name=f"{self.name}-image", private=self.private / "image")

    @property
    def checkpoints(self) -> Path:
        """Where the job saves."""
        return self.private / "checkpoints"

    @property
    def resume(self) -> Path:
        """Empty, or exactly one verified checkpoint."""
        return self.private / "resume"

    @property
    def output(self) -> Path:
        """Where a job without the helper saves, in its framework's own way."""
        return self.private / "output"

    @property
    def python(self) -> Path:
        """What the job's Python finds beside its own packages: the helper."""
        return self.private / "python"

    @property
    def work(self) -> Path:
        """The working directory of a job that brought no code."""
        return self.private / "work"

    @property
    def log_sent(self) -> Path:
        """How much of the log its stream has."""
        return self.private / "log-sent.json"

    @property
    def order(self) -> Path:
        """What the keeper is to start."""
        return self.private / "order.json"

    @property
    def secrets(self) -> Path:
        """The pipe by which the keeper gets the values that no file may hold."""
        return self.private / "secrets"

    @property
    def process(self) -> Path:
        """Which processes the keeper started."""
        return self.private / "process.json"

    @property
    def exit(self) -> Path:
        """How the job ended."""
        return self.private / "exit.json"

    def make(self, account: Account | None) -> None:
        """Make the folders; those that the job writes to belong to its user."""
        for folder in (self.private, self.contract):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.checkpoints, self.resume, self.work, self.contract):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o770)
            if account:
                os.chown(folder, account.uid, account.gid)

    def remove(self) -> None:
        """Delete everything of this attempt; what can't be deleted costs space only."""
        shutil.rmtree(self.contract, ignore_errors=True)
        shutil.rmtree(self.private, ignore_errors=True)
