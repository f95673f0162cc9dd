"""A job that names an image, through a real agent; Docker is scripted, the processes are real."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve_agent.child_supervisor import ChildSupervisor
from reprieve_agent.container_supervisor import ContainerSupervisor
from tests.agent.harness import Cloud, HostUnderTest, chain_job, chain_state, soon
from tests.agent.kept import IMAGE, docker
from tests.agent.waiting import wait_until


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with docker(tmp_path / "bin") as calls:
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        yield calls


@pytest.fixture
def host(calls: Path, cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    yield from a_host(cloud, tmp_path, "i-0aaaaaaaaaaaaaaaa")


@pytest.fixture
def other(calls: Path, cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    yield from a_host(cloud, tmp_path, "i-0bbbbbbbbbbbbbbbb")


def a_host(cloud: Cloud, folder: Path, name: str) -> Iterator[HostUnderTest]:
    host = HostUnderTest(cloud, folder / name, instance_id=name)
    host.supervisor = ContainerSupervisor(ChildSupervisor())
    host.start()
    yield host
    host.close()


def in_image(spec: JobSpec, image: str = IMAGE) -> JobSpec:
    # The scripted image holds this machine's files; its PATH hasn't our interpreter.
    return replace(spec, command=(sys.executable, *spec.command[1:]), image=image)


def finished(cloud: Cloud, key: LeaseKey) -> Lease:
    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    return cloud.lease(key)


def test_a_job_in_a_container_is_set_up_there_saved_on_notice_and_resumed(
    calls: Path, cloud: Cloud, host: HostUnderTest, other: HostUnderTest
) -> None:
    setup = ("sh", "-c", "echo made here")
    key = cloud.submit(in_image(replace(chain_job(TOTAL=80), setup=setup)))
    cloud.ring(key)
    wait_until(lambda: host.steps() + other.steps() >= 5, "training")
    first = host if host.steps() else other

    first.metadata.interrupt(time=soon(20))
    lease = finished(cloud, key)
    successor = cloud.arm_next(key)
    cloud.ring(successor)
    resumed = finished(cloud, successor)

    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert (resumed.outcome, resumed.restored_step) == (Outcome.FINISHED, lease.committed_step)
    assert resumed.restored_step
    assert f"made here\nfirst step {resumed.restored_step + 1}\n" in cloud.log(successor)
    assert chain_state(80) in cloud.log(successor)
    asked = [json.loads(line)["argv"] for line in calls.read_text().splitlines()]
    assert [argv[0] for argv in asked if argv[0] != "rm"] == ["pull", "run", "run"] * 2
    assert all(IMAGE in argv for argv in asked if argv[0] != "rm")


def test_an_image_that_isnt_there_fails_the_attempt_before_it_is_sealed(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = cloud.submit(in_image(chain_job(TOTAL=3), "missing:1"))
    cloud.ring(key)

    lease = finished(cloud, key)

    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert not lease.sealed
    assert "manifest for missing:1 not found" in lease.detail
