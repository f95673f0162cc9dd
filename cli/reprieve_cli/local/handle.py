"""A running embedded cloud, as a handle: where it is, how to talk to it, how to end it."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from reprieve_cli.local import processes
from reprieve_cli.local.control import WorldClient

if TYPE_CHECKING:
    from types import TracebackType

ACCOUNT = "000000000000"
REGION = "us-east-1"
_STOP_SECONDS = 5.0


class CloudError(Exception):
    """The embedded cloud can't be had: one line, with what to do."""


@dataclass(slots=True)
class Cloud:
    """A running embedded cloud; as a context manager it stops at the end."""

    endpoint: str
    """Where SDK calls go (AWS_ENDPOINT_URL)."""
    env: dict[str, str]
    """The SDK environment for product code: put it over one without other AWS_* variables."""
    control: WorldClient
    run_dir: Path
    """Logs, hosts' directories, certificates: deleted by ``stop``."""
    notice_seconds: float
    pid: int
    """Of the world, which leads its own process group."""
    region: str = REGION
    account: str = ACCOUNT
    _leash: int | None = field(default=None, repr=False)
    """Our end of the pipe that the world watches; None for a cloud that nobody holds."""

    def environ(self) -> dict[str, str]:
        """Return this process's environment with our AWS settings instead of the user's."""
        others = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
        return {**others, **self.env}

    def stop(self) -> None:
        """End every process of this cloud and delete its run directory; twice is fine."""
        if self._leash is not None:
            os.close(self._leash)  # the world ends itself when it sees this
            self._leash = None
        else:
            with contextlib.suppress(Exception):
                self.control.shutdown()
        if not self._gone(seconds=_STOP_SECONDS):
            processes.end(self.pid, grace_seconds=0)
        self._gone(seconds=_STOP_SECONDS)
        processes.kill_those_in(self.run_dir)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def _gone(self, *, seconds: float) -> bool:
        gone = processes.wait_gone([self.pid], seconds=seconds)
        with contextlib.suppress(ChildProcessError):  # it may be another process's child
            os.waitpid(self.pid, os.WNOHANG)
        return gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
