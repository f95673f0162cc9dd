"""
What a YAML document must look like, and where it doesn't: every problem with its line.

A shape reads one node into a plain value. What it can't read it notes, and goes on, so that a
person sees all problems at once. It also says itself as JSON Schema, for editors; what that
can't say (names that must exist, words of which one is needed by another) only reading finds.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

INVALID: Any = object()  # stands for a value that was noted as a problem
_STR = "tag:yaml.org,2002:str"
_SINGLE = ["string", "number", "boolean", "null"]

Schema = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML without its dates: an event's time is text, as it is in the event."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: *line* counts from 1."""

    line: int
    text: str


@dataclass(slots=True)
class Problems:
    """Collects them; folders in the document start from *base*."""

    base: Path = Path()
    found: list[Problem] = field(default_factory=list)
    _defined: set[str] = field(default_factory=set)
    _used: list[tuple[yaml.Node, str, str]] = field(default_factory=list)

    def define(self, node: yaml.Node, where: str, name: str) -> None:
        """Take *name* as one that the document gives to a thing of its own."""
        if name in self._defined:
            self.note(node, where, f"{name!r} is the name of another one already")
        self._defined.add(name)

    def use(self, node: yaml.Node, where: str, name: str) -> None:
        """Take *name* as one that the document defines somewhere, perhaps further down."""
        self._used.append((node, where, name))

    def note_undefined(self) -> None:
        """Note the names that nothing defines, after everything was read."""
        for node, where, name in self._used:
            if name not in self._defined:
                known = _all(sorted(self._defined)) or "none"
                self.note(node, where, f"nothing is named {name!r}, known: {known}")

    def note(self, node: yaml.Node, where: str, text: str) -> Any:
        """Note what is wrong with *node*, which stands at *where*."""
        self.found.append(Problem(node.start_mark.line + 1, f"{where}: {text}"))
        return INVALID


