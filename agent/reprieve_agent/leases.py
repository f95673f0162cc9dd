"""
The lease, kept by a thread of its own in every phase.

Nothing else the host does may delay a renewal, and all lease calls of the host pass one
at a time through here, so that no renewal can cross the release of the same lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from botocore.exceptions import ClientError

from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import LeaseLostError, NotAdoptedError
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, Outcome, Phase
from reprieve.ports.leases import Claim, HostLeases, Progress
from reprieve_agent import events as on
from reprieve_agent.clock import boot_seconds
from reprieve_agent.events import Event
from reprieve_agent.state import Ending

log = logging.getLogger(__name__)

T = TypeVar("T")

# Of one lease: after so much of it without a renewal the host stops committing, by its
# own clock, well before anybody else could have counted it out.
COMMIT_FRACTION = 5 / 6
RETRIES_PER_RENEWAL = 4
LONGEST_PAUSE_SECONDS = 5.0


# Answers that mean that the table or our role is gone; a throttle or an outage is neither.
REFUSALS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "ResourceNotFoundException",
        "UnrecognizedClientException",
    }
)


class ClosedError(Exception):
    """The agent ends; a call that was being repeated is given up."""


@dataclass(frozen=True, slots=True)
class _Followed:
    key: LeaseKey
    progress: Progress


class LeaseDesk:
    """Every lease call of this host."""

    def __init__(
        self,
        leases: HostLeases,
        holder: Holder,
        clock: NoticeClock,
        emit: Callable[[Event], None],
        *,
        metadata_answers: Callable[[], bool],
    ) -> None:
        self._leases = leases
        self._holder = holder
        self._emit = emit
        self._metadata_answers = metadata_answers
        self._renewal = clock.renewal.total_seconds()
        self._commit_for = clock.lease.total_seconds() * COMMIT_FRACTION
        self._call = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._followed: _Followed | None = None
        self._read: LeaseKey | None = None
        self._over: LeaseKey | None = None
        self._renewed_at: float | None = None
        self._failures = 0
        self._asked: LeaseKey | None = None
        self.last_contact = boot_seconds()
        self.last_try = self.last_contact

    def start(self) -> None:
        """Renew, or beat while idle, in a thread of its own."""
        threading.Thread(target=self.run, name="lease", daemon=True).start()

    def end(self) -> None:
        """Stop; calls that are being repeated are given up."""
        self._ended.set()
        self._wake.set()

    def follow(self, key: LeaseKey | None, progress: Progress | None) -> None:
        """Renew *key* from now on, telling *progress*; None: be idle."""
        known = self._followed
        wanted = _Followed(key, progress) if key and progress else None
        self._followed = wanted
        if (known and known.key) != key:
            self._read, self._renewed_at, self._over = None, None, None
            self._wake.set()
        elif known and wanted and _newly_committed(known.progress, wanted.progress):
            self._wake.set()

    def renew_now(self, key: LeaseKey) -> None:
        """Renew at once and say so with ``Renewed``."""
        self._asked = key
        self._wake.set()

    def may_commit(self, key: LeaseKey) -> bool:
        """Whether the lease was surely ours a moment ago, by our own clock."""
        followed, renewed_at = self._followed, self._renewed_at
        if followed is None or followed.key != key or renewed_at is None or self._over == key:
            return False
        return boot_seconds() - renewed_at < self._commit_for

    def claim(self, key: LeaseKey) -> Claim:
        """Try a ticket until the table gives an answer."""
        return self._repeat(lambda: self._leases.claim(key, self._holder), "claim", key)

    def seal(self, key: LeaseKey, base: str | None) -> tuple[Lease, float]:
        """Write the lineage, always with the same base; return the row and when it was sent."""
        sent = boot_seconds()

        def write() -> Lease:
            nonlocal sent
            sent = boot_seconds()
            return self._leases.seal(key, self._holder, base)

        return self._repeat(write, "seal", key), sent

    def release(
        self, key: LeaseKey, ending: Ending, exit_code: int | None, progress: Progress
    ) -> None:
        """Write the outcome; nothing renews this lease afterwards."""

        def write() -> None:
            self._leases.release(
                key,
                self._holder,
                outcome=ending.outcome,
                cause=ending.cause,
                exit_code=exit_code,
                progress=progress,
                detail=ending.detail,
            )
            self._over = key

        self._repeat(write, "release", key)

    def release_stray(self, key: LeaseKey, cause: Cause) -> None:
        """Give up, as interrupted, what is held and not run; forget it if it isn't ours."""
        ending = Ending(Outcome.INTERRUPTED, cause, "held, but not running on this host")
        try:
            self.release(key, ending, None, Progress(phase=Phase.CLAIMED))
        except LeaseLostError:
            self.drop_hold(key)

    def drop_hold(self, key: LeaseKey) -> None:
        """Take a lost lease out of HOLDS, or no terminate would ever pass."""
        self._repeat(
            lambda: self._leases.drop_hold(self._holder.instance_id, key), "drop hold", key
        )

    def run(self) -> None:
        """Renew or beat until ended."""
        pause = 0.0
        while not self._ended.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            if self._ended.is_set():
                return
            self.last_try = boot_seconds()
            try:
                pause = self._renewal if self._beat() else self._renewal / RETRIES_PER_RENEWAL
            except Exception:  # this thread must outlive every surprise
                log.exception("lease beat failed")
                pause = self._renewal / RETRIES_PER_RENEWAL

    def _beat(self) -> bool:
        """Make one call; tell whether the table answered."""
        try:
            with self._call:
                followed = self._followed
                if followed is None:
                    self._idle()
                elif followed.key != self._over:
                    self._renew(followed)
        except Exception as error:  # noqa: BLE001 - whatever it was, the beat didn't get through
            self._failed(error)
            return False
        if self._failures:
            log.info("lease calls get through again", extra={"failures": self._failures})
        self._failures = 0
        self.last_contact = boot_seconds()
        return True

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        silent, refused = boot_seconds() - self.last_contact, _is_refusal(error)
        # The first one, and then ever more rarely: an outage must not fill the disk.
        if self._failures & (self._failures - 1) == 0:
            log.warning(
                "lease call failed",
                extra={"error": repr(error), "silent_s": silent, "failures": self._failures},
            )
        self._emit(on.Isolated(silent, metadata=self._metadata_answers(), refused=refused))

    def _idle(self) -> None:
        try:
            holds = self._leases.idle(self._holder.instance_id)
        except NotAdoptedError:
            self._emit(on.NotAdopted())
        else:
            self._emit(on.HoldsRead(holds))

    def _renew(self, followed: _Followed) -> None:
        key = followed.key
        asked = self._asked == key
        sent = boot_seconds()
        try:
            lease = self._leases.renew(key, self._holder, followed.progress)
        except LeaseLostError:
            self._over = key
            self._emit(on.LeaseLost(key))
            return
        now_followed = self._followed
        if now_followed and now_followed.key == key:
            self._renewed_at = sent
        if self._read != key:
            self._read = key
            self._emit(on.LeaseRead(key, lease))
        if asked:
            self._asked = None
            self._emit(on.Renewed(key, sent))

    def _repeat(self, call: Callable[[], T], what: str, key: LeaseKey) -> T:
        """Call until the table answers; between two tries others may call."""
        pause = self._renewal / 50
        while not self._ended.is_set():
            try:
                with self._call:
                    answer = call()
            except LeaseLostError:
                self.last_contact = boot_seconds()
                raise
            except Exception as error:  # noqa: BLE001 - unknown outcome, or not reached at all
                log.warning(
                    "lease call will be repeated",
                    extra={"call": what, "lease": str(key), "error": repr(error)},
                )
                self._ended.wait(pause)
                pause = min(pause * 2, self._renewal, LONGEST_PAUSE_SECONDS)
                continue
            self.last_contact = boot_seconds()
            return answer
        raise ClosedError(what)


def _is_refusal(error: BaseException | None) -> bool:
    """Whether AWS answered that it won't have us, directly or behind an error of ours."""
    while error is not None:
        if isinstance(error, ClientError):
            return error.response.get("Error", {}).get("Code") in REFUSALS
        error = error.__cause__
    return False


def _newly_committed(known: Progress, wanted: Progress) -> bool:
    return known.committed_step != wanted.committed_step
