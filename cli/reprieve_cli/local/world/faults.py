"""
Scripted faults: what happens to the next calls that match, instead of or around the answer.

A fault names service and action (``*`` is a wildcard), and may name a caller (the SDK's
application id), a host, a resource, and the ``pk/sk`` of an item. It is used up after *times*
calls or *seconds*. Of several effects each call gets the next one; the last one repeats.

Two services are not AWS's: ``imds`` is the hosts' metadata (the action is the path below
``meta-data``, or ``api/token``), ``eventbridge`` is the delivery of the world's own events (the
action is their detail type).
"""

from __future__ import annotations

import fnmatch
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from botocore.exceptions import UnknownServiceError

from reprieve_cli.local.world import models
from reprieve_cli.local.world.calls import resources, table_keys
from reprieve_cli.local.world.errors import AwsError

if TYPE_CHECKING:
    from reprieve_cli.local.world.wire import Call

IMDS = "imds"
EVENTBRIDGE = "eventbridge"
ANYBODY = "*"
SPARED = "reprieve-cli"  # people and drills watch with it: a fault hits it only if it names it

_KEYS = frozenset(
    {
        "service",
        "action",
        "caller",
        "instance_id",
        "resource",
        "key",
        "times",
        "seconds",
        "skip",
        "then",
    }
)
_EFFECTS = frozenset({"error", "reply", "delay_seconds", "drop", "duplicate", "kill", "pass"})
_OF_EVENTS = frozenset({"delay_seconds", "drop", "duplicate", "pass"})
_DROPS = frozenset({None, "before", "during", "after"})
_WRITTEN = frozenset({"json", "rest-json", "ec2"})
_STATUSES = {
    "AccessDenied": 403,
    "InternalError": 500,
    "InternalFailure": 500,
    "InternalServerError": 500,
    "NoSuchKey": 404,
    "PreconditionFailed": 412,
    "ServiceUnavailable": 503,
    "SlowDown": 503,
    "Unavailable": 503,
}
_TRANSACTIONS = frozenset({"TransactWriteItems", "TransactGetItems"})
_numbers = count(1)


class FaultError(ValueError):
    """The fault's description can't be used."""


@dataclass(frozen=True, slots=True)
class Failure:
    """
    An AWS error to answer with.

    *reason* is DynamoDB's word for one item (``TransactionConflict``): a transaction is
    cancelled with it, any other call ends with the exception of that name.
    """

    code: str = ""
    message: str = "scripted fault"
    status: int = 0
    reason: str = ""

    def of(self, call: Call, key: str | None) -> AwsError:
        """Return the error as *call* gets it; *reason* is about the items at *key*."""
        if self.reason and call.action in _TRANSACTIONS:
            return self._cancelled(call, key)
        code = self.code or (f"{self.reason}Exception" if self.reason else "InternalError")
        return AwsError(code, self.message, status=self.status or _STATUSES.get(code, 400))

    def _cancelled(self, call: Call, key: str | None) -> AwsError:
        codes = [
            self.reason if key is None or _is_at(one, key) else "None" for one in table_keys(call)
        ]
        return AwsError(
            "TransactionCanceledException",
            "Transaction cancelled, please refer cancellation reasons for specific reasons "
            f"[{', '.join(codes)}]",
            fields={"CancellationReasons": [{"Code": code} for code in codes]},
        )


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does, in order: delay, before, error or reply, the call, duplicate, after."""

    error: Failure | None = None
    reply: Any = None
    delay_seconds: float = 0.0
    drop: str | None = None
    """``before``: the call never happens; ``after``: it happens and the answer is lost;
    ``during``: half of the answer arrives."""
    duplicate: int = 0
    """How many further times the call is made; the caller sees the first answer."""
    kill: str | None = None
    """The process that calls dies ``before`` the call happens, or ``after`` it."""
    key: str | None = None
    """The fault's own: which items its error is about."""

    def __str__(self) -> str:
        """Return it in a few words."""
        if self.error:
            return f"error {self.error.code or self.error.reason or self.error.status}"
        if self.drop:
            return f"drop {self.drop}"
        if self.kill:
            return f"kill {self.kill}"
        if self.reply is not None:
            return "reply"
        if self.duplicate:
            return f"duplicate {self.duplicate}"
        return "delay" if self.delay_seconds else "pass"


