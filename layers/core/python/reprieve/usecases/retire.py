"""Terminate a host in two steps, so that nothing it holds can be lost in between."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.host import HostState
from reprieve.domain.lease import LeaseState
from reprieve.ports.cloud import Fleet
from reprieve.ports.hosts import HostStore
from reprieve.ports.jobs import JobStore


@dataclass(frozen=True, slots=True)
class Retire:
    """
    First RETIRING, which no claim can pass; then look at what is held; then terminate.

    In the other order a host could claim a job between the look and the termination.
    """

    jobs: JobStore
    hosts: HostStore
    fleet: Fleet

    def __call__(self, instance_id: str, *, reason: str) -> bool:
        """Return whether the host was told to go; False if it is busy or not ours."""
        if self.hosts.advance(instance_id, HostState.RETIRING, reason=reason) is None:
            return False
        holds = self.hosts.holds([instance_id]).get(instance_id)
        held = self.jobs.leases(holds.leases) if holds else {}
        busy = any(
            lease.state is LeaseState.HELD
            and lease.holder is not None
            and lease.holder.instance_id == instance_id
            for lease in held.values()
        )
        if busy:
            return False
        self.fleet.terminate([instance_id])
        return True
