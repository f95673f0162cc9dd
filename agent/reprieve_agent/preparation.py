"""What runs before a job does: kept by the same supervisor, so with the same limits."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprieve.domain.lease import LeaseKey
from reprieve.ports.checkpoints import AbortedError
from reprieve_agent.code import SetupError
from reprieve_agent.places import Account, Places
from reprieve_agent.supervisor import JobStart, LaunchError, Supervisor


@dataclass(frozen=True, slots=True)
class Errand:
    """
    One command of one attempt: its ``Setup``, or the fetch of its image.

    *places* are its own; *what* is its name for people.
    """

    what: str
    key: LeaseKey
    argv: Sequence[str]
    env: Mapping[str, str]
    places: Places
    account: Account | None
    supervisor: Supervisor
    stop: threading.Event
    image: str | None = None

    @property
    def begun(self) -> bool:
        """Whether an earlier run of the agent began it: its folder must stay as it is."""
        return self.places.order.exists()

    def run(self, tree: Path) -> None:
        """Run it in *tree*, or wait for it; raise ``SetupError``."""
        self.places.private.mkdir(exist_ok=True)
        start = JobStart(
            key=self.key,
            places=self.places,
            argv=self.argv,
            env={**self.env, "REPRIEVE_TOKEN": self.key.token},
            cwd=tree,
            account=self.account,
            image=self.image,
        )
        try:
            process = self.supervisor.launch(start, not_after=math.inf)
        except LaunchError as error:
            raise SetupError(f"{self.what}: {error}") from error
        how = self.supervisor.wait(self.key, self.places, process)
        if self.stop.is_set() or how.stopped:
            raise AbortedError(f"the {self.what} was called off")
        if how.exit_code:
            raise SetupError(f"{self.what}: {how.detail}")
        if how.exit_code is None:
            raise SetupError(f"{self.what}: nobody saw how it ended")
