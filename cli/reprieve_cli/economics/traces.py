"""
When capacity was there: traces, those that we ship and those of the user.

A trace is a set of capacity pools. Each has one or more *slots*, spans of time during which a
host could be held. A log of launch probes gives one slot that anybody may share: whether a
launch works says nothing about how many. A log of nodes gives one slot a node.

The same probe log exists in public with both polarities, so a file must say its own.
docs/economics.md describes the formats.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from reprieve_cli.errors import BadInputError

FORMAT = "reprieve-trace/1"
AVAILABLE = "1=available"
PREEMPTED = "1=preempted"
HELP = "see «Your own traces» in docs/economics.md"

Span = tuple[float, float]
Slot = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePool:
    """
    One capacity pool (type × zone): its *slots* in seconds from the start of the trace.

    ``shared`` slots hold any number of hosts. Prices fall back to the scenario's.
    """

    name: str
    type: str
    zone: str
    slots: tuple[Slot, ...]
    shared: bool
    usd_per_hour: float | None = None

    @property
    def region(self) -> str:
        """The zone without its letter."""
        return self.zone.rstrip("abcdefghijklmnopqrstuvwxyz") or self.zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Pools over the same ``seconds``; ``assumptions`` say what the log itself doesn't."""

    name: str
    seconds: float
    pools: tuple[TracePool, ...]
    source: str = ""
    assumptions: tuple[str, ...] = ()

    def for_gang(self, hosts: int) -> Trace:
        """
        Return the trace as a gang of *hosts* sees it: it lives while all its hosts do.

        A shared slot stays as it is: the hazard of a pool hardly depends on how many are held.
        """
        if hosts == 1:
            return self
        pools = tuple(
            pool if pool.shared else replace(pool, slots=_together(pool.slots, hosts))
            for pool in self.pools
        )
        if not any(any(pool.slots) for pool in pools):
            raise BadInputError(f"trace {self.name} never held {hosts} hosts at once")
        return replace(self, pools=pools)


@dataclass(frozen=True, slots=True)
class _Shipped:
    file: str
    pool: tuple[str, str] = ("", "")
    assumptions: tuple[str, ...] = field(default=())


_REPEATED = "the log is shorter than the job: it is repeated, a node alive at both ends lives on"
_NODES = (
    "one capacity pool; a launch gets a random node that was alive at that moment, with what "
    "is left of its life: launches fail only while no node was alive"
)

SHIPPED: dict[str, _Shipped] = {
    "us-west-2": _Shipped(
        "us-west-2-2022-10.json",
        assumptions=(
            "a failed probe counts as a reclaim of the host held, which overstates the hazard",
            "the pools are anonymous and cost the same, though K80 and V100 hosts are mixed",
        ),
    ),
    "bamboo-p3": _Shipped(
        "bamboo-aws-p3-trace.csv",
        ("p3", "aws-1a"),
        (_NODES, _REPEATED),
    ),
    "bamboo-g4dn": _Shipped(
        "bamboo-aws-g4dn-trace.csv",
        ("g4dn", "aws-1a"),
        (_NODES, _REPEATED),
    ),
    "bamboo-a100": _Shipped(
        "bamboo-gcp-a100.csv",
        ("a2-highgpu-1g", "us-east1-b"),
        (
            "counts only: the node that came last is taken first",
            "a preemption is given EC2's notice of 120 s; GCP's own was 30 s",
            *(_NODES, _REPEATED),
        ),
    ),
}
DEFAULT = "us-west-2"


def load(name: str, *, polarity: str | None = None) -> Trace:
    """Return a shipped trace by name, or the user's from its file; raise ``BadInputError``."""
    if name in SHIPPED:
        known = SHIPPED[name]
        text = resources.files(__package__).joinpath("data", known.file).read_text("utf-8")
        read = _parse(known.file, text, polarity=None, pool=known.pool)
        return replace(read, name=name, assumptions=known.assumptions)
    path = Path(name)
    if not path.is_file():
        raise BadInputError(f"no trace {name}: name a file or one of {', '.join(SHIPPED)} ({HELP})")
    text = path.read_text("utf-8", errors="replace")
    return _parse(path.name, text, polarity=polarity, pool=(path.stem, "local-1a"))


def _parse(file: str, text: str, *, polarity: str | None, pool: tuple[str, str]) -> Trace:
    try:
        if file.endswith(".json"):
            return _probes(file, json.loads(text), polarity)
        return _nodes(file, [row for row in csv.reader(text.splitlines()) if row], pool)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadInputError(
            f"{file} isn't a trace: {type(error).__name__} {error} ({HELP})"
        ) from error


