"""
Messages between the CLI, the functions and the hosts.

Each is a hint: the lease, the job row and the manifest are the facts, so a message may
be lost, doubled or late without harm. Unknown fields are ignored, which lets an older
reader meet a newer writer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from reprieve.domain.errors import MalformedError
from reprieve.domain.lease import LeaseKey

VERSION = 1

_BAD_FIELD = (ValueError, KeyError, TypeError, OverflowError)


class ReportKind(StrEnum):
    """What a host has to say."""

    READY = "ready"
    CLAIMED = "claimed"
    STARTED = "started"
    PROGRESS = "progress"
    NOTICED = "noticed"
    SAVED = "saved"
    COMMITTED = "committed"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    FAILED = "failed"
    REFUSED = "refused"
    IDLE = "idle"
    LEAVING = "leaving"


Scalar = str | int | float | bool | None


def _load(text: str, what: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        message = f"{what} isn't JSON: {text[:80]!r}"
        raise MalformedError(message) from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        message = f"{what} isn't version {VERSION}: {text[:80]!r}"
        raise MalformedError(message)
    return raw


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        message = f"{name} must be a short text"
        raise TypeError(message)
    return value


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_COUNT:
        message = f"{name} must be a count"
        raise TypeError(message)
    return value


MAX_TEXT = 256
MAX_COUNT = 10**12


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to try to claim one attempt, on the work queue of its pool."""

    job: str
    attempt: int
    token: str

    @property
    def key(self) -> LeaseKey:
        """The lease it is about."""
        return LeaseKey(self.job, self.attempt, self.token)

    def to_json(self) -> str:
        """Return the message body."""
        return json.dumps(
            {"v": VERSION, "job": self.job, "attempt": self.attempt, "token": self.token}
        )

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        """Read a body; raise ``MalformedError``."""
        raw = _load(text, "ticket")
        try:
            return cls(_text(raw, "job"), _count(raw, "attempt"), _text(raw, "token"))
        except _BAD_FIELD as error:
            message = f"ticket: {error}"
            raise MalformedError(message) from error


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """
    A bell for ``replace_host``: look at this order's row.

    Who knows the *pool* says it, which spares a read.
    """

    job: str
    attempt: int
    reason: str
    pool: str = ""

    def to_json(self) -> str:
        """Return the message body."""
        return json.dumps(
            {
                "v": VERSION,
                "job": self.job,
                "attempt": self.attempt,
                "reason": self.reason,
                "pool": self.pool,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> OrderMessage:
        """Read a body; raise ``MalformedError``."""
        raw = _load(text, "order")
        try:
            return cls(
                _text(raw, "job"),
                _count(raw, "attempt"),
                str(raw.get("reason", "")),
                _text(raw, "pool") if raw.get("pool") else "",
            )
        except _BAD_FIELD as error:
            message = f"order: {error}"
            raise MalformedError(message) from error


@dataclass(frozen=True, slots=True)
class Report:
    """
    A host's word about what it did. ``instance_id`` is checked against the queue's attested sender.

    ``key`` is None when the report is about the host alone. ``seq`` rises with every
    report of one boot, for people who read the log; nothing depends on the order.
    """

    kind: ReportKind
    instance_id: str
    at: datetime
    seq: int = 0
    key: LeaseKey | None = None
    data: dict[str, Scalar] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the message body."""
        body: dict[str, Any] = {
            "v": VERSION,
            "kind": self.kind.value,
            "instance_id": self.instance_id,
            "at": self.at.isoformat(),
            "seq": self.seq,
            "data": self.data,
        }
        if self.key:
            body |= {"job": self.key.job, "attempt": self.key.attempt, "token": self.key.token}
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read a body; raise ``MalformedError``."""
        raw = _load(text, "report")
        try:
            key = None
            if raw.get("job") is not None:
                key = LeaseKey(_text(raw, "job"), _count(raw, "attempt"), _text(raw, "token"))
            at = datetime.fromisoformat(_text(raw, "at"))
            data = raw.get("data") or {}
            return cls(
                kind=ReportKind(_text(raw, "kind")),
                instance_id=_text(raw, "instance_id"),
                at=at if at.tzinfo else at.replace(tzinfo=UTC),
                seq=_count(raw, "seq") if "seq" in raw else 0,
                key=key,
                data={str(k): v for k, v in data.items() if _is_scalar(v)},
            )
        except _BAD_FIELD as error:
            message = f"report: {error}"
            raise MalformedError(message) from error
        except AttributeError as error:
            message = "report: data must be an object"
            raise MalformedError(message) from error


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
