"""The setup command: kept by the same supervisor as the job, so with the same limits."""

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
class SetupRun:
    """``Setup`` of one attempt."""

    key: LeaseKey
    argv: Sequence[str]
    env: Mapping[str, str]
    places: Places
    account: Account | None
    supervisor: Supervisor
    stop: threading.Event

    @property
    def begun(self) -> bool:
        """Whether an earlier run of the agent began it: its folder must stay as it is."""
        return self.places.setup.order.exists()

    def run(self, tree: Path) -> None:
        """Run it in *tree*, or wait for it; raise ``SetupError``."""
        setup = self.places.setup
        setup.private.mkdir(exist_ok=True)
        start = JobStart(
            key=self.key,
            places=setup,
            argv=self.argv,
            env=self.env,
            cwd=tree,
            account=self.account,
        )
        try:
            process = self.supervisor.launch(start, not_after=math.inf)
        except LaunchError as error:
            raise SetupError(f"setup: {error}") from error
        how = self.supervisor.wait(self.key, setup, process)
        if self.stop.is_set():
            raise AbortedError("the setup was called off")
        if how.exit_code:
            raise SetupError(f"setup: {how.detail}")
        if how.exit_code is None:
            raise SetupError("setup: nobody saw how it ended")