class Shape(Protocol):
    """One kind of value."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        """Return the plain value of *node*, or note why there is none and return ``INVALID``."""

    def schema(self) -> Schema:
        """Return what can be read, as JSON Schema."""


def read(text: str, shape: Shape, *, base: Path = Path()) -> tuple[Any, list[Problem]]:
    """Return the value of the YAML *text* and its problems, by line; no value if there are any."""
    problems = Problems(base)
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = INVALID if node is None else shape.read(node, "", problems)
        if node is None:
            problems.found.append(Problem(1, "the file is empty"))
        elif not problems.found:  # a name that couldn't be read would only be noted again
            problems.note_undefined()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return INVALID, [Problem(line, f"not YAML: {error.problem}")]
    except yaml.YAMLError as error:
        return INVALID, [Problem(1, f"not YAML: {' '.join(str(error).split())}")]
    except RecursionError:
        return INVALID, [Problem(1, "an anchor contains itself")]
    return (INVALID if problems.found else value), sorted(problems.found)


def _plain(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


@dataclass(frozen=True, slots=True)
class Text:
    """A text that isn't empty; one of *choices* if there are any."""

    choices: Collection[str] = ()

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
            return problems.note(node, where, f"must be a text, quote {_shown(node)}")
        text = node.value
        if not text:
            return problems.note(node, where, "must not be empty")
        if self.choices and text not in self.choices:
            return problems.note(node, where, f"{text!r} is not one of {_all(self.choices)}")
        return text

    def schema(self) -> Schema:
        return {"enum": list(self.choices)} if self.choices else {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a thing in the document: *defined* here, or used."""

    defined: bool = False

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        text = Text().read(node, where, problems)
        if text is not INVALID:
            (problems.define if self.defined else problems.use)(node, where, text)
        return text

    def schema(self) -> Schema:
        return Text().schema()


@dataclass(frozen=True, slots=True)
class Known:
    """One of many names of a *kind*, too many to list: a wrong one is told with the nearest."""

    kind: str
    names: Callable[[], Collection[str]]

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        text = Text().read(node, where, problems)
        if text is INVALID or text in self.names():
            return text
        near = difflib.get_close_matches(text, self.names(), n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        return problems.note(node, where, f"no {self.kind} is named {text!r}{hint}")

    def schema(self) -> Schema:
        return Text().schema()


@dataclass(frozen=True, slots=True)
class Folder:
    """The path of a folder, from the document's own."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        text = Text().read(node, where, problems)
        if text is INVALID:
            return INVALID
        folder = problems.base / text
        if not folder.is_dir():
            return problems.note(node, where, f"{folder} is no folder: mend the path")
        return folder.resolve()

    def schema(self) -> Schema:
        return Text().schema()


@dataclass(frozen=True, slots=True)
class Word:
    """A single value, taken as it is written: ``--steps`` and ``60`` alike."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return problems.note(node, where, "must be a single value")
        return node.value

    def schema(self) -> Schema:
        return {"type": _SINGLE}


@dataclass(frozen=True, slots=True)
class Number:
    """A number; *whole* refuses fractions. *least* itself is allowed, *above* is not."""

    least: float | None = None
    above: float | None = None
    whole: bool = False
    optional: bool = False
    """Also takes null."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        value = _plain(node) if isinstance(node, yaml.ScalarNode) else INVALID
        if value is None and self.optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            kind = "a whole number" if self.whole else "a number"
            return problems.note(node, where, f"must be {kind}, not {_shown(node)}")
        if self.least is not None and value < self.least:
            return problems.note(node, where, f"{value} is less than {self.least:g}")
        if self.above is not None and not value > self.above:
            return problems.note(node, where, f"{value} must be above {self.above:g}")
        return value

    def schema(self) -> Schema:
        kind = "integer" if self.whole else "number"
        described: Schema = {"type": [kind, "null"] if self.optional else kind}
        if self.least is not None:
            described["minimum"] = self.least
        if self.above is not None:
            described["exclusiveMinimum"] = self.above
        return described


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        value = _plain(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(value, bool):
            return problems.note(node, where, f"must be true or false, not {_shown(node)}")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Any single value: text, number, true, false, null."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return problems.note(node, where, "must be a single value")
        return _plain(node)

    def schema(self) -> Schema:
        return {"type": _SINGLE}


@dataclass(frozen=True, slots=True)
class Whatever:
    """Anything that JSON can say, passed on as it stands."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        try:
            value = _plain(node)
            json.dumps(value, allow_nan=False)
        except yaml.MarkedYAMLError as error:
            return problems.note(node, where, str(error.problem))
        except (TypeError, ValueError) as error:  # dates, sets, what contains itself
            return problems.note(node, where, f"can't be said in JSON: {error}")
        return value

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one shape; with *alone* a single value stands for a list of one."""

    shape: Shape
    least: int = 0
    alone: bool = False

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            if self.alone:
                return [self.shape.read(node, where, problems)]
            return problems.note(node, where, "must be a list")
        if len(node.value) < self.least:
            return problems.note(node, where, "must not be empty")
        return [
            self.shape.read(item, f"{where}[{place}]", problems)
            for place, item in enumerate(node.value)
        ]

    def schema(self) -> Schema:
        one = self.shape.schema()
        many = {"type": "array", "items": one, **({"minItems": self.least} if self.least else {})}
        return {"anyOf": [one, many]} if self.alone else many


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the writer's own; with *used*, names of things in the document."""

    shape: Shape
    used: bool = False

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        found = _pairs(node, where, problems)
        if found is INVALID:
            return INVALID
        read = {}
        for name, (key, value) in found.items():
            if self.used:
                problems.use(key, where, name)
            read[name] = self.shape.read(value, _below(where, name), problems)
        return read

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.shape.schema()}


@dataclass(frozen=True, slots=True)
class Fields:
    """
    A mapping with known names.

    Of the names in *one_of*, exactly one must be given; of those in *not_both*, one at most.
    *only* says for names which values of the name *by* they go with. Names that aren't *listed*
    are left out of the schema: they grow with the code, and old schemas should stay good.
    """

    shapes: Mapping[str, Shape]
    required: Collection[str] = ()
    one_of: Collection[str] = ()
    not_both: Collection[str] = ()
    by: str = ""
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    listed: bool = True
    check: Callable[[dict[str, Any]], str | None] | None = None
    """Says what is wrong with the whole, once each part is right."""

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        found = _pairs(node, where, problems)
        if found is INVALID:
            return INVALID
        before = len(problems.found)
        for name in self.required:
            if name not in found:
                problems.note(node, where or "scenario", f"{name!r} is missing")
        if self.one_of and sum(name in found for name in self.one_of) != 1:
            problems.note(node, where, f"give exactly one of {_all(self.one_of)}")
        if sum(name in found for name in self.not_both) > 1:
            problems.note(node, where, f"give one of {_all(self.not_both)}, not both")
        values = {
            name: self._value(name, value, where, problems) for name, (_, value) in found.items()
        }
        for name in self.only.keys() & values.keys():
            if values.get(self.by) not in self.only[name]:
                text = f"{name!r} goes with {self.by}: {_all(self.only[name])} only"
                problems.note(found[name][0], where, text)
        if self.check and len(problems.found) == before:
            trouble = self.check(values)
            if trouble:
                return problems.note(node, where, trouble)
        return values

    def _value(self, name: str, node: yaml.Node, where: str, problems: Problems) -> Any:
        if name in self.shapes:
            return self.shapes[name].read(node, _below(where, name), problems)
        near = difflib.get_close_matches(name, self.shapes, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {_all(self.shapes)}"
        return problems.note(node, where or "scenario", f"unknown key {name!r}, {hint}")

    def schema(self) -> Schema:
        if not self.listed:
            one, *_ = self.shapes.values()
            return {"type": "object", "additionalProperties": one.schema()}
        described: Schema = {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.shapes.items()},
            "additionalProperties": False,
        }
        if self.required:
            described["required"] = list(self.required)
        if self.one_of:
            described["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.not_both:
            described["not"] = {"required": list(self.not_both)}
        if self.only:
            described["allOf"] = [self._only(name) for name in self.only]
        return described

    def _only(self, name: str) -> Schema:
        by = {"properties": {self.by: {"enum": list(self.only[name])}}, "required": [self.by]}
        return {"if": {"required": [name]}, "then": by}


@dataclass(frozen=True, slots=True)
class Cases:
    """A mapping of one of several shapes, told apart by the name that only it has."""

    cases: Mapping[str, Shape]

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        found = _pairs(node, where, problems)
        if found is INVALID:
            return INVALID
        named = [shape for name, shape in self.cases.items() if name in found]
        if len(named) != 1:
            return problems.note(node, where, f"give exactly one of {_all(self.cases)}")
        return named[0].read(node, where, problems)

    def schema(self) -> Schema:
        return {
            "oneOf": [
                {"allOf": [shape.schema(), {"required": [name]}]}
                for name, shape in self.cases.items()
            ]
        }


@dataclass(frozen=True, slots=True)
class Either:
    """A mapping of shape *full*, or anything else, of shape *short*."""

    short: Shape
    full: Shape

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        shape = self.full if isinstance(node, yaml.MappingNode) else self.short
        return shape.read(node, where, problems)

    def schema(self) -> Schema:
        return {"anyOf": [self.short.schema(), self.full.schema()]}


@dataclass(frozen=True, slots=True)
class Named:
    """A shape that stands in many places: its schema is written once, under its name."""

    name: str
    shape: Shape

    def read(self, node: yaml.Node, where: str, problems: Problems) -> Any:
        return self.shape.read(node, where, problems)

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.name}"}


def _pairs(node: yaml.Node, where: str, problems: Problems) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return problems.note(node, where or "scenario", "must be a mapping of names to values")
    found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
        if name in found:
            problems.note(key, where or "scenario", f"{name!r} is given twice")
        found[name] = key, value
    return found


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _all(names: Collection[str]) -> str:
    return ", ".join(names)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
