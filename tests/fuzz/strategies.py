"""Bodies that nobody should send: none at all, nonsense, and real ones with a few things wrong."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

# The same cases on every run; FUZZ_EXAMPLES=5000 looks further, as a person may want to.
FUZZ = settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "100")))

Path = tuple[str | int, ...]

DEEP = "<deep>"  # stands for nesting without end, which a report of a failure can't show

# What has broken parsers before: the edges of each type, and one type in place of another.
NASTY: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        2**63,
        -(2**63),
        10**11,
        -(10**11),
        10**40,
        1e308,
        -1e308,
        float("inf"),
        float("nan"),
        "",
        " ",
        "\x00",
        "\ud800",
        "a" * 5000,
        "i-0ff00000000000099",
        "i-0aa00000000000001#",
        "../../etc/passwd",
        "HOST#i-0aa00000000000001",
        "1e999",
        "NaN",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "2026-03-01T10:00:00+23:59",
        "Thu, 99 Foo 2026 25:61:61 GMT",
        "interruption",
        "terminate",
        [],
        {},
        [[[[]]]],
        {"": {"": None}},
    ]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    NASTY | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
NO_JSON = st.sampled_from(["", "{", DEEP, "null", "7", '"text"', "\x00", '{"v":1', "[]"]) | st.text(
    max_size=40
)


@st.composite
def spoilt(draw: st.DrawFn, real: dict[str, Any]) -> dict[str, Any]:
    """Return *real* with one to three places removed, replaced or added to."""
    body = copy.deepcopy(real)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(body))
        path = draw(st.sampled_from(places)) if places else ()
        holder: Any = _at(body, path[:-1]) if path else body
        what = draw(st.sampled_from(["remove", "replace", "add"]))
        if what == "add" or not path:
            target = _at(body, path) if path else body
            if isinstance(target, dict):
                target[draw(st.text(max_size=8))] = draw(JSON)
            elif isinstance(target, list):
                target.append(draw(JSON))
        elif what == "remove":
            del holder[path[-1]]
        else:
            holder[path[-1]] = draw(JSON)
    return body


def spelt_out(body: str) -> str:
    """Return the message that *body* stands for."""
    return "[" * 50_000 if body == DEEP else body


def bodies(*real: dict[str, Any]) -> st.SearchStrategy[str]:
    """Return message bodies: *real* ones spoilt, any JSON, and what isn't JSON."""
    nearly = st.sampled_from(real).flatmap(spoilt)
    return (nearly | nearly | JSON).map(json.dumps) | NO_JSON


def _places(node: Any, at: Path = ()) -> Iterator[Path]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*at, key)
            yield from _places(value, (*at, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield (*at, index)
            yield from _places(value, (*at, index))


def _at(node: Any, path: Path) -> Any:
    for step in path:
        node = node[step]
    return node
