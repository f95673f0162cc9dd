"""What accompanies a job while its process lives and its checkpoints are sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from reprieve.domain.lease import LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve_agent import contract, processes, profiles
from reprieve_agent.adoption import Adopter, step_in
from reprieve_agent.contract import Watcher
from reprieve_agent.events import Event
from reprieve_agent.ledgers import Ledgers
from reprieve_agent.places import Places
from reprieve_agent.state import Process
from reprieve_agent.supervisor import marker
from reprieve_agent.surroundings import Outside
from reprieve_agent.upload import Uploads

QUIET_OF_NOTICE = 1 / 60  # 2 s without a write: a folder is finished


@dataclass(frozen=True, slots=True)
class Companions:
    """One job's: what reads its words, sends its steps, and makes steps of its own folders."""

    watcher: Watcher
    uploads: Uploads
    adopter: Adopter | None = None

    @classmethod
    def of(
        cls,
        key: LeaseKey,
        spec: JobSpec,
        places: Places,
        process: Process,
        *,
        outside: Outside,
        notice: timedelta,
        parent: str | None,
        host_type: str,
        emit: Callable[[Event], None],
    ) -> Self:
        """Return those of *process*, whose checkpoints come after *parent*."""
        calm, urgent = contract.periods(notice.total_seconds())
        profile = profiles.parse(spec.profile)
        adopter = None
        if profile:
            adopter = Adopter(
                key,
                places,
                profile,
                after=step_in(parent),
                quiet_seconds=notice.total_seconds() * QUIET_OF_NOTICE,
                busy=lambda: processes.writing(process.keeper, marker(key)),
                emit=emit,
            )
        return cls(
            watcher=Watcher(key, places, emit, calm, urgent),
            uploads=Uploads(
                key,
                places.checkpoints,
                outside.store,
                emit,
                may_commit=lambda: outside.desk.may_commit(key),
                parent=parent,
                ledgers=Ledgers(places.private / "ledgers"),
                host_type=host_type,
            ),
            adopter=adopter,
        )

    def start(self) -> None:
        """Begin to watch."""
        self.watcher.start()
        if self.adopter:
            self.adopter.start()

    def end(self) -> None:
        """Stop all of it; what isn't committed now never will be."""
        self.watcher.end()
        self.uploads.abort()
        if self.adopter:
            self.adopter.end()
