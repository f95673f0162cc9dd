"""A host whose disk is full: what was committed stays, and the job hears of it in one line."""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.domain.checkpoint import code_key
from reprieve.domain.lease import Cause, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from tests.agent.harness import Cloud, HostUnderTest, soon, wait_until
from tests.disks import small_disk

pytestmark = pytest.mark.deep

FULL = "No space left on device"
DISK_KIB = 2048
TOO_MUCH = DISK_KIB * 1024

# Saves little at step 5 and, when the file GROW is there or the host asks, more than fits.
JOB = """
    import os, pathlib, time
    import reprieve_job

    job = reprieve_job.connect()
    for step in range(1, 100_000):
        time.sleep(0.01)
        request = job.step(step)
        too_much = request is not None or os.path.exists(os.environ["GROW"])
        if step == 5 or too_much:
            with job.checkpoint(step) as folder:
                (folder / "state").write_bytes(bytes(int(os.environ["SIZE"]) if too_much else 1000))
"""


@pytest.fixture
def host(cloud: Cloud) -> Iterator[HostUnderTest]:
    place = Path(tempfile.mkdtemp(prefix="rt-", dir="/tmp"))  # as short as on a real host
    try:
        with small_disk(place, kib=DISK_KIB) as folder:
            host = HostUnderTest(cloud, folder)
            host.start()
            yield host
            host.close()
    finally:
        shutil.rmtree(place)


def submit(cloud: Cloud, spec: JobSpec) -> LeaseKey:
    key = cloud.submit(spec)
    cloud.ring(key)
    return key


def growing(grow: Path) -> JobSpec:
    return JobSpec(
        command=("python", "-c", textwrap.dedent(JOB)),
        env={"GROW": str(grow), "SIZE": str(TOO_MUCH)},
    )


def released(cloud: Cloud, key: LeaseKey) -> Lease:
    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    return cloud.lease(key)


def halves(host: HostUnderTest) -> list[Path]:
    return list(host.folder.rglob("*.part"))


def test_a_save_under_notice_that_does_not_fit_hands_over_what_was_committed(
    cloud: Cloud, host: HostUnderTest, tmp_path: Path
) -> None:
    key = submit(cloud, growing(tmp_path / "grow"))
    wait_until(cloud.manifests, "the first checkpoint")

    host.metadata.interrupt(time=soon(20))

    lease = released(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert lease.committed_step == 5
    assert len(cloud.manifests()) == 1
    wait_until(lambda: FULL in cloud.log(key), "the log's last words")
    assert not halves(host)


def test_a_save_of_the_jobs_own_that_does_not_fit_is_its_crash_and_says_why(
    cloud: Cloud, host: HostUnderTest, tmp_path: Path
) -> None:
    key = submit(cloud, growing(tmp_path / "grow"))
    wait_until(cloud.manifests, "the first checkpoint")

    (tmp_path / "grow").touch()

    lease = released(cloud, key)
    assert (lease.outcome, lease.cause, lease.committed_step) == (Outcome.FAILED, Cause.CRASH, 5)
    assert FULL in lease.detail
    assert "\n" not in lease.detail
    assert len(cloud.manifests()) == 1
    assert not halves(host)


def test_code_that_does_not_fit_fails_the_attempt_and_leaves_nothing(
    cloud: Cloud, host: HostUnderTest
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", bytes(TOO_MUCH))  # little as a zip, much on the disk
    body = packed.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    cloud.store.objects[code_key(digest)] = body

    key = submit(cloud, JobSpec(command=("true",), code=digest))

    lease = released(cloud, key)
    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert FULL in lease.detail
    assert not list(host.folder.rglob("*.zip"))
    assert not list(host.folder.rglob("*.ready"))


def test_a_checkpoint_that_does_not_fit_is_not_called_bad(
    cloud: Cloud, host: HostUnderTest, tmp_path: Path
) -> None:
    """It is whole, and another host may have the room."""
    roomy = HostUnderTest(cloud, tmp_path / "roomy", instance_id="i-0bbbbbbbbbbbbbbbb")
    grow = tmp_path / "grow"
    key = cloud.submit(growing(grow))
    host.stop()
    roomy.start()
    try:
        cloud.ring(key)
        wait_until(cloud.manifests, "the first checkpoint")
        roomy.metadata.interrupt(time=soon(20))
        assert released(cloud, key).committed_step != 5
    finally:
        roomy.close()

    host.start()
    successor = cloud.arm_next(key)
    cloud.ring(successor)

    lease = released(cloud, successor)
    assert (lease.outcome, lease.cause) == (Outcome.FAILED, Cause.SETUP_FAILED)
    assert FULL in lease.detail
    assert not [report for report in cloud.queues.reports if "quarantined" in report.data]
