"""
The instance metadata service: who this host is, and whether it is about to go.

One connection, kept alive: the service limits connections per instance, and a new one
costs half as much processor time again as the poll itself.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Protocol
from urllib.parse import urlsplit

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import Market
from reprieve.domain.notice import Channel, Doubt, Notice, NoticeKind
from reprieve.protocol import EARLIEST, LATEST
from reprieve_agent.clock import boot_seconds

log = logging.getLogger(__name__)

DEFAULT_ENDPOINT = "http://169.254.169.254"
TOKEN_TTL_SECONDS = 21600
TIMEOUT_SECONDS = 2.0

SPOT_ACTION = "latest/meta-data/spot/instance-action"
REBALANCE = "latest/meta-data/events/recommendations/rebalance"
MAINTENANCE = "latest/meta-data/events/maintenance/scheduled"

# Advice and maintenance come minutes to days ahead: every poll needn't ask for them.
REBALANCE_EVERY = 3
MAINTENANCE_EVERY = 60
LONGEST_POLL_SECONDS = 1.0
POLLS_PER_NOTICE = 120

KINDS = {
    "terminate": NoticeKind.INTERRUPTION,
    "stop": NoticeKind.INTERRUPTION,
    "hibernate": NoticeKind.HIBERNATE,
}

UNAUTHORISED = 401
NOT_FOUND = 404
OK = 200


class MetadataError(Exception):
    """No usable answer; ask again."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the service says about this host."""

    instance_id: str
    type: str
    zone: str
    market: Market


