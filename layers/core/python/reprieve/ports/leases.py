"""The lease as a host uses it: conditional updates on existing rows, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reprieve.domain.lease import Cause, Holder, Holds, Lease, LeaseKey, Outcome, Phase


class Claim(StrEnum):
    """What became of a ticket."""

    WON = "won"
    TAKEN = "taken"  # HELD by another, DONE or CLOSED: delete the ticket
    MISSING = "missing"  # no such row: leave the ticket to its dead-letter queue
    NOT_READY = "host not ready"  # give the ticket back at once and stop receiving


@dataclass(frozen=True, slots=True)
class Progress:
    """What a renewal tells; None leaves the row's value as it is."""

    phase: Phase
    step: int | None = None
    restored_step: int | None = None
    committed_step: int | None = None
    committed_manifest: str | None = None


class HostLeases(Protocol):
    """
    What a host may do with leases.

    ``LeaseLostError``: the row says that the lease isn't ours, so the job must stop.
    ``UnknownOutcomeError``: throttled, timed out or in conflict, so ask again.
    """

    def claim(self, key: LeaseKey, holder: Holder) -> Claim:
        """
        Take a FREE lease in one transaction with HOST = READY and empty HOLDS.

        A row that already shows *holder* counts as won: the answer of an earlier try was lost.
        """

    def renew(self, key: LeaseKey, holder: Holder, progress: Progress) -> Lease:
        """Raise the beat and return the whole row."""

    def seal(self, key: LeaseKey, holder: Holder, base: str | None) -> Lease:
        """
        Fix the lineage: this attempt starts from the manifest *base* (None: from nothing).

        Written once; repeating the same base is fine. If the row is already sealed with
        another base, that row is returned and its base is the one to use.
        """

    def release(
        self,
        key: LeaseKey,
        holder: Holder,
        *,
        outcome: Outcome,
        cause: Cause,
        exit_code: int | None,
        progress: Progress,
        detail: str = "",
    ) -> None:
        """Write the outcome and give the lease up, clearing it from HOLDS, in one transaction."""

    def idle(self, instance_id: str) -> Holds:
        """Raise the idle beat; return what the host holds. ``NotAdoptedError``: not ours yet."""

    def drop_hold(self, instance_id: str, key: LeaseKey) -> None:
        """Forget a lease that a refused renewal showed to be lost."""
