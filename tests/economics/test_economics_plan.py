"""``reprieve plan``: what it says before anything is spent, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.economics.pools import History
from reprieve.domain.job import CheckpointRef, JobStatus
from reprieve.domain.lease import Cause
from reprieve_cli.economics import jobfile
from reprieve_cli.economics.forecast import Forecast, Option, forecast
from reprieve_cli.economics.listed import listing
from reprieve_cli.errors import BadInputError
from tests.builders import a_job, a_manifest, an_attempt, an_event, at
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.stored import tell

pytestmark = pytest.mark.deep

Reprieve = Callable[..., Any]

WHOLE = """
name: tuning
work_hours: 48
state_gb: 12
types: [g5.xlarge, g6.xlarge]
checkpoint: {save_seconds: 10, durable_seconds: 30}
"""
KNOWN = """
pools:
  - {type: g5.xlarge, zone: us-east-1a, usd_per_hour: 0.4, interruptions: 3, hours: 600}
"""


def a_file(folder: Path, text: str = WHOLE) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def planned(folder: Path, text: str = WHOLE) -> Forecast:
    return forecast(jobfile.load(Path(a_file(folder, text))))


def by_type(plan: Forecast) -> dict[str, Option]:
    return {option.type: option for option in plan.spot}


def test_each_type_has_its_interval_chances_cost_and_end(tmp_path: Path) -> None:
    plan = planned(tmp_path, WHOLE + KNOWN)
    known = by_type(plan)["g5.xlarge"]
    assert known.usd_per_hour == 0.4
    assert known.history == History(hours=600, interruptions=3)
    assert known.no_interruption == pytest.approx((602 / 650) ** 3.5)
    assert known.interruptions == pytest.approx(48 * 3.5 / 602)
    assert known.recall == 0.5
    # √(2·10 s / (0.5·3.5/602 per hour))
    assert known.interval_seconds == pytest.approx(4977, abs=1)
    assert known.hours
    assert 48 < known.hours.p5 <= known.hours.p50 <= known.hours.p95 < 52
    assert known.usd
    assert known.usd.mean == pytest.approx(0.4 * known.hours.mean, rel=0.02)
    assert known.finishes == 1.0
    assert known.pays
    assert known.break_even == pytest.approx(1.006 / 0.4 - 1)
    assert plan.best is known


def test_on_demand_stands_beside_it(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan.on_demand
    assert plan.on_demand.type == "g6.xlarge"
    assert plan.on_demand.usd_per_hour == 0.8048
    assert plan.on_demand.no_interruption == 1.0
    assert plan.on_demand.hours
    assert plan.on_demand.hours.p5 == plan.on_demand.hours.p95


def test_a_state_that_does_not_fit_plans_without_the_notice(tmp_path: Path) -> None:
    small = by_type(planned(tmp_path))["g5.xlarge"]
    assert small.fits
    assert small.largest_gigabytes == pytest.approx(30.625)
    plan = planned(tmp_path, WHOLE.replace("state_gb: 12", "state_gb: 31"))
    large = by_type(plan)["g5.xlarge"]
    assert not large.fits
    assert large.recall == 0.0
    assert large.interval_seconds < small.interval_seconds
    assert any("doesn't fit into the notice on g" in warning for warning in plan.warnings)


def test_emergency_saves_that_were_measured_outrank_the_network(tmp_path: Path) -> None:
    told = WHOLE.replace("durable_seconds: 30", "durable_seconds: 30, emergency_seconds: 116")
    assert not by_type(planned(tmp_path, told))["g5.xlarge"].fits
    told = told.replace("emergency_seconds: 116", "emergency_seconds: 115, notices_tried: 8,"
                        " notices_saved: 8")  # fmt: skip
    assert by_type(planned(tmp_path, told))["g5.xlarge"].recall == 0.9


def test_a_pool_at_the_on_demand_price_is_ranked_last_and_named(tmp_path: Path) -> None:
    dear = "\npools:\n  - {type: g5.xlarge, usd_per_hour: 1.006}\n"
    plan = planned(tmp_path, WHOLE + dear)
    assert plan.spot[-1].type == "g5.xlarge"
    assert plan.spot[-1].pays is False
    assert "no cheaper than on demand: g5.xlarge" in plan.warnings
    assert plan.best
    assert plan.best.type == "g6.xlarge"


def test_a_deadline_bounds_the_interval_and_names_its_guard(tmp_path: Path) -> None:
    plan = planned(tmp_path, WHOLE + "deadline_hours: 52\n" + KNOWN)
    assert plan.deadline
    assert plan.deadline.feasible
    assert plan.deadline.switch_slack_hours == pytest.approx(0.6361, abs=1e-4)
    known = by_type(plan)["g5.xlarge"]
    assert known.interval_seconds == 1800
    assert known.on_time is not None
    assert known.on_time > 0.95


def test_a_deadline_that_cannot_be_met_is_a_no(reprieve: Reprieve, tmp_path: Path) -> None:
    answer = reprieve("plan", a_file(tmp_path), "--deadline-hours", "48", "--json")
    assert answer.code == 1
    assert answer.document["deadline"]["feasible"] is False
    assert "not even on demand" in answer.err


def test_spot_without_a_checkpoint_hook_is_refused_with_the_chance(
    reprieve: Reprieve, tmp_path: Path
) -> None:
    answer = reprieve("plan", a_file(tmp_path, "work_hours: 48\n"))
    assert answer.code == 1
    assert answer.last_line.startswith("refused: job has no checkpoint hook")
    assert "the chance that it ever finishes (in 30 days) is 5" in answer.last_line
    assert "--force" in answer.last_line


def test_forced_it_is_planned_and_the_chance_still_said(reprieve: Reprieve, tmp_path: Path) -> None:
    text = "work_hours: 48\ntypes: [g5.xlarge]\n" + KNOWN.replace(
        "interruptions: 3", "interruptions: 300"
    )
    refused = reprieve("plan", a_file(tmp_path, text), "--json")
    assert refused.code == 1
    forced = reprieve("plan", a_file(tmp_path, text), "--force", "--json")
    assert forced.code == 0
    assert forced.document["refused"] is None
    assert forced.document["chance_of_ever_finishing"] < 0.01
    assert refused.document["refused"]
    assert refused.document["recommended"] is None
    known = next(o for o in forced.document["spot"] if o["zone"] == "us-east-1a")
    assert known["finishes"] < 0.01
    assert known["interval_seconds"] is None
    assert known["pays"] is False


def test_the_last_line_is_the_answer(reprieve: Reprieve, tmp_path: Path) -> None:
    answer = reprieve("plan", a_file(tmp_path))
    assert answer.code == 0
    assert answer.last_line.startswith("Spot on g")
    assert "a checkpoint every" in answer.last_line
    assert "on demand $38." in answer.last_line


def test_the_same_file_gives_the_same_digits(reprieve: Reprieve, tmp_path: Path) -> None:
    first, again = (reprieve("plan", a_file(tmp_path), "--json").out for _ in range(2))
    assert first == again
    json.loads(first)


def test_a_plan_can_be_drawn(reprieve: Reprieve, tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    job = a_file(tmp_path)
    assert reprieve("plan", job, "--deadline-hours", "60", "--plot", str(path)).code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must hold names and values"),
        ("name: x", "work_hours is missing"),
        ("work_hours: long", "work_hours must be a number"),
        ("work_hours: true", "work_hours must be a number"),
        ("work_hours: 1\nclass: 7GBx9", "no class 7GBx9"),
        ("work_hours: 1\nworkhours: 2", "nobody knows workhours"),
        ("work_hours: 1\ncheckpoint: {every: 5}", "checkpoint: nobody knows every"),
        ("work_hours: 1\ncheckpoint: {on_notice: 5}", "on_notice must be true or false"),
        ("work_hours: 1\ncheckpoint: {notices_saved: 5}", "exceeds notices_tried"),
        ("work_hours: 1\npools: {}\n", None),
        ("work_hours: 1\npools: 5\n", "pools must be a list"),
        ("work_hours: 1\nname: 5\n", "name must be text"),
        ("a: [", "isn't YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(
    tmp_path: Path, text: str, words: str | None
) -> None:
    if words is None:
        assert jobfile.load(Path(a_file(tmp_path, text))).pools == ()
        return
    with pytest.raises(BadInputError, match=words) as refused:
        jobfile.load(Path(a_file(tmp_path, text)))
    assert "\n" not in str(refused.value)


def test_listed_prices_and_savings_come_with_the_package() -> None:
    known = listing("g5.xlarge", "us-east-1")
    assert known.on_demand_usd == 1.006
    assert known.saving
    assert known.spot_usd == pytest.approx(1.006 * (1 - known.saving))
    assert known.gbit_per_second == 2.5
    unknown = listing("x9.mega", "us-east-1")
    assert unknown.spot_usd is None


def test_a_job_file_can_be_simulated(reprieve: Reprieve, tmp_path: Path) -> None:
    answer = reprieve(
        "simulate", "--job", a_file(tmp_path), "--work-hours", "6", "--starts", "2",
        "--policy", "reprieve", "--json",
    )  # fmt: skip
    assert answer.document["scenario"] == "us-west-2, tuning job"
    assert reprieve("simulate", "--job", a_file(tmp_path, "work_hours: 4")).code == 2


def a_life(n: int, begin: float, end: float, cause: Cause, **changes: Any) -> Any:
    spot = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "spot"}
    return an_attempt(
        n,
        started_at=at(3600 * begin),
        ended_at=at(3600 * end),
        cause=cause,
        usd_per_hour=0.4,
        **(spot | changes),
    )


def test_a_job_that_is_over_plans_its_next_run(cli: Cli) -> None:  # noqa: F811 - the fixture
    manifest = a_manifest(attempt=2, step=900)
    cli.objects.bodies[manifest.key] = manifest.to_json()
    for file in manifest.files:
        cli.objects.bodies[file.key] = b"x" * file.size
    cli.memory.job_rows["job-1"] = a_job(
        status=JobStatus.SUCCEEDED, checkpoint=CheckpointRef(900, manifest.key)
    )
    lives = (
        a_life(1, 0, 5, Cause.NOTICE, restored_step=0, last_step=500, committed_step=500),
        a_life(2, 5, 9, Cause.LOST, restored_step=500, last_step=900, steps_lost=100),
        a_life(3, 9, 10, Cause.DONE, restored_step=800, last_step=900),
    )
    for life in lives:
        cli.memory.attempt_rows["job-1", life.n] = life
    receipt = {"accepted_s": 1.0, "saved_s": 13.0, "committed_s": 40.0}
    tell(cli.memory.rows, "job-1", [an_event(5, "receipt", data=receipt)])
    assert cli("plan", "job-1", "--json") == 0
    plan = cli.document
    assert plan["work_hours"] == pytest.approx(9.0)
    (known,) = [option for option in plan["spot"] if option["zone"]]
    assert known["usd_per_hour"] == 0.4
    assert known["hazard_per_hour"] == pytest.approx(2.5 / 12)
    assert known["recall"] == pytest.approx(2 / 3)
    # √(2·12 s / (λ_lost per second)): the receipt says how long the job stood still.
    assert known["interval_seconds"] == pytest.approx((24 / (2.5 / 12 / 3 / 3600)) ** 0.5)
    assert {option["type"] for option in plan["spot"]} == {"g5.xlarge", "g6.xlarge"}


def test_a_job_under_way_is_planned_from_a_file(cli: Cli) -> None:  # noqa: F811 - the fixture
    cli.memory.job_rows["job-1"] = a_job()
    assert cli("plan", "job-1") == 2
    assert "plan it from a job file" in cli.err
