"""Whole runs: a real agent and real jobs, a cloud in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, LeaseState, Outcome
from reprieve.protocol import ReportKind
from tests.agent.harness import Cloud, HostUnderTest, chain_job, chain_state, soon, wait_until


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def host(cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    host = HostUnderTest(cloud, tmp_path / "a")
    host.start()
    yield host
    host.close()


@pytest.fixture
def other(cloud: Cloud, tmp_path: Path) -> Iterator[HostUnderTest]:
    host = HostUnderTest(cloud, tmp_path / "b", instance_id="i-0bbbbbbbbbbbbbbbb")
    yield host
    host.close()


def test_a_job_runs_to_its_end_and_its_last_checkpoint_is_committed(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = cloud.submit(chain_job(TOTAL=10))
    cloud.ring(key)

    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")

    lease = cloud.lease(key)
    assert (lease.outcome, lease.cause, lease.exit_code) == (Outcome.FINISHED, Cause.DONE, 0)
    assert (lease.committed_step, lease.step) == (10, 10)
    assert lease.committed_manifest in cloud.manifests()
    wait_until(lambda: cloud.queues.said(ReportKind.FINISHED), "reported")
    assert chain_state(10) in cloud.log(key)
    assert cloud.queues.deleted == ["receipt-1"]


def test_an_interrupted_job_is_saved_handed_over_and_finished_elsewhere(
    cloud: Cloud, host: HostUnderTest, other: HostUnderTest
) -> None:
    key = cloud.submit(chain_job(TOTAL=150, PAUSE=0.02))
    cloud.ring(key)
    wait_until(lambda: host.steps() >= 5, "training")

    host.metadata.interrupt(time=soon(8))

    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    lease = cloud.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    saved = lease.committed_step
    assert saved is not None
    assert 5 <= saved < 150
    wait_until(lambda: cloud.queues.said(ReportKind.INTERRUPTED), "reported")
    receipt = cloud.queues.said(ReportKind.INTERRUPTED)[0].data
    stages = [receipt[f"{s}_s"] for s in ("accepted", "saved", "quiesced", "released")]
    assert all(isinstance(s, float) for s in stages)
    assert receipt["bytes"] == 64 + 1000

    successor = cloud.arm_next(key)
    other.start()
    cloud.ring(successor)

    wait_until(lambda: cloud.lease(successor).state is LeaseState.DONE, "finished elsewhere")
    lease = cloud.lease(successor)
    assert (lease.outcome, lease.restored_step) == (Outcome.FINISHED, saved)
    assert f"first step {saved + 1}\n" in cloud.log(successor)
    assert chain_state(150) in cloud.log(successor)
