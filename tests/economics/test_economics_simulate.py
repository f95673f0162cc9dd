"""``reprieve simulate``: its document, its digits, its pictures, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.economics import study, traces
from reprieve_cli.economics.policies import POLICIES
from reprieve_cli.economics.scenario import LARGE, SMALL, World

pytestmark = pytest.mark.deep

Reprieve = Callable[..., Any]
FEW = ("--starts", "4", "--policy", "reprieve", "--policy", "drain-30m", "--policy", "naive")
KEYS = {
    "cost_per_useful_gpu_hour",
    "cost_index",
    "makespan_hours",
    "lost_hours",
    "finish_rate",
    "deadline_misses",
}


def test_the_document_has_the_promised_shape(reprieve: Reprieve) -> None:
    answer = reprieve("simulate", *FEW, "--json")
    assert answer.code == 0
    document = answer.document
    assert document["scenario"] == "us-west-2, small job"
    assert document["n"] == 4
    assert set(document["policies"]) == {"reprieve", "drain-30m", "naive"}
    assert all(set(row) >= KEYS for row in document["policies"].values())
    own = document["policies"]["reprieve"]
    assert own["finish_rate"] == 1.0
    assert own["cost_index"] == pytest.approx(own["cost_per_useful_gpu_hour"] / 0.918)
    hopeless = document["policies"]["naive"]
    assert hopeless["finish_rate"] == 0.0
    assert hopeless["cost_per_useful_gpu_hour"] is None
    assert hopeless["makespan_hours"] is None
    assert set(document["paired"]) == {"drain-30m"}


def test_all_policies_run_by_default_and_the_last_line_is_the_answer(reprieve: Reprieve) -> None:
    answer = reprieve("simulate", "--starts", "2")
    assert answer.code == 0
    assert all(name in answer.out for name in POLICIES)
    assert answer.last_line.startswith("reprieve: $0.")
    assert "as cheap and as fast" in answer.last_line


def test_the_same_seed_gives_the_same_digits_and_another_gives_others(reprieve: Reprieve) -> None:
    first, again = (reprieve("simulate", *FEW, "--json").out for _ in range(2))
    other = reprieve("simulate", *FEW, "--seed", "2", "--json").out
    assert first == again
    assert first != other


def test_adding_a_policy_changes_nothing_for_the_others(reprieve: Reprieve) -> None:
    few = reprieve("simulate", "--starts", "2", "--policy", "reprieve", "--json").document
    more = reprieve("simulate", *FEW[2:], "--starts", "2", "--json").document
    assert few["policies"]["reprieve"] == more["policies"]["reprieve"]


def test_figures_of_one_seed_do_not_drift() -> None:
    """Fails when production's own decisions, or the model, change what is measured."""
    scenario = study.Scenario(
        trace=traces.load("us-west-2"), job=SMALL, world=World(), starts=6, seed=1
    )
    rows = study.study(
        scenario, [POLICIES[name] for name in ("on-demand", "drain-30m", "skypilot-like-30m")]
    )
    assert [round(row.usd_per_useful_gpu_hour or 0, 4) for row in rows] == DIGITS


DIGITS = [3.0632, 0.9439, 0.9414]


@pytest.mark.parametrize("name", list(traces.SHIPPED))
@pytest.mark.parametrize("job", [SMALL, LARGE], ids=lambda job: job.name)
def test_reprieve_finishes_on_every_shipped_trace_also_without_any_recall(
    name: str, job: Any
) -> None:
    for recall in (job.recall, 0.0):
        scenario = study.Scenario(
            trace=traces.load(name), job=replace(job, recall=recall), world=World(), starts=3
        )
        (row,) = study.study(scenario, [POLICIES["reprieve"]])
        assert row.finish_rate == 1.0


@pytest.mark.parametrize("hours", [50.0, 52.0, 60.0, 70.0])
def test_no_deadline_is_missed(hours: float) -> None:
    job = replace(SMALL, deadline_hours=hours)
    scenario = study.Scenario(trace=traces.load("us-west-2"), job=job, world=World(), starts=12)
    (row,) = study.study(scenario, [POLICIES["reprieve"]])
    assert row.deadline_misses == 0


