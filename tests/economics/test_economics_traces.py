"""Traces: those that ship, and what a user's file must say."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.economics import traces
from reprieve_cli.errors import BadInputError


def hours_and_ends(trace: traces.Trace) -> tuple[float, int]:
    spans = [span for pool in trace.pools for slot in pool.slots for span in slot]
    hours = sum(end - start for start, end in spans) / 3600
    return hours, sum(1 for _, end in spans if end < trace.seconds)


def test_the_shipped_probe_log_has_eight_pools_of_1764_ticks() -> None:
    trace = traces.load("us-west-2")
    assert len(trace.pools) == 8
    assert trace.seconds == 1764 * 600
    up = {
        pool.name: sum(end - start for start, end in pool.slots[0]) / trace.seconds
        for pool in trace.pools
    }
    assert round(up["us-west-2a_k80_1"], 4) == 0.9535
    assert round(up["us-west-2a_v100_8"], 4) == 0.3328
    assert {pool.region for pool in trace.pools} == {"us-west-2"}


@pytest.mark.parametrize(
    ("name", "hazard", "nodes"), [("bamboo-p3", 0.611, 32), ("bamboo-g4dn", 0.545, 24)]
)
def test_the_shipped_node_logs_have_the_published_hazard(
    name: str, hazard: float, nodes: int
) -> None:
    trace = traces.load(name)
    hours, ends = hours_and_ends(trace)
    assert ends / hours == pytest.approx(hazard, rel=0.02)
    assert len(trace.pools[0].slots) == nodes


def test_counts_become_ranks_of_which_the_last_goes_first() -> None:
    trace = traces.load("bamboo-a100")
    slots = trace.pools[0].slots
    assert len(slots) >= 64
    lowest = sum(end - start for start, end in slots[0])
    highest = sum(end - start for start, end in slots[-1])
    assert lowest == trace.seconds
    assert highest < lowest


@pytest.mark.parametrize("name", list(traces.SHIPPED))
def test_every_shipped_trace_says_what_it_assumes(name: str) -> None:
    trace = traces.load(name)
    assert trace.name == name
    assert trace.assumptions
    assert all(
        start < end <= trace.seconds
        for pool in trace.pools
        for slot in pool.slots
        for start, end in slot
    )


def a_file(folder: Path, **changes: Any) -> str:
    raw: dict[str, Any] = {
        "polarity": "1=available",
        "gap_seconds": 60,
        "pools": {"a": {"instance_type": "g5.xlarge", "zone": "us-east-1a", "data": [1, 1, 0, 1]}},
    }
    file = folder / "own.json"
    file.write_text(json.dumps({k: v for k, v in (raw | changes).items() if v is not None}))
    return str(file)


def test_a_file_must_say_its_polarity(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match='must say "polarity"'):
        traces.load(a_file(tmp_path, polarity=None))
    told = traces.load(a_file(tmp_path, polarity=None), polarity="1=available")
    assert told.pools[0].slots == (((0, 120), (180, 240)),)


def test_polarity_turns_the_log_over(tmp_path: Path) -> None:
    turned = traces.load(a_file(tmp_path, polarity="1=preempted"))
    assert turned.pools[0].slots == (((120, 180),),)


def test_what_the_file_says_outranks_the_option(tmp_path: Path) -> None:
    told = traces.load(a_file(tmp_path), polarity="1=preempted")
    assert told.pools[0].slots == (((0, 120), (180, 240)),)


def test_runs_and_data_are_the_same(tmp_path: Path) -> None:
    pools = {"a": {"first_value": 1, "runs": [2, 1, 1], "usd_per_hour": 0.5}}
    trace = traces.load(a_file(tmp_path, pools=pools))
    assert trace.pools[0].slots == (((0, 120), (180, 240)),)
    assert trace.pools[0].usd_per_hour == 0.5


def test_a_research_log_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "us-east-1a.json"
    file.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [2, 1, 0]}))
    trace = traces.load(str(file), polarity="1=available")
    assert trace.pools[0].name == "us-east-1a"
    assert not trace.pools[0].shared
    assert trace.pools[0].slots == (((0, 600),), ((0, 300),))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"pools": None}, "isn't a trace", id="no pools"),
        pytest.param(
            {"pools": {n: {"instance_type": "t", "zone": "z-1a", "data": [1]} for n in "ab"}},
            "two pools of t in z-1a",
            id="one pool under two names",
        ),
        pytest.param({"gap_seconds": 0}, "holds no time", id="no time between ticks"),
        pytest.param({"pools": {"a": {"data": ["x"]}}}, "isn't a trace", id="words for numbers"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInputError, match=words) as refused:
        traces.load(a_file(tmp_path, **changes))
    assert "\n" not in str(refused.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInputError, match="us-west-2, bamboo-p3"):
        traces.load("nowhere")


def test_a_node_log_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("0,add,a\n1000,add,b\n2000,remove,a\n3000,add,c\n4000,remove,b\n")
    trace = traces.load(str(file))
    assert trace.pools[0].slots == (((0.0, 2.0), (3.0, 4.0)), ((1.0, 4.0),))


def test_a_gang_lives_while_all_its_hosts_do(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text("0,add,a\n1000,add,b\n2000,remove,a\n3000,add,c\n4000,remove,b\n")
    trace = traces.load(str(file))
    assert trace.for_gang(1) is trace
    assert trace.for_gang(2).pools[0].slots == (((1.0, 2.0), (3.0, 4.0)),)
    with pytest.raises(BadInputError, match="never held 3 hosts"):
        trace.for_gang(3)
    probes = traces.load("us-west-2")
    assert probes.for_gang(16).pools == probes.pools


def test_every_data_file_is_named_with_its_source_and_licence() -> None:
    folder = resources.files("reprieve_cli.economics") / "data"
    names = {item.name for item in folder.iterdir()}
    sources = (folder / "SOURCES.md").read_text("utf-8")
    data = names - {"SOURCES.md", "LICENSE-Apache-2.0.txt"}
    assert {shipped.file for shipped in traces.SHIPPED.values()} < data
    assert all(name in sources for name in names - {"SOURCES.md"})
    assert "Permission is hereby granted" in sources
    assert "MIT, (c) 2025 FrontierCS Team" in sources
