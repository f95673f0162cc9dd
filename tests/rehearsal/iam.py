"""
A small judge of identity policies, for what the emulator's own can't judge.

It knows the elements that our policies use and refuses to guess at any other: a condition
that it doesn't know is an error, never a pass. Rules are those of the IAM user guide, "Policy
evaluation logic" and "Condition operators".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

ELEMENTS = frozenset({"Sid", "Effect", "Action", "Resource", "Condition"})
IF_EXISTS = "IfExists"

Document = Mapping[str, Any]
Context = Mapping[str, tuple[str, ...]]


class CannotJudgeError(Exception):
    """A policy or a call holds something whose meaning isn't known here."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to IAM: an action on one resource, and what is known of the request."""

    action: str
    resource: str
    context: Context = field(default_factory=dict)

    def __str__(self) -> str:
        known = {key: list(values) for key, values in sorted(self.context.items())}
        return f"{self.action} on {self.resource}" + (f" with {known}" if known else "")


@dataclass(frozen=True, slots=True)
class Condition:
    """One operator on one key: ``ForAllValues:StringLike`` is ("ForAllValues", "StringLike")."""

    quantifier: str
    operator: str
    if_exists: bool
    key: str
    wanted: tuple[str, ...]

    def holds(self, context: Context) -> bool:
        given = next((v for k, v in context.items() if k.lower() == self.key.lower()), None)
        if given is None:
            # A negation holds for what isn't there, and so does a claim about all of nothing.
            return self.if_exists or self._negated or self.quantifier == "ForAllValues"
        if self.quantifier == "ForAllValues":
            return all(map(self._suits, given))
        return any(map(self._suits, given))

    @property
    def _negated(self) -> bool:
        return self.operator.startswith("StringNot")

    def _suits(self, value: str) -> bool:
        like = self.operator.endswith("Like")
        found = any(matches(value, one) if like else value == one for one in self.wanted)
        return found is not self._negated


OPERATORS = frozenset({"StringEquals", "StringNotEquals", "StringLike", "StringNotLike"})
QUANTIFIERS = frozenset({"", "ForAllValues", "ForAnyValue"})


@dataclass(frozen=True, slots=True)
class Statement:
    sid: str
    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[Condition, ...]

    def applies(self, request: Request) -> bool:
        return (
            any(matches(request.action.lower(), one.lower()) for one in self.actions)
            and any(matches(request.resource, one) for one in self.resources)
            and all(condition.holds(request.context) for condition in self.conditions)
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """*by* is the statement that decided; None if no statement speaks of the request."""

    allowed: bool
    by: str | None


@dataclass(frozen=True, slots=True)
class Policies:
    """All identity policies of one principal."""

    statements: tuple[Statement, ...]

    @classmethod
    def of(cls, documents: Iterable[Document]) -> Policies:
        return cls(tuple(one for document in documents for one in read(document)))

    def judge(self, request: Request) -> Verdict:
        """Deny wins over allow, and silence denies."""
        speaking = [one for one in self.statements if one.applies(request)]
        for statement in sorted(speaking, key=lambda one: one.allows):
            return Verdict(statement.allows, statement.sid)
        return Verdict(allowed=False, by=None)


def read(document: Document) -> Iterator[Statement]:
    """Return the statements of a policy document; raise ``CannotJudgeError``."""
    for one in _listed(document["Statement"]):
        unknown = set(one) - ELEMENTS
        if unknown:
            raise CannotJudgeError(f"{one.get('Sid', '?')}: {', '.join(sorted(unknown))}")
        yield Statement(
            sid=one.get("Sid", "?"),
            allows={"Allow": True, "Deny": False}[one["Effect"]],
            actions=_texts(one["Action"]),
            resources=_texts(one["Resource"]),
            conditions=tuple(_conditions(one.get("Condition", {}))),
        )


def _conditions(block: Mapping[str, Mapping[str, Any]]) -> Iterator[Condition]:
    for name, keys in block.items():
        quantifier, _, operator = name.rpartition(":")
        if_exists = operator.endswith(IF_EXISTS)
        operator = operator.removesuffix(IF_EXISTS)
        if operator not in OPERATORS or quantifier not in QUANTIFIERS:
            raise CannotJudgeError(f"the condition operator {name}")
        for key, wanted in keys.items():
            yield Condition(quantifier, operator, if_exists, key, _texts(wanted))


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(_listed(value))
    for text in texts:
        if not isinstance(text, str) or "${" in text:
            raise CannotJudgeError(f"{text!r} is no plain text")
    return texts


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def matches(text: str, pattern: str) -> bool:
    """Match as IAM does: ``*`` and ``?`` are wildcards and cross every separator."""
    return _compiled(pattern).fullmatch(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    special = {"*": ".*", "?": "."}
    return re.compile("".join(special.get(c, re.escape(c)) for c in pattern), re.DOTALL)
