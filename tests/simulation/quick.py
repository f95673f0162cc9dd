"""
Quicker forms of what the search asks for most, with the same answers.

``dataclasses.replace`` and ``fields`` look at a class anew at every call. Here each class is
looked at once, and modules that imported the slow forms get these while a search runs.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

from reprieve.domain.order import Plan

OURS = ("reprieve.", "reprieve_agent.", "tests.simulation.")
KEPT: Any = object()  # stands for a field that isn't changed


class Copiers(dict[type[object], Callable[..., Any]]):
    """A function for each class that makes a changed copy of one of its instances."""

    def __missing__(self, kind: type[Any]) -> Callable[..., Any]:
        self[kind] = _copier(kind)
        return self[kind]


COPIERS = Copiers()


def _copier(kind: type[Any]) -> Callable[..., Any]:
    fields = dataclasses.fields(kind)
    if not all(each.init for each in fields):
        return dataclasses.replace
    takes = ", ".join(f"{each.name}=_kept" for each in fields)
    gives = ", ".join(
        f"{f'{each.name}=' if each.kw_only else ''}"
        f"_old.{each.name} if {each.name} is _kept else {each.name}"
        for each in fields
    )
    made: dict[str, Any] = {"_kind": kind, "_kept": KEPT}
    exec(f"def copy(_old, /, *, {takes}): return _kind({gives})", made)
    copy: Callable[..., Any] = made["copy"]
    return copy


def replace(old: Any, /, **changes: Any) -> Any:
    """Return a copy of *old* with *changes*."""
    return COPIERS[type(old)](old, **changes)


@cache
def _fields(kind: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


def fields(of: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a dataclass or one of its instances."""
    return _fields(of if isinstance(of, type) else type(of))


TOKEN = vars(Plan)["client_token"].fget
SLOW = {"replace": (dataclasses.replace, replace), "fields": (dataclasses.fields, fields)}


@lru_cache(maxsize=64)
def _token(plan: Plan) -> str:
    """Hash a plan once: it is asked at each launch, redelivery and look."""
    return str(TOKEN(plan))


@contextmanager
def quickly() -> Iterator[None]:
    """Let our modules use the quick forms meanwhile."""
    with ExitStack() as stack:
        for module in _ours():
            for name, (slow, quick) in SLOW.items():
                if getattr(module, name, None) is slow:
                    stack.enter_context(patch.object(module, name, quick))
        stack.enter_context(patch.object(Plan, "client_token", property(_token)))
        yield


def _ours() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith(OURS)]
