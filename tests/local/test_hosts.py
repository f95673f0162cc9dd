"""Hosts: real agent processes that live and die as EC2 says."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from reprieve_cli.local import processes
from reprieve_cli.local.control import ControlError, WorldClient
from tests.local.support import (
    NOTICE_SECONDS,
    USER_DATA,
    Aws,
    Fleet,
    eventually,
    make_launch_template,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def control(aws: Aws) -> WorldClient:
    return aws.cloud.control


def job_pid(fleet: Fleet, instance_id: str) -> int:
    return int(fleet.read(instance_id, "agent.json")["job"])


def test_the_agent_gets_the_environment_of_the_user_data_with_paths_of_its_own(
    fleet: Fleet,
) -> None:
    instance_id = fleet.launch()

    agent = fleet.read(instance_id, "agent.json")
    env = agent["env"]
    assert agent["id"] == instance_id
    assert env["STACK"] == "Test"
    assert env["SUPERVISOR"] == "child"
    assert env["JOB_USER"] == ""
    assert Path(env["STATE_DIR"]) == fleet.state_dir(instance_id)
    assert "HOSTNAME" not in env or env["HOSTNAME"] != os.environ.get("HOSTNAME", "")


def test_the_agent_calls_aws_as_the_role_of_the_instance_profile(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    (fleet.state_dir(instance_id) / "call").touch()

    identity = eventually(lambda: fleet.read(instance_id, "identity.json"))

    assert identity["arn"].endswith(f"assumed-role/host/{instance_id}")
    (call,) = control.calls(service="sts", action="GetCallerIdentity", instance_id=instance_id)
    assert call["caller"] == "reprieve-agent"


def test_a_host_under_notice_sees_it_and_is_killed_at_the_deadline_with_all_it_runs(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    job = job_pid(fleet, instance_id)

    control.notice(instance_id)

    seen = eventually(lambda: fleet.read(instance_id, "spot-instance-action.json"))
    assert seen["action"] == "terminate"
    assert processes.alive(job)
    eventually(lambda: fleet.state(instance_id) == "terminated", seconds=NOTICE_SECONDS + 3)
    assert not processes.alive(job)


def test_a_notice_by_event_only_is_not_in_the_metadata(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch()

    control.notice(instance_id, channels=["event"], in_seconds=0.5)

    eventually(lambda: fleet.state(instance_id) == "terminated")
    assert fleet.read(instance_id, "spot-instance-action.json") is None


def test_a_notice_that_nothing_follows_leaves_the_host_alone(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()

    control.notice(instance_id, in_seconds=0.1, reclaim=False)

    eventually(lambda: fleet.read(instance_id, "spot-instance-action.json"))
    assert fleet.state(instance_id) == "running"


def test_hibernation_starts_at_once(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch()

    control.notice(instance_id, action="hibernate")

    assert fleet.state(instance_id) == "stopped"
    assert not processes.alive(job_pid(fleet, instance_id))


def test_a_stopped_host_boots_again_with_its_disk_and_a_new_boot_id(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    before = fleet.read(instance_id, "beat.json")["boot"]
    control.notice(instance_id, action="stop", in_seconds=0)
    eventually(lambda: fleet.state(instance_id) == "stopped")

    control.reboot(instance_id)

    eventually(lambda: fleet.read(instance_id, "beat.json")["boot"] != before)
    assert fleet.state(instance_id) == "running"


def test_an_on_demand_host_gets_no_spot_notice(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch(
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "on-demand",
        }
    )

    with pytest.raises(ControlError, match="on-demand"):
        control.notice(instance_id)


def test_a_rebalance_recommendation_shows_in_the_metadata(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()

    control.rebalance(instance_id)

    seen = eventually(lambda: fleet.read(instance_id, "events-recommendations-rebalance.json"))
    assert "noticeTime" in seen


def test_an_agent_that_leaves_shuts_its_host_down(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch()
    job = job_pid(fleet, instance_id)

    (fleet.state_dir(instance_id) / "leave").touch()

    eventually(lambda: fleet.state(instance_id) == "terminated")
    assert not processes.alive(job)


def test_an_agent_that_crashes_is_started_again_and_its_job_survives(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    job = job_pid(fleet, instance_id)

    (fleet.state_dir(instance_id) / "crash").touch()

    eventually(lambda: job_pid(fleet, instance_id) != job)
    assert fleet.state(instance_id) == "running"
    assert processes.alive(job)


def test_a_stop_of_the_agent_leaves_its_host_and_its_job_until_that_powers_off(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    job = job_pid(fleet, instance_id)

    control.stop(instance_id)

    eventually(lambda: [h for h in control.hosts() if h.instance_id == instance_id and not h.pid])
    assert fleet.state(instance_id) == "running"
    assert processes.alive(job)
    with pytest.raises(ControlError, match="runs no agent"):
        control.stop(instance_id)
    control.shut_down(instance_id)
    eventually(lambda: fleet.state(instance_id) == "terminated")
    assert not processes.alive(job)
    assert control.log(kind="shut itself down", instance_id=instance_id)


def test_a_host_whose_agent_is_not_ready_in_time_powers_off(
    fleet: Fleet, aws: Aws, control: WorldClient
) -> None:
    user_data = USER_DATA.replace("--on-active=60", "--on-active=1")
    user_data = user_data.replace("STACK=Test", "STACK=Test\nNEVER_READY=1")
    encoded = base64.b64encode(user_data.encode()).decode()
    never = Fleet(aws, make_launch_template(aws, UserData=encoded), fleet.subnets)

    instance_id = never.launch_only()

    eventually(lambda: fleet.state(instance_id) == "terminated")
    assert control.log(kind="not ready in time", instance_id=instance_id)


def test_a_frozen_host_stands_still_until_it_thaws(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch()

    control.freeze(instance_id)

    frozen_at = fleet.read(instance_id, "beat.json")["beats"]
    other = fleet.launch()  # a whole boot elsewhere: time enough for a beat
    assert fleet.read(instance_id, "beat.json")["beats"] == frozen_at
    control.thaw(instance_id)
    eventually(lambda: fleet.read(instance_id, "beat.json")["beats"] > frozen_at)
    assert fleet.state(other) == "running"


def test_a_reboot_keeps_the_instance_and_changes_the_boot_id(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    before = fleet.read(instance_id, "beat.json")["boot"]
    job = job_pid(fleet, instance_id)

    control.reboot(instance_id)

    eventually(lambda: fleet.read(instance_id, "beat.json")["boot"] != before)
    assert fleet.state(instance_id) == "running"
    assert not processes.alive(job)


def test_termination_by_its_owner_asks_the_agent_first(fleet: Fleet, aws: Aws) -> None:
    instance_id = fleet.launch()

    aws.client("ec2").terminate_instances(InstanceIds=[instance_id])

    eventually(lambda: fleet.state(instance_id) == "terminated")
    assert fleet.read(instance_id, "stopped.json")
    assert not processes.alive(job_pid(fleet, instance_id))


def test_a_host_cut_off_its_metadata_waits_and_recovers(fleet: Fleet, control: WorldClient) -> None:
    instance_id = fleet.launch()

    control.cut(instance_id, "metadata")
    control.rebalance(instance_id, channels=["metadata"])
    other = fleet.launch()
    assert fleet.read(instance_id, "events-recommendations-rebalance.json") is None
    control.mend(instance_id)

    eventually(lambda: fleet.read(instance_id, "events-recommendations-rebalance.json"))
    assert fleet.state(other) == "running"


def test_a_kill_without_events_leaves_no_trace_but_in_ec2(
    fleet: Fleet, control: WorldClient
) -> None:
    instance_id = fleet.launch()
    before = control.log()[-1]["n"]

    control.kill(instance_id, events=False)

    assert fleet.state(instance_id) == "terminated"
    assert control.log(since=before, kind="event") == []
