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
from reprieve.domain.needs import NOTHING, Needs

VERSION = 1

MAX_TEXT = 256
MAX_COUNT = 10**12
# What a report says for people ends up in one row; a row ends at 400 KB.
MAX_FACTS = 64
MAX_WORDS = 2000
# A time outside of these is nonsense, and nonsense that no sum of times can overflow by.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

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
POLICY = "policy"  # in a report's data: what its host decided by a formula, in words


def _load(text: str, what: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{what} isn't JSON: {text[:80]!r}"
        raise MalformedError(message) from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        message = f"{what} isn't version {VERSION}: {text[:80]!r}"
        raise MalformedError(message)
    return raw


def _text(raw: dict[str, Any], name: str) -> str:
    """Return a name: names become keys of rows and parts of paths, and are plain ASCII."""
    value = raw[name]
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        message = f"{name} must be a short text"
        raise TypeError(message)
    if not value.isascii() or not value.isprintable():
        message = f"{name} must be plain text"
        raise TypeError(message)
    return value


def _moment(raw: dict[str, Any], name: str) -> datetime:
    at = datetime.fromisoformat(_text(raw, name))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not EARLIEST <= at <= LATEST:
        message = f"{name} must be a time of this age"
        raise ValueError(message)
    return at


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_COUNT:
        message = f"{name} must be a count"
        raise TypeError(message)
    return value


@dataclass(frozen=True, slots=True)
class Ticket:
    """
    Permission to try to claim one attempt, on the work queue of its pool.

    A host that lacks something of *needs* leaves it to another.
    """

    job: str
    attempt: int
    token: str
    needs: Needs = NOTHING

    @property
    def key(self) -> LeaseKey:
        """The lease it is about."""
        return LeaseKey(self.job, self.attempt, self.token)

    def to_json(self) -> str:
        """Return the message body."""
        body = {"v": VERSION, "job": self.job, "attempt": self.attempt, "token": self.token}
        return json.dumps(body | ({"needs": self.needs.to_dict()} if self.needs else {}))

    @classmethod
    def from_json(cls, text: str) -> Ticket:
        """Read a body; raise ``MalformedError``."""
        raw = _load(text, "ticket")
        try:
            needs = Needs.from_dict(raw["needs"]) if raw.get("needs") else NOTHING
            return cls(_text(raw, "job"), _count(raw, "attempt"), _text(raw, "token"), needs)
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
                str(raw.get("reason", ""))[:MAX_WORDS],
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
            return cls(
                kind=ReportKind(_text(raw, "kind")),
                instance_id=_text(raw, "instance_id"),
                at=_moment(raw, "at"),
                seq=_count(raw, "seq") if "seq" in raw else 0,
                key=key,
                data=_facts(raw.get("data") or {}),
            )
        except _BAD_FIELD as error:
            message = f"report: {error}"
            raise MalformedError(message) from error
        except AttributeError as error:
            message = "report: data must be an object"
            raise MalformedError(message) from error


def _facts(data: dict[str, Any]) -> dict[str, Scalar]:
    """Keep what can be kept: plain values, not too many, none too long, no absurd number."""
    known = {str(k)[:MAX_TEXT]: _fact(v) for k, v in data.items() if _is_scalar(v)}
    return dict(list(known.items())[:MAX_FACTS])


def _fact(value: Scalar) -> Scalar:
    if isinstance(value, str):
        return value[:MAX_WORDS]
    if isinstance(value, bool) or value is None or abs(value) < MAX_COUNT:
        return value
    return str(value)[:MAX_TEXT]  # infinite, not a number, or as good as that


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
