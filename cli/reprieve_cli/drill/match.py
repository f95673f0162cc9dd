"""What a value is expected to be: itself, a bound, or part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprieve_cli.drill.shape import Either, Fields, ListOf, Named, Number, Scalar, Shape, Word

RULES: dict[str, Shape] = {
    "at_least": Number(),
    "at_most": Number(),
    "not": Scalar(),
    "contains": Word(),
    "one_of": ListOf(Scalar(), least=1),
}
SHAPE = Named("match", Either(short=Scalar(), full=Fields(RULES)))


@dataclass(frozen=True, slots=True)
class Match:
    """Every rule must hold; ``is`` is the rule of a value that stands alone."""

    rules: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, described: Any) -> Match:
        """Read what ``SHAPE`` let through."""
        if isinstance(described, Mapping):
            return cls(tuple(described.items()))
        return cls((("is", described),))

    @classmethod
    def text(cls, described: Any) -> Match:
        """Read the same for long texts, where a value alone is a part of the text."""
        if isinstance(described, Mapping):
            return cls.of(described)
        return cls((("contains", str(described)),))

    def fits(self, seen: Any) -> bool:
        """Tell whether *seen* is as expected."""
        return all(_holds(rule, wanted, seen) for rule, wanted in self.rules)

    def __str__(self) -> str:
        """Return it in words."""
        return " and ".join(_words(rule, wanted) for rule, wanted in self.rules)


def _holds(rule: str, wanted: Any, seen: Any) -> bool:
    match rule:
        case "is":
            return bool(seen == wanted)
        case "at_least":
            return seen is not None and bool(seen >= wanted)
        case "at_most":
            return seen is not None and bool(seen <= wanted)
        case "not":
            return bool(seen != wanted)
        case "contains":
            return wanted in str(seen or "")
        case "one_of":
            return seen in wanted
        case _:
            raise AssertionError(rule)


def _words(rule: str, wanted: Any) -> str:
    match rule:
        case "is":
            return shown(wanted)
        case "one_of":
            return f"one of {', '.join(shown(one) for one in wanted)}"
        case "contains":
            return f"a text with {wanted!r}"
        case _:
            return f"{rule.replace('_', ' ')} {shown(wanted)}"


def shown(value: Any) -> str:
    """Return a value as it is read best: nothing is ``none``."""
    return "none" if value is None else str(value)
