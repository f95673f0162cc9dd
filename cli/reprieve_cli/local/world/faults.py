"""
Scripted faults: what happens to the next calls that match, instead of or around the answer.

A fault names service and action (``*`` is a wildcard), and may name a caller (the SDK's
application id), a host, and a resource. It is used up after *times* calls or *seconds*.
"""

from __future__ import annotations

import fnmatch
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from botocore.exceptions import UnknownServiceError

from reprieve_cli.local.world import models
from reprieve_cli.local.world.calls import resources

if TYPE_CHECKING:
    from reprieve_cli.local.world.wire import Call

_KEYS = frozenset(
    {"service", "action", "caller", "instance_id", "resource", "times", "seconds", "skip", "then"}
)
_EFFECTS = frozenset({"error", "reply", "delay_seconds", "drop", "duplicate"})
_WRITTEN = frozenset({"json", "rest-json", "ec2"})
_numbers = count(1)


class FaultError(ValueError):
    """The fault's description can't be used."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An AWS error to answer with."""

    code: str
    message: str = "scripted fault"
    status: int = 400


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does, in order: delay, drop before, error or reply, duplicate, drop after."""

    error: Failure | None = None
    reply: dict[str, Any] | None = None
    delay_seconds: float = 0.0
    drop: str | None = None
    """``before``: the call never happens; ``after``: it happens and the answer is lost."""
    duplicate: int = 0
    """How many further times the call is made; the caller sees the first answer."""


@dataclass(slots=True)
class Fault:
    service: str
    action: str
    effect: Effect
    caller: str = "*"
    instance_id: str = "*"
    resource: str | None = None
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
        pairs = (
            (call.service, self.service),
            (call.action, self.action),
            (call.caller or "", self.caller),
            (instance_id or "", self.instance_id),
        )
        if not all(fnmatch.fnmatchcase(value, pattern) for value, pattern in pairs):
            return False
        if self.resource is None:
            return True
        return any(fnmatch.fnmatchcase(name, self.resource) for name in resources(call))

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
            fault.hits += 1
            if fault.left is not None:
                fault.left -= 1
            return fault.effect
        return None


def read_fault(described: dict[str, Any]) -> Fault:
    unknown = set(described) - _KEYS
    if unknown:
        raise FaultError(f"fault: unknown key {min(unknown)!r}: use {', '.join(sorted(_KEYS))}")
    missing = {"service", "action", "then"} - set(described)
    if missing:
        raise FaultError(f"fault: {min(missing)!r} is missing")
    if "reply" in described["then"] and not _can_reply(described["service"]):
        raise FaultError(f"fault: {described['service']!r} takes no reply, only an error")
    seconds = described.get("seconds")
    times = described.get("times", None if seconds is not None else 1)
    return Fault(
        service=described["service"],
        action=described["action"],
        effect=_effect(described["then"]),
        caller=described.get("caller", "*"),
        instance_id=described.get("instance_id", "*"),
        resource=described.get("resource"),
        left=times,
        until=None if seconds is None else time.monotonic() + float(seconds),
        skip=int(described.get("skip", 0)),
    )


def _can_reply(service: str) -> bool:
    """Whether a canned answer can be written for *service*: JSON, or EC2's XML."""
    if service == "imds":
        return True
    try:
        return models.service_model(service).metadata["protocol"] in _WRITTEN
    except UnknownServiceError:
        return False


def _effect(then: dict[str, Any]) -> Effect:
    unknown = set(then) - _EFFECTS
    if unknown or not then:
        raise FaultError(f"fault: then takes {', '.join(sorted(_EFFECTS))}")
    if then.get("drop") not in {None, "before", "after"}:
        raise FaultError("fault: drop is before or after")
    try:
        error = Failure(**then["error"]) if "error" in then else None
    except TypeError as trouble:
        raise FaultError(f"fault: error takes code, message, status: {trouble}") from trouble
    return Effect(
        error=error,
        reply=then.get("reply"),
        delay_seconds=float(then.get("delay_seconds", 0)),
        drop=then.get("drop"),
        duplicate=int(then.get("duplicate", 0)),
    )