@dataclass(slots=True)
class Fault:
    service: str
    action: str
    effects: tuple[Effect, ...]
    caller: str = ANYBODY
    instance_id: str = "*"
    resource: str | None = None
    key: str | None = None
    left: int | None = 1
    until: float | None = None
    """Monotonic time of its end, when it lasts for seconds."""
    skip: int = 0
    """How many matching calls pass before it begins."""
    number: int = field(default_factory=lambda: next(_numbers))
    hits: int = 0

    @property
    def over(self) -> bool:
        return self.left == 0 or (self.until is not None and time.monotonic() > self.until)

    def matches(self, call: Call, instance_id: str | None) -> bool:
        if call.caller == SPARED and self.caller == ANYBODY:
            return False
        pairs = (
            (call.service, self.service),
            (call.action, self.action),
            (call.caller or "", self.caller),
            (instance_id or "", self.instance_id),
        )
        if not all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs):
            return False
        if self.key is not None and not any(_is_at(one, self.key) for one in table_keys(call)):
            return False
        if self.resource is None:
            return True
        return any(fnmatch.fnmatchcase(name, self.resource) for name in resources(call))

    def hit(self) -> Effect:
        """Count one more call and return what happens to it."""
        effect = self.effects[min(self.hits, len(self.effects) - 1)]
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        return effect

    def describe(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "service": self.service,
            "action": self.action,
            "left": self.left,
            "hits": self.hits,
        }


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, described: dict[str, Any]) -> Fault:
        """Script a fault; raise ``FaultError`` for a description that makes no sense."""
        fault = read_fault(described)
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        self._faults.clear()

    def describe(self) -> list[dict[str, Any]]:
        return [fault.describe() for fault in self._faults if not fault.over]

    def take(self, call: Call, instance_id: str | None) -> Effect | None:
        """Return what is to happen to *call*, and count it; the oldest match wins."""
        for fault in self._faults:
            if fault.over or not fault.matches(call, instance_id):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            return fault.hit()
        return None


def read_fault(described: dict[str, Any]) -> Fault:
    unknown = set(described) - _KEYS
    if unknown:
        raise FaultError(f"fault: unknown key {min(unknown)!r}: use {', '.join(sorted(_KEYS))}")
    missing = {"service", "action", "then"} - set(described)
    if missing:
        raise FaultError(f"fault: {min(missing)!r} is missing")
    service, then = described["service"], described["then"]
    key = described.get("key")
    effects = tuple(
        _effect(one, service, key) for one in (then if isinstance(then, list) else [then])
    )
    if not effects:
        raise FaultError("fault: then must not be empty")
    seconds = described.get("seconds")
    times = described.get("times", None if seconds is not None else len(effects))
    return Fault(
        service=service,
        action=described["action"],
        effects=effects,
        caller=described.get("caller", ANYBODY),
        instance_id=described.get("instance_id", "*"),
        resource=described.get("resource"),
        key=key,
        left=times,
        until=None if seconds is None else time.monotonic() + float(seconds),
        skip=int(described.get("skip", 0)),
    )


def _can_reply(service: str) -> bool:
    """Whether a canned answer can be written for *service*: JSON, or EC2's XML."""
    if service == IMDS:
        return True
    try:
        return models.service_model(service).metadata["protocol"] in _WRITTEN
    except UnknownServiceError:
        return False


def _effect(then: dict[str, Any], service: str, key: str | None) -> Effect:
    unknown = set(then) - (_OF_EVENTS if service == EVENTBRIDGE else _EFFECTS)
    if unknown or not then:
        known = _OF_EVENTS if service == EVENTBRIDGE else _EFFECTS
        raise FaultError(f"fault: then takes {', '.join(sorted(known))}")
    if then.get("drop") not in _DROPS:
        raise FaultError("fault: drop is before, during or after")
    if then.get("kill") not in {None, "before", "after"}:
        raise FaultError("fault: kill is before or after")
    if "reply" in then and not _can_reply(service):
        raise FaultError(f"fault: {service!r} takes no reply, only an error")
    try:
        error = Failure(**then["error"]) if "error" in then else None
    except TypeError as trouble:
        raise FaultError(
            f"fault: error takes code, message, status, reason: {trouble}"
        ) from trouble
    return Effect(
        error=error,
        reply=then.get("reply"),
        delay_seconds=float(then.get("delay_seconds", 0)),
        drop=then.get("drop"),
        duplicate=int(then.get("duplicate", 0)),
        kill=then.get("kill"),
        key=key,
    )


def _is_at(key: dict[str, Any], pattern: str) -> bool:
    return fnmatch.fnmatchcase(f"{key['pk'] or ''}/{key['sk'] or ''}", pattern)