class MetadataClient:
    """IMDSv2 over one kept connection; used from one thread at a time."""

    def __init__(self, endpoint: str | None = None) -> None:
        url = urlsplit(endpoint or DEFAULT_ENDPOINT)
        self._secure = url.scheme == "https"
        self._host = url.netloc
        self._prefix = url.path.rstrip("/")
        self._connection: HTTPConnection | None = None
        self._token: str | None = None
        self._token_ends = 0.0

    def get(self, path: str) -> str | None:
        """Return what is at *path*, None for 404; raise ``MetadataError``."""
        status, body = self._authorised(path)
        if status == UNAUTHORISED:  # the token's life ended, or the service was restarted
            self._token = None
            status, body = self._authorised(path)
        if status == NOT_FOUND:
            return None
        if status != OK:
            raise MetadataError(f"{path}: status {status}")
        return body

    def identity(self) -> Identity:
        """Ask who this host is."""
        instance_id = self.get("latest/meta-data/instance-id")
        if not instance_id:
            raise MetadataError("latest/meta-data/instance-id: nothing there")
        life_cycle = self.get("latest/meta-data/instance-life-cycle")
        return Identity(
            instance_id=instance_id.strip(),
            type=(self.get("latest/meta-data/instance-type") or "unknown").strip(),
            zone=(self.get("latest/meta-data/placement/availability-zone") or "unknown").strip(),
            market=Market.SPOT if (life_cycle or "").strip() == "spot" else Market.ON_DEMAND,
        )

    def close(self) -> None:
        """Drop the connection."""
        if self._connection:
            self._connection.close()
        self._connection = None

    def _authorised(self, path: str) -> tuple[int, str]:
        if self._token is None or boot_seconds() >= self._token_ends:
            self._renew_token()
        return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token or ""})

    def _renew_token(self) -> None:
        asked_at = boot_seconds()
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_SECONDS)}
        status, body = self._ask("PUT", "latest/api/token", ttl)
        if status != OK:
            raise MetadataError(f"latest/api/token: status {status}")
        self._token = body
        self._token_ends = asked_at + TOKEN_TTL_SECONDS * 0.9

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        reused = self._connection is not None
        try:
            return self._exchange(method, path, headers)
        except (OSError, HTTPException) as error:
            self.close()
            if not reused:
                raise MetadataError(f"{path}: {error!r}") from error
        try:  # the service had closed the idle connection: that is no failure yet
            return self._exchange(method, path, headers)
        except (OSError, HTTPException) as error:
            self.close()
            raise MetadataError(f"{path}: {error!r}") from error

    def _exchange(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        if self._connection is None:
            kind = HTTPSConnection if self._secure else HTTPConnection
            self._connection = kind(self._host, timeout=TIMEOUT_SECONDS)
        self._connection.request(method, f"{self._prefix}/{path}", headers=headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")


class MetadataWatcher:
    """Polls for notices for as long as the agent lives, whatever the service answers."""

    def __init__(
        self,
        client: MetadataClient,
        instance_id: str,
        clock: NoticeClock,
        emit: Callable[[Notice], None],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._instance_id = instance_id
        self._emit = emit
        self._now = now
        self._seen: dict[str, str] = {}
        self._scheduled: Notice | None = None
        self.unknown = 0  # polls without a usable answer: no notice isn't what they mean
        self._failures = 0
        self._polls = 0
        self._ended = threading.Event()
        self.last_answer = boot_seconds()
        self.last_try = self.last_answer
        self.period = min(LONGEST_POLL_SECONDS, clock.notice.total_seconds() / POLLS_PER_NOTICE)

    @property
    def answers(self) -> bool:
        """Whether the service answered lately."""
        return boot_seconds() - self.last_answer < max(20 * self.period, 2 * TIMEOUT_SECONDS)

    def start(self) -> None:
        """Poll in a thread of its own."""
        threading.Thread(target=self.run, name="metadata", daemon=True).start()

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()

    def run(self) -> None:
        """Poll until ended."""
        while not self._ended.is_set():
            began = time.monotonic()
            self.poll()
            self._ended.wait(max(0.0, self.period - (time.monotonic() - began)))
        self._client.close()

    def poll(self) -> None:
        """Ask once."""
        self.last_try = boot_seconds()
        try:
            self._look(SPOT_ACTION, self._interruption)
            if self._polls % REBALANCE_EVERY == 0:
                self._look(REBALANCE, self._rebalance)
            if self._polls % MAINTENANCE_EVERY == 0:
                self._look_for_maintenance()
        except MetadataError as error:
            self._failed(str(error))
        except Exception:  # a poll that fails in a way nobody thought of must not be the last one
            self.unknown += 1
            log.exception("metadata poll failed")
            self._client.close()
        else:
            if self._failures:
                log.info("metadata service answers again", extra={"failures": self._failures})
            self._failures = 0
            self.last_answer = boot_seconds()
        self._polls += 1

    def _failed(self, error: str) -> None:
        self.unknown += 1
        self._failures += 1
        # The first one, and then ever more rarely: an outage must not fill the disk.
        if self._failures & (self._failures - 1) == 0:
            log.warning(
                "metadata service doesn't answer",
                extra={"failures": self._failures, "ever": self.unknown, "error": error},
            )

    def _look(self, path: str, read: Callable[[str], Notice | None]) -> None:
        body = self._client.get(path)
        if body is None or self._seen.get(path) == body:
            return
        notice = read(body)
        if notice:
            self._emit(notice)
            log.info("notice in metadata", extra={"path": path, "body": body[:200]})
        self._seen[path] = body

    def _look_for_maintenance(self) -> None:
        """Tell of maintenance, and of its end too: it may be called off, or be done with."""
        body = self._client.get(MAINTENANCE) or ""
        if body == self._seen.get(MAINTENANCE, ""):
            return
        notice, before = self._maintenance(body), self._scheduled
        log.info("maintenance in metadata", extra={"body": body[:200]})
        if notice:
            self._emit(notice)
        elif before:
            self._emit(replace(before, noticed_at=self._now(), doubt=Doubt.OVER))
        self._scheduled, self._seen[MAINTENANCE] = notice, body

    def _interruption(self, body: str) -> Notice:
        """Read a spot action; one that can't be read is a notice all the same."""
        said = _object(body)
        action = str(said.get("action", "")).lower()
        kind = KINDS.get(action, NoticeKind.INTERRUPTION)
        return self._notice(kind, reclaimed_at=moment(said.get("time")))

    def _rebalance(self, body: str) -> Notice:
        told = moment(_object(body).get("noticeTime"))
        return self._notice(NoticeKind.REBALANCE, noticed_at=told)

    def _maintenance(self, body: str) -> Notice | None:
        with suppress(ValueError):
            listed = json.loads(body)
            events = listed if isinstance(listed, list) else []
            starts = [
                start
                for event in events
                if isinstance(event, dict) and event.get("State", "active") == "active"
                if (start := moment(event.get("NotBefore")))
            ]
            if starts:
                return self._notice(NoticeKind.MAINTENANCE, reclaimed_at=min(starts))
        return None

    def _notice(
        self,
        kind: NoticeKind,
        *,
        noticed_at: datetime | None = None,
        reclaimed_at: datetime | None = None,
    ) -> Notice:
        return Notice(
            kind=kind,
            instance_id=self._instance_id,
            noticed_at=noticed_at or self._now(),
            channel=Channel.METADATA,
            reclaimed_at=reclaimed_at,
        )


def moment(text: object) -> datetime | None:
    """Read EC2's ways of writing a time; None for what isn't one."""
    if not isinstance(text, str):
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError):
            at = read(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            if EARLIEST <= at <= LATEST:
                return at
    return None


def _object(body: str) -> dict[str, Any]:
    with suppress(ValueError):
        said = json.loads(body)
        if isinstance(said, dict):
            return said
    return {}


def wait_for_identity(client: MetadataClient, *, patience: timedelta) -> Identity:
    """Ask until the service answers; raise ``MetadataError`` when *patience* ends."""
    ends = boot_seconds() + patience.total_seconds()
    while True:
        try:
            return client.identity()
        except MetadataError as error:
            if boot_seconds() >= ends:
                raise
            log.warning("metadata service doesn't answer yet", extra={"error": str(error)})
            time.sleep(min(1.0, patience.total_seconds() / 100))


class HasCredentials(Protocol):
    """An SDK session, as far as it is asked here."""

    def get_credentials(self) -> object | None:
        """Return them, or None when nobody gave any at this very moment."""


def wait_for_credentials(session: HasCredentials, *, patience: timedelta) -> None:
    """
    Ask until there are credentials; raise ``MetadataError`` when *patience* ends.

    The SDK looks for them once, while a client is made, and one made without never signs a
    call. At boot the metadata service may be too slow for its single try of a second.
    """
    ends = boot_seconds() + patience.total_seconds()
    while session.get_credentials() is None:
        if boot_seconds() >= ends:
            message = "no credentials: has the host an instance profile?"
            raise MetadataError(message)
        log.warning("no credentials yet")
        time.sleep(min(1.0, patience.total_seconds() / 100))
