"""
Scenario files: what they look like, and how they become a ``Scenario``.

``SHAPE`` is the whole form in one value; docs/drills.md says it in words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause, Outcome
from reprieve.metrics import Metric
from reprieve_cli.drill import match
from reprieve_cli.drill.match import Match
from reprieve_cli.drill.scenario import (
    CallExpected,
    CallPattern,
    CallSeen,
    CapacityOffer,
    EventAction,
    Expected,
    FaultAction,
    HostAction,
    HostRef,
    HostsAlive,
    Identical,
    JobAction,
    JobExpected,
    JobPlan,
    JobState,
    MarketChange,
    ObjectAction,
    Passed,
    PoolsAction,
    Scenario,
    Step,
    WaitAction,
    When,
    WorldSeen,
)
from reprieve_cli.drill.shape import (
    INVALID,
    Cases,
    Either,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Name,
    Number,
    Problem,
    Shape,
    Text,
    Whatever,
    Word,
    read,
)

ACTIONS = ("event", "fault", "host", "job", "object", "pools", "wait")
MARKETS = ("spot", "on-demand")
QUEUES = ("intake", "orders", "reports", "work", "dead_letters")


class ScenarioError(Exception):
    """The scenario can't be played: one line for each thing that is wrong with it."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{path}:{found.line}: {found.text}" for found in problems))
        self.problems = problems


# ---------------------------------------------------------------------- what a file looks like
_WHOLE = Number(least=1, whole=True)
_FROM_ZERO = Number(least=0, whole=True)
_CAPACITY = Number(least=0, whole=True, optional=True)
_PATTERN: dict[str, Shape] = {
    "service": Text(),
    "action": Text(),
    "caller": Text(),
    "resource": Text(),
    "error": Word(),
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
        "hosts": Fields({"hosts": match.SHAPE, **extra}),
        "call": Fields({"call": _CALL, "times": _WHOLE, **extra}),
        "world": Fields({"world": Text(), **extra}),
    }


