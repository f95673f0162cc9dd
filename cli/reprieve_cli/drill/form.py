"""
The form of scenario files.

``SHAPE`` is the whole form in one value; docs/drills.md says it in words, and ``schema`` says it
to editors.
"""

from __future__ import annotations

from typing import Any

from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause, Outcome
from reprieve.metrics import Metric
from reprieve_cli.drill import match
from reprieve_cli.drill.shape import (
    Cases,
    Either,
    Fields,
    Flag,
    Folder,
    Known,
    ListOf,
    MapOf,
    Name,
    Number,
    Scalar,
    Shape,
    Text,
    Whatever,
    Word,
)
from reprieve_cli.local.handle import REGION
from reprieve_cli.local.world.catalogue import instance_types, zones_of
from reprieve_cli.local.world.faults import FaultError, read_fault

ACTIONS = ("event", "fault", "host", "job", "message", "object", "pools", "wait", "world")
RESERVATION_TYPES = (
    "on-demand-capacity-reservation",
    "capacity-block",
    "interruptible-capacity-reservation",
)
MARKETS = ("spot", "on-demand", "reserved")
QUEUES = ("intake", "orders", "reports", "work")
HOST_ACTIONS = (
    "notice",
    "rebalance",
    "kill",
    "terminate",
    "crash",
    "stop",
    "shutdown",
    "freeze",
    "thaw",
    "reboot",
    "cut",
    "mend",
)
JOB_ACTIONS = ("cancel", "requeue", "submit")
NOTICE_LIKE = ("notice", "rebalance")

_MATCH: Shape = match.SHAPE
_WHOLE = Number(least=1, whole=True)
_FROM_ZERO = Number(least=0, whole=True)
_CAPACITY = Number(least=0, whole=True, optional=True)
_TYPE = Known("instance type", instance_types)
_ZONE = Known("zone", lambda: zones_of(REGION))
_PATTERN: dict[str, Shape] = {
    "service": Text(),
    "action": Text(),
    "caller": Text(),
    "resource": Text(),
    "error": Word(),
    "key": Text(),
    "parameters": Either(short=ListOf(Text(), least=1), full=MapOf(_MATCH)),
}
_CALL = Fields(_PATTERN, required=("service", "action"))
_WITHIN: dict[str, Shape] = {"within": Number(above=0)}


def _conditions(extra: dict[str, Shape]) -> dict[str, Shape]:
    return {
        "job": Fields(
            {
                "job": Name(),
                "status": ListOf(Text(tuple(JobStatus)), least=1, alone=True),
                "attempt": _WHOLE,
                "step": _FROM_ZERO,
                "committed": _FROM_ZERO,
                "event": Text(),
                **extra,
            }
        ),
        "hosts": Fields({"hosts": _MATCH, **extra}),
        "call": Fields({"call": _CALL, "times": _WHOLE, "in_flight": Flag(), **extra}),
        "world": Fields({"world": Text(), **extra}),
    }


_WHEN = Cases(_conditions({}))
_WAIT = Cases({"seconds": Fields({"seconds": Number(above=0)}), **_conditions(_WITHIN)})
_EVENT = Fields({"body": Whatever(), "times": _WHOLE}, required=("body",))


def _trouble(fault: dict[str, Any]) -> str | None:
    """Say what the world would say of *fault*."""
    try:
        read_fault(fault)
    except FaultError as error:
        return str(error).removeprefix("fault: ")
    return None


