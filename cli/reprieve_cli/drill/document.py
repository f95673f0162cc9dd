"""Scenario files: how they become a ``Scenario``; ``form`` says what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprieve_cli.drill.form import ACTIONS, FIELDS, SHAPE
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
    MessageAction,
    Moment,
    ObjectAction,
    Passed,
    PoolsAction,
    Scenario,
    Span,
    Step,
    WaitAction,
    When,
    WorldAction,
    WorldSeen,
)
from reprieve_cli.drill.shape import INVALID, Problem, read


class ScenarioError(Exception):
    """The scenario can't be played: one line for each thing that is wrong with it."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{path}:{found.line}: {found.text}" for found in problems))
        self.problems = problems


def load(path: Path) -> Scenario:
    """Read the scenario at *path*; raise ``ScenarioError`` naming each line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(path, [Problem(1, f"can't be read: {reason}")]) from error
    except UnicodeDecodeError as error:
        raise ScenarioError(path, [Problem(1, "can't be read: save it as UTF-8")]) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    """Read *text*; *path* is where its ``code`` folders start from and what errors name."""
    raw, problems = read(text, SHAPE, base=path.parent)
    if raw is INVALID:
        raise ScenarioError(path, problems)
    return Scenario(
        path=path,
        name=raw.get("name", path.stem),
        description=raw.get("description", ""),
        clock_scale=raw["clock_scale"],
        stack=raw.get("stack"),
        world=WorldAction(raw["world"]) if "world" in raw else None,
        pools=tuple(CapacityOffer(**one) for one in raw["pools"]) if "pools" in raw else None,
        jobs=tuple(_job(one) for one in raw["jobs"]),
        steps=tuple(_step(one) for one in raw.get("steps", [])),
        expect=_expected(raw["expect"]),
    )


def _job(raw: dict[str, Any]) -> JobPlan:
    given = dict(raw)
    return JobPlan(
        name=given.pop("name"),
        command=tuple(given.pop("command")),
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
        return CallSeen(
            _pattern(raw["call"]), raw.get("times", 1), in_flight=raw.get("in_flight", False)
        )
    if "world" in raw:
        return WorldSeen(raw["world"])
    known = {name: raw.get(name) for name in ("attempt", "step", "committed", "event")}
    return JobState(raw["job"], tuple(raw.get("status", ())), **known)


def _pattern(raw: dict[str, Any]) -> CallPattern:
    given = dict(raw)
    wanted = given.pop("parameters", [])
    if isinstance(wanted, dict):
        rules = tuple((path, Match.of(rule)) for path, rule in wanted.items())
        return CallPattern(**given, parameters=rules)
    return CallPattern(**given, holding=tuple(wanted))


def _host_action(raw: dict[str, Any]) -> HostAction:
    given = dict(raw)
    host = HostRef(
        of=given.pop("of", None),
        attempt=given.pop("attempt", None),
        nth=given.pop("nth", None),
        zone=given.pop("zone", None),
        every=given.pop("every", False),
    )
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
    "message": lambda raw: MessageAction(**raw),
    "object": lambda raw: ObjectAction(**raw),
    "pools": _pools_action,
    "wait": lambda raw: WaitAction(_when(raw), raw.get("within")),
    "world": WorldAction,
}


def _expected(raw: dict[str, Any]) -> Expected:
    return Expected(
        jobs={name: _job_expected(one) for name, one in raw.get("jobs", {}).items()},
        calls=tuple(_call_expected(one) for one in raw.get("calls", [])),
        instances=_instances(raw.get("instances", {})),
        queues=_matches(raw.get("queues", {})),
        metrics=_matches(raw.get("metrics", {})),
        seconds=Match.of(raw["seconds"]) if "seconds" in raw else None,
    )


def _instances(raw: dict[str, Any]) -> dict[str, Match]:
    found = _matches({name: raw[name] for name in ("alive", "launched") if name in raw})
    for by in ("zone", "market", "type"):
        found |= {f"{by} {name}": Match.of(rule) for name, rule in raw.get(by, {}).items()}
    return found


def _job_expected(raw: dict[str, Any]) -> JobExpected:
    identical = raw.get("identical")
    if identical is not None:
        identical = Identical(**identical) if isinstance(identical, dict) else Identical(identical)
    fields = _matches({name: raw[name] for name in FIELDS if name in raw and name != "reason"})
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
        event_counts=_matches(raw.get("event_counts", {})),
        times=tuple(_span(one) for one in raw.get("times", [])),
        never=tuple(raw.get("never", ())),
        warned=Match.text(raw["warned"]) if "warned" in raw else None,
    )


def _span(raw: dict[str, Any]) -> Span:
    return Span(_moment(raw["from"]), _moment(raw["to"]), Match.of(raw["seconds"]))


def _moment(raw: Any) -> Moment:
    return Moment(world=raw["world"]) if isinstance(raw, dict) else Moment(event=raw)


def _attempt(raw: dict[str, Any]) -> dict[str, Match]:
    return {
        name: Match.text(value) if name == "output" else Match.of(value)
        for name, value in raw.items()
    }


def _call_expected(raw: dict[str, Any]) -> CallExpected:
    given = dict(raw)
    count, distinct = given.pop("count", {"at_least": 1}), given.pop("distinct", None)
    return CallExpected(_pattern(given), Match.of(count), distinct)


def _matches(raw: dict[str, Any]) -> dict[str, Match]:
    return {name: Match.of(value) for name, value in raw.items()}
