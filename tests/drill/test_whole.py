"""``reprieve drill`` as a person starts it: whole drills in one process, and nothing afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.local.control import WorldClient
from tests.cli.test_demo import Machine, a_machine
from tests.cli.test_ending import REPRIEVE

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(300)]

STORY = """
name: a short life
clock_scale: 0.05
jobs:
  - {name: train, command: [sh, -c, "sleep 300"]}
steps:
  - fault:
      service: dynamodb
      action: "*"
      key: "JOB#*/JOB"
      then: {error: {reason: TransactionConflict}}
  - when: {job: train, status: RUNNING}
    host: {of: train, do: crash}
  - when: {world: agent crashed}
    job: {name: train, do: cancel}
expect:
  jobs: {train: {status: CANCELLED, event_counts: {submitted: 1}}}
  calls:
    - service: ec2
      action: CreateFleet
      parameters: {Type: instant}
      distinct: ClientToken
      count: 1
    - {service: imds, action: api/token}
  instances: {launched: 1, zone: {us-east-1f: 0}}
  seconds: {at_most: 3600}
"""
EXPECTATIONS = 7


@pytest.fixture
def machine() -> Iterator[Machine]:
    with a_machine() as found:
        yield found


def test_drills_are_played_one_after_the_other_and_leave_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    holds, breaks = tmp_path / "holds.yaml", tmp_path / "breaks.yaml"
    holds.write_text(STORY)
    breaks.write_text(STORY.replace("launched: 1", "launched: 2"))
    ended = subprocess.run(
        [*REPRIEVE, "drill", "--json", str(holds), str(breaks)],
        capture_output=True,
        text=True,
        env=machine.environment | {"COLUMNS": "80"},
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert [one["holds"] for one in document["scenarios"]] == [True, False], ended.stderr
    assert [len(one["expectations"]) for one in document["scenarios"]] == [EXPECTATIONS] * 2
    broken = [one for one in document["scenarios"][1]["expectations"] if not one["holds"]]
    assert broken == [{"what": "instances launched", "expected": "2", "seen": "1", "holds": False}]
    assert max(len(line) for line in ended.stderr.splitlines()) <= 80
    assert machine.left() == ([], [])


def test_a_drill_on_the_cloud_that_is_up_takes_its_things_away(
    machine: Machine, tmp_path: Path
) -> None:
    def reprieve(*arguments: str) -> Any:
        ended = subprocess.run(
            [*REPRIEVE, *arguments],
            capture_output=True,
            text=True,
            env=machine.environment | variables,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return json.loads(ended.stdout)

    variables: dict[str, str] = {}
    story = tmp_path / "story.yaml"
    # Half as fast as the cloud: its own clock counts.
    story.write_text(
        STORY.replace("0.05", "0.1") + "pools: [{type: g5.xlarge, zone: us-east-1b}]\n"
    )
    up = reprieve("local", "up", "--notice-seconds", "6", "--json")
    try:
        world = WorldClient(up["control"])
        before = world.pools()
        (scenario,) = reprieve("drill", "--up", "--json", str(story))["scenarios"]
        assert scenario["clock_scale"] == pytest.approx(0.05)
        variables |= up["env"]
        assert reprieve("queue", "--json")["jobs"] == []
        assert [host.state for host in world.hosts()] == ["terminated"]
        assert (world.faults(), world.pools()) == ([], before)
    finally:
        reprieve("local", "down", "--json")
    assert machine.left() == ([], [])


def test_a_drill_that_is_cut_short_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    story = tmp_path / "story.yaml"
    story.write_text(STORY)
    process = subprocess.Popen(
        [*REPRIEVE, "drill", str(story)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=machine.environment | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert process.stdout
    for line in process.stdout:
        if "step 2" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert machine.left() == ([], [])