_EFFECT = Fields(
    {
        "error": Fields(
            {
                "code": Text(),
                "message": Text(),
                "status": _WHOLE,
                "reason": Text(),
            }
        ),
        "reply": Whatever(),
        "delay_seconds": Number(above=0),
        "drop": Text(("before", "during", "after")),
        "duplicate": _WHOLE,
        "kill": Text(("before", "after")),
        "pass": Flag(),
    }
)
_FAULT = Fields(
    {
        "service": Text(),
        "action": Text(),
        "caller": Text(),
        "instance_id": Text(),
        "resource": Text(),
        "key": Text(),
        "times": _WHOLE,
        "seconds": Number(above=0),
        "skip": _FROM_ZERO,
        "then": ListOf(_EFFECT, least=1, alone=True),
    },
    required=("service", "action", "then"),
    check=_trouble,
)
_HOST = Fields(
    {
        "of": Name(),
        "attempt": _WHOLE,
        "nth": _WHOLE,
        "zone": _ZONE,
        "every": Flag(),
        "do": Text(HOST_ACTIONS),
        "channels": ListOf(Text(("metadata", "event"))),
        "action": Scalar(),
        "in": Number(least=0),
        "reclaim": Flag(),
        "events": Flag(),
        "what": Text(("network", "metadata", "ssm")),
        "seconds": Number(above=0),
    },
    required=("do",),
    one_of=("of", "nth", "zone", "every"),
    by="do",
    only={
        "channels": NOTICE_LIKE,
        "action": ("notice",),
        "in": ("notice",),
        "reclaim": ("notice",),
        "events": ("kill",),
        "what": ("cut", "mend"),
        "seconds": ("cut",),
    },
)
_OBJECT = Fields(
    {
        "do": Text(("damage", "truncate", "zero", "delete", "put")),
        "job": Name(),
        "step": _FROM_ZERO,
        "file": Text(),
        "key": Text(),
        "body": Word(),
        "bytes": _WHOLE,
    },
    required=("do", "job"),
    by="do",
    only={"body": ("put",), "bytes": ("truncate",)},
)
_MESSAGE = Fields(
    {"queue": Text(QUEUES), "body": Whatever(), "times": _WHOLE, "pool": Text()},
    required=("queue", "body"),
)
_LAG = Number(least=0)
_WORLD = Fields(
    {
        "boot_seconds": _LAG,
        "registration_seconds": _LAG,
        "visible_after_seconds": _LAG,
        "forgotten_after_seconds": _LAG,
        "shutdown_seconds": _LAG,
        "spot_vcpus": _CAPACITY,
        "on_demand_vcpus": _CAPACITY,
    }
)
_MARKET_CHANGE = Fields(
    {
        "type": _TYPE,
        "zone": _ZONE,
        "market": Text(MARKETS),
        "price": Number(above=0),
        "capacity": _CAPACITY,
        "estimate": _CAPACITY,
    }
)
_STEP = Fields(
    {
        "at": Number(least=0),
        "when": _WHEN,
        "event": _EVENT,
        "fault": _FAULT,
        "host": _HOST,
        "job": Fields({"name": Name(), "do": Text(JOB_ACTIONS)}, required=("name", "do")),
        "message": _MESSAGE,
        "object": _OBJECT,
        "pools": ListOf(_MARKET_CHANGE, least=1),
        "wait": _WAIT,
        "world": _WORLD,
    },
    one_of=ACTIONS,
    not_both=("at", "when"),
)
_JOB = Fields(
    {
        "name": Name(defined=True),
        "command": ListOf(Word(), least=1),
        "code": Folder(),
        "setup": Text(),
        "env": MapOf(Word()),
        "save_every": Text(),
        "max_restarts": _FROM_ZERO,
        "pool": Text(),
        "reference": ListOf(Word(), least=1),
    },
    required=("name", "command"),
)
_OFFER = Fields(
    {
        "type": _TYPE,
        "zone": _ZONE,
        "market": Text(MARKETS),
        "price": Number(above=0),
        "capacity": _CAPACITY,
        "estimate": _CAPACITY,
        "reservation": Text(),
        "reservation_type": Text(RESERVATION_TYPES),
    },
    required=("type", "zone"),
    by="market",
    only={"reservation": ("reserved",), "reservation_type": ("reserved",)},
)
FIELDS = ("status", "attempt", "reason", "steps_lost", "needs_you", "checkpoint_step")
_COUNTERS = ("interruptions", "launch_failures", "crashes", "no_progress")
_ATTEMPT = {
    "instance_type": _MATCH,
    "zone": _MATCH,
    "market": _MATCH,
    "outcome": Either(short=Text(tuple(Outcome)), full=_MATCH),
    "cause": Either(short=Text(tuple(Cause)), full=_MATCH),
    "restored_step": _MATCH,
    "last_step": _MATCH,
    "steps_lost": _MATCH,
    "first_channel": _MATCH,
    "output": _MATCH,
}
_MOMENT = Either(short=Text(), full=Fields({"world": Text()}, required=("world",)))
_SPAN = Fields(
    {"from": _MOMENT, "to": _MOMENT, "seconds": _MATCH}, required=("from", "to", "seconds")
)
_JOB_EXPECTED = Fields(
    {
        **dict.fromkeys(FIELDS, _MATCH),
        "counters": Fields(dict.fromkeys(_COUNTERS, _MATCH)),
        "attempts": ListOf(Fields(_ATTEMPT), least=1),
        "resumes_proven": Flag(),
        "identical": Either(
            short=Text(), full=Fields({"file": Text(), "same": Flag()}, required=("file",))
        ),
        "step_log": Text(),
        "events": ListOf(Text()),
        "event_counts": MapOf(_MATCH),
        "times": ListOf(_SPAN, least=1),
        "never": ListOf(Text()),
        "warned": _MATCH,
    }
)
_EXPECTED = Fields(
    {
        "jobs": MapOf(_JOB_EXPECTED, used=True),
        "calls": ListOf(
            Fields(
                {**_PATTERN, "count": _MATCH, "distinct": Text()},
                required=("service", "action"),
            )
        ),
        "instances": Fields(
            {
                **dict.fromkeys(("alive", "launched"), _MATCH),
                **dict.fromkeys(("zone", "market", "type"), MapOf(_MATCH)),
            }
        ),
        "queues": Fields(dict.fromkeys((*QUEUES, "dead_letters"), _MATCH)),
        "metrics": Fields(dict.fromkeys((*Metric,), _MATCH), listed=False),
        "seconds": _MATCH,
    }
)
SHAPE = Fields(
    {
        "name": Text(),
        "description": Text(),
        "clock_scale": Number(above=0),
        "stack": MapOf(Whatever()),
        "world": _WORLD,
        "pools": ListOf(_OFFER, least=1),
        "jobs": ListOf(_JOB, least=1),
        "steps": ListOf(_STEP),
        "expect": _EXPECTED,
    },
    required=("clock_scale", "jobs", "expect"),
)


def schema() -> dict[str, Any]:
    """Return the form as JSON Schema, for editors and other programs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Reprieve drill scenario",
        "description": "A story for `reprieve drill`: see docs/drills.md.",
        **SHAPE.schema(),
        "$defs": {match.SHAPE.name: match.SHAPE.shape.schema()},
    }
