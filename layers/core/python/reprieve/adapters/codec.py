"""
Our dataclasses as DynamoDB items and back.

None is left out, and so is an empty set, which DynamoDB refuses. A number outside
DynamoDB's range, NaN and the infinities become text. Moments are UTC text of fixed
width, so that they compare as text; durations are seconds. An attribute that a class
doesn't know is ignored, a missing one takes its default: rows outlive versions.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from reprieve.domain.errors import MalformedError
from reprieve.domain.lease import Holder, LeaseKey
from reprieve.domain.order import Plan

T = TypeVar("T")
Value = dict[str, Any]  # one attribute value, as the low-level client takes it: {"S": "text"}
Item = dict[str, Value]

# Conditions compare a holder and sets hold keys, so both are text; a plan is replayed
# word for word, so its text is what is kept.
TEXT_FORMS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    Holder: (str, Holder.parse),
    LeaseKey: (str, LeaseKey.parse),
    Plan: (Plan.to_json, Plan.from_json),
}

MICROSECOND = timedelta(microseconds=1)
MAX_DIGITS = 38
SMALLEST, LARGEST = 1e-130, 9.9e125


def encode(value: Any) -> Value:  # noqa: C901, PLR0912 - one branch per type
    """Return *value* as an attribute value; raise ``TypeError`` for what can't be stored."""
    if type(value) in TEXT_FORMS:
        return {"S": TEXT_FORMS[type(value)][0](value)}
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case Enum():
            return {"S": value.value}
        case str():
            return {"S": value}
        case int():
            return {"N" if abs(value) < 10**MAX_DIGITS else "S": str(value)}
        case float():
            return {"N" if _fits(value) else "S": repr(value)}
        case datetime():
            return {"S": moment(value)}
        case timedelta():
            return {"N": str(Decimal(value // MICROSECOND).scaleb(-6))}
        case tuple() | list():
            return {"L": [encode(entry) for entry in value]}
        case frozenset() | set():
            return {"SS": sorted(encode(entry)["S"] for entry in value)}
        case dict():
            return {"M": {key: encode(entry) for key, entry in value.items()}}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {"M": to_item(value)}
        case _:
            raise TypeError(f"{type(value).__name__} can't be stored")


def decode(kind: Any, value: Value) -> Any:  # noqa: C901 - one branch per type
    """Read an attribute value as *kind*, a type or an annotation."""
    if kind in TEXT_FORMS:
        return TEXT_FORMS[kind][1](value["S"])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        options = [option for option in arguments if option is not types.NoneType]
        if "NULL" in value:
            return None
        return decode(options[0], value) if len(options) == 1 else _scalar(value)
    if origin is typing.Literal:
        return _scalar(value)
    if origin is tuple:
        kinds = _entries(arguments, len(value["L"]))
        return tuple(decode(k, v) for k, v in zip(kinds, value["L"], strict=True))
    if origin is frozenset:
        return frozenset(decode(arguments[0], {"S": text}) for text in value["SS"])
    if origin is dict:
        return {key: decode(arguments[1], entry) for key, entry in value["M"].items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return from_item(kind, value["M"])
    if kind is bool:
        return bool(value["BOOL"])
    if kind in {int, float}:
        return kind(value.get("N", value.get("S")))
    if kind is datetime:
        return datetime.fromisoformat(value["S"])
    if kind is timedelta:
        return int(Decimal(value["N"]).scaleb(6)) * MICROSECOND
    return kind(value["S"])


def to_item(record: Any) -> Item:
    """Return the attributes of a dataclass instance, by field name."""
    return {
        f.name: encode(value)
        for f in fields(record)
        if not _left_out(f, value := getattr(record, f.name))
    }


def from_item(kind: type[T], item: Mapping[str, Value]) -> T:
    """Read a dataclass from its attributes; raise ``MalformedError``."""
    values: dict[str, Any] = {}
    for f, annotation in _annotated(kind):
        try:
            if f.name in item:
                values[f.name] = decode(annotation, item[f.name])
            elif f.default is MISSING and f.default_factory is MISSING:
                values[f.name] = _absent(annotation)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"{kind.__name__}.{f.name} can't be read: {error!r}") from error
    return kind(**values)


def moment(at: datetime) -> str:
    """Return an aware moment as UTC text of fixed width, which sorts by time."""
    if at.tzinfo is None:
        raise ValueError("a moment without a time zone can't be stored")
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _left_out(f: Field[Any], value: Any) -> bool:
    if value is None:
        return f.default is None or f.default is MISSING
    return isinstance(value, frozenset) and not value


def _absent(annotation: Any) -> Any:
    if typing.get_origin(annotation) is frozenset:
        return frozenset()
    if types.NoneType in typing.get_args(annotation):
        return None
    raise KeyError("missing")


def _fits(number: float) -> bool:
    return number == 0 or (math.isfinite(number) and SMALLEST <= abs(number) <= LARGEST)


def _scalar(value: Value) -> str | int | float | bool:
    if "N" in value:
        number = Decimal(value["N"])
        return int(number) if number == number.to_integral_value() else float(number)
    return bool(value["BOOL"]) if "BOOL" in value else str(value["S"])


def _entries(arguments: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return (arguments[0],) * length if arguments[-1] is Ellipsis else arguments


def _annotations(kind: Any) -> tuple[tuple[Field[Any], Any], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((f, hints[f.name]) for f in fields(kind))


_annotated: Callable[[Any], tuple[tuple[Field[Any], Any], ...]] = functools.cache(_annotations)