def _probes(file: str, raw: Mapping[str, Any], polarity: str | None) -> Trace:
    if "metadata" in raw:  # one pool as the research logs have it, without a polarity
        raw = {
            "gap_seconds": raw["metadata"]["gap_seconds"],
            "pools": {Path(file).stem: {"data": raw["data"]}},
        }
    said = raw.get("polarity", polarity)
    if said not in {AVAILABLE, PREEMPTED}:
        raise BadInputError(
            f'{file} must say "polarity": "{AVAILABLE}" or "{PREEMPTED}" '
            f"(or --polarity): published logs use both"
        )
    gap = float(raw["gap_seconds"])
    values = {name: _values(pool) for name, pool in raw["pools"].items()}
    ticks = max(len(row) for row in values.values())
    if gap <= 0 or ticks == 0:
        raise BadInputError(f"{file} holds no time: gap_seconds and data must be positive")
    if said == PREEMPTED:
        values = {name: [int(v == 0) for v in row] for name, row in values.items()}
    pools = tuple(
        TracePool(
            name=name,
            type=str(pool.get("instance_type", name)),
            zone=str(pool.get("zone", name)),
            slots=_ranks([(i * gap, v) for i, v in enumerate(values[name])], ticks * gap),
            shared=max(values[name], default=0) <= 1,
            usd_per_hour=float(pool["usd_per_hour"]) if "usd_per_hour" in pool else None,
        )
        for name, pool in raw["pools"].items()
    )
    places = [(pool.type, pool.zone) for pool in pools]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice:
        raise BadInputError(
            f"{file} has two pools of {twice[0]} in {twice[1]}: EC2 knows one, merge them"
        )
    return Trace(
        name=str(raw.get("name", Path(file).stem)),
        seconds=ticks * gap,
        pools=pools,
        source=str(raw.get("source", file)),
        assumptions=("a failed probe counts as a reclaim of the host held",),
    )


def _values(pool: Mapping[str, Any]) -> list[int]:
    """Return one value a tick, from ``data`` or from alternating ``runs``."""
    if "data" in pool:
        return [int(value) for value in pool["data"]]
    values: list[int] = []
    value = int(pool["first_value"])
    for run in pool["runs"]:
        values += [value] * int(run)
        value = 1 - value
    return values


def _nodes(file: str, rows: Sequence[Sequence[str]], pool: tuple[str, str]) -> Trace:
    """Read ``milliseconds,add|remove,node`` or ``date,time,count``."""
    slots, seconds = _lives(rows) if rows[0][1].strip() in {"add", "remove"} else _counts(rows)
    kind, zone = pool
    return Trace(
        name=Path(file).stem,
        seconds=seconds,
        pools=(TracePool(name=f"{kind} {zone}", type=kind, zone=zone, slots=slots, shared=False),),
        source=file,
        assumptions=(_NODES,),
    )


def _lives(rows: Sequence[Sequence[str]]) -> tuple[tuple[Slot, ...], float]:
    born: dict[str, float] = {}
    lives: list[Span] = []
    at = 0.0
    for milliseconds, what, node in rows:
        at = float(milliseconds) / 1000
        if what.strip() == "add":
            born.setdefault(node.strip(), at)
        elif (since := born.pop(node.strip(), None)) is not None:
            lives.append((since, at))
    lives += [(since, at) for since in born.values()]
    return _slots(sorted(span for span in lives if span[0] < span[1])), at


def _slots(lives: Iterable[Span]) -> tuple[Slot, ...]:
    """Put each life into the first slot that is free by then."""
    slots: list[list[Span]] = []
    for life in lives:
        for slot in slots:
            if slot[-1][1] <= life[0]:
                slot.append(life)
                break
        else:
            slots.append([life])
    return tuple(tuple(slot) for slot in slots)


def _counts(rows: Sequence[Sequence[str]]) -> tuple[tuple[Slot, ...], float]:
    moments = [
        (
            datetime.fromisoformat(f"{date.strip()}T{time.strip()}").timestamp(),
            int(count),
        )
        for date, time, count in rows
    ]
    start, end = moments[0][0], moments[-1][0]
    return _ranks([(at - start, count) for at, count in moments], end - start), end - start


def _ranks(steps: Sequence[tuple[float, int]], end: float) -> tuple[Slot, ...]:
    """Return slot r = the spans during which at least r were there."""
    slots: list[list[Span]] = []
    since: list[float] = []
    for at, count in steps:
        while len(since) < count:
            since.append(at)
        while len(since) > count:
            _close(slots, len(since) - 1, (since.pop(), at))
    while since:
        _close(slots, len(since) - 1, (since.pop(), end))
    return tuple(tuple(slot) for slot in slots) or ((),)


def _close(slots: list[list[Span]], rank: int, span: Span) -> None:
    while len(slots) <= rank:
        slots.append([])
    if span[0] < span[1]:
        slots[rank].append(span)


def _together(slots: Sequence[Slot], hosts: int) -> tuple[Slot, ...]:
    """Return the spans during which all of *hosts* neighbouring slots are held."""
    groups = [slots[i : i + hosts] for i in range(0, len(slots) - hosts + 1, hosts)]
    joined: list[Slot] = []
    for group in groups:
        spans = group[0]
        for slot in group[1:]:
            spans = _overlap(spans, slot)
        joined.append(spans)
    return tuple(joined) or ((),)


def _overlap(one: Slot, other: Slot) -> Slot:
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) < min(b, d)]
    return tuple(sorted(found))
