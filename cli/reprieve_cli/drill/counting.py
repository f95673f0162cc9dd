"""Which AWS calls a pattern means, by what the world's log says of them."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from typing import Any

from reprieve_cli.drill.match import Match
from reprieve_cli.drill.scenario import CallPattern


def count_calls(pattern: CallPattern, calls: Sequence[dict[str, Any]]) -> int:
    """Count the *calls* that *pattern* means."""
    return sum(1 for call in calls if _is_meant(pattern, call))


def count_distinct(path: str, pattern: CallPattern, calls: Sequence[dict[str, Any]]) -> int:
    """Count the different values of the parameter *path* in the *calls* that *pattern* means."""
    meant = [call for call in calls if _is_meant(pattern, call)]
    return len({json.dumps(_at(path, call["parameters"]), sort_keys=True) for call in meant})


def _is_meant(pattern: CallPattern, call: dict[str, Any]) -> bool:
    pairs = (
        (call["service"], pattern.service),
        (call["action"], pattern.action),
        (call["caller"] or "", pattern.caller),
    )
    if not all(fnmatch.fnmatchcase(value, wanted) for value, wanted in pairs):
        return False
    if pattern.error is not None and not fnmatch.fnmatchcase(call["error"] or "", pattern.error):
        return False
    on = call["resources"] or [""]
    if not any(fnmatch.fnmatchcase(name, pattern.resource) for name in on):
        return False
    return _has_key(pattern, call) and _has_parameters(pattern, call)


def _has_key(pattern: CallPattern, call: dict[str, Any]) -> bool:
    if pattern.key is None:
        return True
    return any(
        fnmatch.fnmatchcase(f"{key['pk'] or ''}/{key['sk'] or ''}", pattern.key)
        for key in call["keys"]
    )


def _has_parameters(pattern: CallPattern, call: dict[str, Any]) -> bool:
    if pattern.holding:
        text = json.dumps(call["parameters"])
        if not all(part in text for part in pattern.holding):
            return False
    return all(_some_fit(rule, _at(path, call["parameters"])) for path, rule in pattern.parameters)


def _some_fit(rule: Match, values: list[Any]) -> bool:
    """Tell whether one of *values* fits; what must not be, must not be in any of them."""
    how = all if any(name == "not" for name, _ in rule.rules) else any
    return how(rule.fits(value) for value in values or [None])


def _at(path: str, given: Any) -> list[Any]:
    """Return what stands at the dotted *path*; it goes into each item of a list."""
    values = [given]
    for name in path.split("."):
        values = [one[name] for one in _flat(values) if isinstance(one, Mapping) and name in one]
    return _flat(values)


def _flat(values: list[Any]) -> list[Any]:
    return [item for one in values for item in (one if isinstance(one, list) else [one])]
