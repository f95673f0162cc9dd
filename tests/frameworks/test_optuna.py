"""An Optuna sweep: interrupted in the middle of trials, and complete in the end."""

import json
from typing import Any

import pytest

from tests.frameworks.driver import EXAMPLES, JOBS, Driver

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SCRIPT = EXAMPLES / "optuna_sweep.py"


def trials(driver: Driver, journal: Any) -> list[dict[str, Any]]:
    """Read a study's journal with Optuna itself."""
    run = driver.warm.start(JOBS / "read_study.py", journal, env={}, cwd=driver.root / "reader")
    found: list[dict[str, Any]] = json.loads(run.finish())
    return found


def test_a_sweep_interrupted_three_times_loses_and_doubles_no_trial(driver: Driver) -> None:
    agent = driver.agent()
    steps = []
    for _ in range(3):
        begun = int(agent.resume_step or 0)
        steps.append(driver.interrupt(agent, SCRIPT, "--step-seconds", "0.1", beyond=begun))
        agent = agent.successor()
    driver.start(agent, SCRIPT).finish()
    study = trials(driver, agent.checkpoints / f"step-{max(agent.saved_steps())}/study.journal")

    complete = [trial["params"] for trial in study if trial["state"] == "COMPLETE"]
    again = [trial["again"] for trial in study if trial["again"] is not None]
    failed = [trial for trial in study if trial["state"] == "FAIL"]
    assert steps == sorted(set(steps))
    assert len(complete) == 20
    assert len({json.dumps(params) for params in complete}) == 20
    assert {trial["state"] for trial in study} == {"COMPLETE", "FAIL"}
    assert again == [trial["number"] for trial in failed]
    for trial in failed:
        assert any(trial["params"].items() <= params.items() for params in complete)


def test_a_trial_that_a_lost_process_left_running_is_run_again(driver: Driver) -> None:
    run = driver.warm.start(JOBS / "lost_trial.py", env={}, cwd=driver.root / "lost")
    run.finish()
    study = trials(driver, driver.root / "lost" / "study.journal")

    assert [trial["state"] for trial in study] == ["FAIL", "COMPLETE"]
    assert study[0]["params"] == study[1]["params"]
    assert study[1]["again"] == 0
