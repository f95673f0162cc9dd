"""Where an agent runs, and what it works with."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reprieve.ports.checkpoints import Checkpoints
from reprieve.protocol import Scalar
from reprieve_agent.gpus import Gpus
from reprieve_agent.leases import LeaseDesk
from reprieve_agent.log_stream import LogGroup
from reprieve_agent.metadata import Identity
from reprieve_agent.places import Account
from reprieve_agent.reports import Reports
from reprieve_agent.supervisor import Supervisor
from reprieve_agent.work import WorkQueue

if TYPE_CHECKING:
    from reprieve_agent.credentials import JobRole


@dataclass(frozen=True, slots=True)
class Host:
    """Where this agent runs, and as whom its jobs do."""

    identity: Identity
    boot_id: str
    account: Account | None

    @property
    def home(self) -> str:
        """The home directory of jobs."""
        return self.account.home if self.account else pwd.getpwuid(os.getuid()).pw_dir

    @property
    def user(self) -> str:
        """The name of the user they run as, if it isn't the agent's own."""
        return self.account.name if self.account else ""

    @property
    def facts(self) -> dict[str, Scalar]:
        """What the first report tells."""
        return {
            "boot": self.boot_id,
            "type": self.identity.type,
            "zone": self.identity.zone,
            "market": self.identity.market.value,
        }


@dataclass(frozen=True, slots=True)
class Outside:
    """What the agent works with."""

    desk: LeaseDesk
    work: WorkQueue
    reports: Reports
    store: Checkpoints
    supervisor: Supervisor
    role: JobRole | None = None
    gpus: Gpus | None = None  # None: not this host's own, so nobody asks
    log_group: LogGroup | None = None  # None: jobs' output goes to the bucket alone
