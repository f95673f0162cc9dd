"""A whole capacity reservation ends: find our hosts in it, and drain each like any other."""

from __future__ import annotations

from dataclasses import dataclass

from reprieve.domain.notice import ReservationEnding
from reprieve.ports.cloud import Fleet
from reprieve.usecases.handle_notice import Handled, HandleNotice


@dataclass(frozen=True, slots=True)
class EndReservation:
    """
    The use case.

    EC2 is asked, since a host's row doesn't say which reservation it was launched into; what
    it names and no row knows is a stranger's, as with any notice.
    """

    fleet: Fleet
    handle_notice: HandleNotice

    def __call__(self, ending: ReservationEnding) -> list[Handled]:
        """Drain what is in the reservation; raise ``UnknownOutcomeError`` if EC2 can't say."""
        if ending.doubt is not None:
            return []
        hosts = self.fleet.in_reservation(ending.reservation_id)
        return self.handle_notice(ending.notices(sorted(hosts)))