def test_starts_are_spread_over_the_whole_trace() -> None:
    scenario = study.Scenario(trace=traces.load("us-west-2"), job=SMALL, world=World(), starts=10)
    moments = study.starts(scenario)
    tenth = scenario.trace.seconds / 10
    assert [int(moment // tenth) for moment in moments] == list(range(10))


def test_an_estimate_has_both_half_widths() -> None:
    scenario = study.Scenario(trace=traces.load("us-west-2"), job=SMALL, world=World(), starts=60)
    flat = study.estimate(scenario, [2.0] * 60)
    assert (flat.mean, flat.starts, flat.blocks) == (2.0, 0.0, 0.0)
    # Six stretches that differ, and nothing but that: blocks know less than starts claim.
    stepped = study.estimate(scenario, [float(index // 10) for index in range(60)])
    assert stepped.blocks is not None
    assert stepped.blocks > stepped.starts > 0


def test_several_traces_come_side_by_side(reprieve: Reprieve, tmp_path: Path) -> None:
    answer = reprieve(
        "simulate", *FEW, "--trace", "us-west-2", "--trace", "bamboo-p3", "--json",
        "--plot", str(tmp_path / "both.svg"),
    )  # fmt: skip
    names = [found["scenario"] for found in answer.document["scenarios"]]
    assert names == ["us-west-2, small job", "bamboo-p3, small job"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "both-bamboo-p3.svg",
        "both-us-west-2.svg",
    ]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_same_study_draws_the_same_picture(
    reprieve: Reprieve, tmp_path: Path, suffix: str, magic: bytes
) -> None:
    bodies = []
    for turn in range(2):
        path = tmp_path / f"{turn}.{suffix}"
        assert reprieve("simulate", *FEW, "--plot", str(path)).code == 0
        bodies.append(path.read_bytes())
    assert bodies[0] == bodies[1]
    assert bodies[0].startswith(magic)
    assert len(bodies[0]) > 5000


def test_a_trace_of_ones_own(reprieve: Reprieve, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(
        json.dumps(
            {
                "polarity": "1=available",
                "gap_seconds": 3600,
                "pools": {
                    "a": {"instance_type": "toy", "zone": "us-east-1a", "data": [1] * 20 + [0]},
                    "b": {"instance_type": "toy", "zone": "us-east-1b", "data": [0, 1, 1] * 7},
                },
            }
        )
    )
    answer = reprieve("simulate", *FEW, "--trace", str(file), "--work-hours", "8", "--json")
    assert answer.document["policies"]["reprieve"]["finish_rate"] == 1.0


def test_a_queue_and_a_gang_can_be_asked_for(reprieve: Reprieve) -> None:
    one = reprieve("simulate", "--starts", "2", "--policy", "reprieve", "--work-hours", "4",
                   "--json").document  # fmt: skip
    queue = reprieve(
        "simulate", "--starts", "2", "--policy", "reprieve", "--work-hours", "4",
        "--jobs", "4", "--hosts", "2", "--json",
    ).document  # fmt: skip
    alone, many = (found["policies"]["reprieve"] for found in (one, queue))
    assert alone["makespan_hours"] < many["makespan_hours"] < 4 * alone["makespan_hours"]
    gang = reprieve(
        "simulate", "--trace", "bamboo-p3", "--starts", "2", "--policy", "reprieve",
        "--work-hours", "4", "--gang", "4", "--json",
    ).document  # fmt: skip
    assert gang["policies"]["reprieve"]["finish_rate"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "magic"), "no policy magic"),
        (("--trace", "nowhere"), "no trace nowhere"),
        (("--plot", "here.gif"), ".png, .svg, .pdf"),
        (("--plot", "/nowhere/at/all.png"), "there is no folder"),
        (("--job", "/nowhere/job.yaml"), "No such file"),
        (("--trace", "bamboo-p3", "--gang", "500"), "never held 500 hosts"),
        (("--jobs", "2", "--deadline-hours", "60"), "one job"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_line(
    reprieve: Reprieve, arguments: tuple[str, ...], words: str
) -> None:
    answer = reprieve("simulate", "--starts", "1", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1


def test_a_bar_shows_how_far_it_is_on_a_terminal_only(
    reprieve: Reprieve, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = reprieve("simulate", *FEW, "--json")
    assert quiet.err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    shown = reprieve("simulate", *FEW, "--json")
    assert "12 of 12 runs" in shown.err
    assert shown.out == quiet.out


def test_a_job_longer_than_the_usual_horizon_is_given_time(reprieve: Reprieve) -> None:
    answer = reprieve(
        "simulate", "--starts", "1", "--policy", "reprieve", "--work-hours", "250", "--json"
    )
    assert answer.document["policies"]["reprieve"]["finish_rate"] == 1.0