_WHEN = Cases(_conditions({}))
_WAIT = Cases({"seconds": Fields({"seconds": Number(above=0)}), **_conditions(_WITHIN)})
_EVENT = Fields({"body": Whatever(), "times": _WHOLE}, required=("body",))
_FAULT = Fields(
    {
        "service": Text(),
        "action": Text(),
        "caller": Text(),
        "instance_id": Text(),
        "resource": Text(),
        "times": _WHOLE,
        "seconds": Number(above=0),
        "skip": _FROM_ZERO,
        "then": Whatever(),
    },
    required=("service", "action", "then"),
)
_HOST = Fields(
    {
        "of": Name(),
        "attempt": _WHOLE,
        "nth": _WHOLE,
        "do": Text(("notice", "rebalance", "kill", "freeze", "thaw", "reboot", "cut", "mend")),
        "channels": ListOf(Text(("metadata", "event"))),
        "action": Text(("terminate", "stop", "hibernate")),
        "in": Number(least=0),
        "reclaim": Flag(),
        "events": Flag(),
        "what": Text(("network", "metadata", "ssm")),
        "seconds": Number(above=0),
    },
    required=("do",),
    one_of=("of", "nth"),
    by="do",
    only={
        "channels": ("notice", "rebalance"),
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
        "do": Text(("damage", "delete", "put")),
        "job": Name(),
        "step": _FROM_ZERO,
        "file": Text(),
        "key": Text(),
        "body": Word(),
    },
    required=("do", "job"),
    by="do",
    only={"body": ("put",)},
)
_MARKET_CHANGE = Fields(
    {
        "type": Text(),
        "zone": Text(),
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
        "job": Fields({"name": Name(), "do": Text(("cancel", "requeue"))}, required=("name", "do")),
        "object": _OBJECT,
        "pools": ListOf(_MARKET_CHANGE, least=1),
        "wait": _WAIT,
    },
    one_of=ACTIONS,
    not_both=("at", "when"),
)
_JOB = Fields(
    {
        "name": Name(defined=True),
        "command": ListOf(Word(), least=1),
        "code": Text(),
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
        "type": Text(),
        "zone": Text(),
        "market": Text(MARKETS),
        "price": Number(above=0),
        "capacity": _CAPACITY,
        "estimate": _CAPACITY,
    },
    required=("type", "zone"),
)
_FIELDS = ("status", "attempt", "reason", "steps_lost", "needs_you", "checkpoint_step")
_COUNTERS = ("interruptions", "launch_failures", "crashes", "no_progress")
_ATTEMPT = {
    "instance_type": match.SHAPE,
    "zone": match.SHAPE,
    "market": match.SHAPE,
    "outcome": Either(short=Text(tuple(Outcome)), full=match.SHAPE),
    "cause": Either(short=Text(tuple(Cause)), full=match.SHAPE),
    "restored_step": match.SHAPE,
    "last_step": match.SHAPE,
    "steps_lost": match.SHAPE,
    "first_channel": match.SHAPE,
    "output": match.SHAPE,
}
_JOB_EXPECTED = Fields(
    {
        **dict.fromkeys(_FIELDS, match.SHAPE),
        "counters": Fields(dict.fromkeys(_COUNTERS, match.SHAPE)),
        "attempts": ListOf(Fields(_ATTEMPT), least=1),
        "resumes_proven": Flag(),
        "identical": Either(
            short=Text(), full=Fields({"file": Text(), "same": Flag()}, required=("file",))
        ),
        "step_log": Text(),
        "events": ListOf(Text()),
        "never": ListOf(Text()),
        "warned": match.SHAPE,
    }
)
_EXPECTED = Fields(
    {
        "jobs": MapOf(_JOB_EXPECTED, used=True),
        "calls": ListOf(Fields({**_PATTERN, "count": match.SHAPE}, required=("service", "action"))),
        "instances": Fields(dict.fromkeys(("alive", "launched"), match.SHAPE)),
        "queues": Fields(dict.fromkeys(QUEUES, match.SHAPE)),
        "metrics": Fields(dict.fromkeys((*Metric,), match.SHAPE)),
    }
)
SHAPE = Fields(
    {
        "name": Text(),
        "description": Text(),
        "clock_scale": Number(above=0),
        "stack": MapOf(Whatever()),
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
    }


# ---------------------------------------------------------------------- reading
def load(path: Path) -> Scenario:
    """Read the scenario at *path*; raise ``ScenarioError`` naming each line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(path, [Problem(1, f"can't be read: {error}")]) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    """Read *text*; *path* is where its ``code`` folders start from and what errors name."""
    raw, problems = read(text, SHAPE)
    if raw is INVALID:
        raise ScenarioError(path, problems)
    return Scenario(
        path=path,
        name=raw.get("name", path.stem),
        description=raw.get("description", ""),
        clock_scale=raw["clock_scale"],
        stack=raw.get("stack"),
        pools=tuple(CapacityOffer(**one) for one in raw["pools"]) if "pools" in raw else None,
        jobs=tuple(_job(one, path) for one in raw["jobs"]),
        steps=tuple(_step(one) for one in raw.get("steps", [])),
        expect=_expected(raw["expect"]),
    )


def _job(raw: dict[str, Any], path: Path) -> JobPlan:
    given = dict(raw)
    code = given.pop("code", None)
    return JobPlan(
        name=given.pop("name"),
        command=tuple(given.pop("command")),
        code=(path.parent / code).resolve() if code else None,
        env=tuple(given.pop("env", {}).items()),
        reference=tuple(given.pop("reference")) if "reference" in given else None,
        **given,
    )


def _step(raw: dict[str, Any]) -> Step:
    kind = next(name for name in ACTIONS if name in raw)
    when = _when(raw["when"]) if "when" in raw else None
    return Step(_ACTIONS[kind](raw[kind]), at=raw.get("at"), when=when)


def _when(raw: dict[str, Any]) -> When:
    if "seconds" in raw:
        return Passed(raw["seconds"])
    if "hosts" in raw:
        return HostsAlive(Match.of(raw["hosts"]))
    if "call" in raw:
        return CallSeen(CallPattern(**raw["call"]), raw.get("times", 1))
    if "world" in raw:
        return WorldSeen(raw["world"])
    known = {name: raw.get(name) for name in ("attempt", "step", "committed", "event")}
    return JobState(raw["job"], tuple(raw.get("status", ())), **known)


def _host_action(raw: dict[str, Any]) -> HostAction:
    given = dict(raw)
    host = HostRef(*(given.pop(name, None) for name in ("of", "attempt", "nth")))
    channels = given.pop("channels", None)
    return HostAction(
        host=host,
        channels=None if channels is None else tuple(channels),
        in_seconds=given.pop("in", None),
        **given,
    )


def _pools_action(raw: list[dict[str, Any]]) -> PoolsAction:
    changes = []
    for one in raw:
        given = dict(one)
        which = {name: given.pop(name, None) for name in ("type", "zone", "market")}
        changes.append(MarketChange(given, **which))
    return PoolsAction(tuple(changes))


_ACTIONS: dict[str, Any] = {
    "event": lambda raw: EventAction(**raw),
    "fault": FaultAction,
    "host": _host_action,
    "job": lambda raw: JobAction(raw["name"], raw["do"]),
    "object": lambda raw: ObjectAction(**raw),
    "pools": _pools_action,
    "wait": lambda raw: WaitAction(_when(raw), raw.get("within")),
}


def _expected(raw: dict[str, Any]) -> Expected:
    return Expected(
        jobs={name: _job_expected(one) for name, one in raw.get("jobs", {}).items()},
        calls=tuple(_call_expected(one) for one in raw.get("calls", [])),
        instances=_matches(raw.get("instances", {})),
        queues=_matches(raw.get("queues", {})),
        metrics=_matches(raw.get("metrics", {})),
    )


def _job_expected(raw: dict[str, Any]) -> JobExpected:
    identical = raw.get("identical")
    if identical is not None:
        identical = Identical(**identical) if isinstance(identical, dict) else Identical(identical)
    fields = _matches({name: raw[name] for name in _FIELDS if name in raw and name != "reason"})
    if "reason" in raw:
        fields["reason"] = Match.text(raw["reason"])
    return JobExpected(
        fields=fields,
        counters=_matches(raw.get("counters", {})),
        attempts=tuple(_attempt(one) for one in raw.get("attempts", [])),
        resumes_proven=raw.get("resumes_proven", False),
        identical=identical,
        step_log=raw.get("step_log"),
        events=tuple(raw.get("events", ())),
        never=tuple(raw.get("never", ())),
        warned=Match.text(raw["warned"]) if "warned" in raw else None,
    )


def _attempt(raw: dict[str, Any]) -> dict[str, Match]:
    return {
        name: Match.text(value) if name == "output" else Match.of(value)
        for name, value in raw.items()
    }


def _call_expected(raw: dict[str, Any]) -> CallExpected:
    given = dict(raw)
    count = given.pop("count", {"at_least": 1})
    return CallExpected(CallPattern(**given), Match.of(count))


def _matches(raw: dict[str, Any]) -> dict[str, Match]:
    return {name: Match.of(value) for name, value in raw.items()}
