"""Terminate hosts in two steps, so that nothing they hold can be lost in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprieve.domain.errors import ReprieveError
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
        return instance_id in self.all({instance_id: reason})

    def all(self, reasons: Mapping[str, str]) -> frozenset[str]:
        """
        Retire many, by their reasons; return those that were told to go.

        One that can't be written doesn't keep the others: its trouble is raised at the end.
        """
        going: set[str] = set()
        failures: list[ReprieveError] = []
        for instance_id, reason in reasons.items():
            try:
                row = self.hosts.advance(instance_id, HostState.RETIRING, reason=reason)
            except ReprieveError as error:
                failures.append(error)
                continue
            if row is not None:
                going.add(instance_id)
        going -= self._busy(going)
        self.fleet.terminate(sorted(going))
        if failures:
            message = "some hosts couldn't be retired"
            raise failures[0] if len(reasons) == 1 else ExceptionGroup(message, failures)
        return frozenset(going)

    def _busy(self, instance_ids: set[str]) -> set[str]:
        """Return those that hold a lease by the lease's own row."""
        holds = self.hosts.holds(sorted(instance_ids)) if instance_ids else {}
        named = {key for held in holds.values() for key in held.leases}
        leases = self.jobs.leases(named) if named else {}
        return {
            lease.holder.instance_id
            for lease in leases.values()
            if lease.state is LeaseState.HELD and lease.holder is not None
        }
