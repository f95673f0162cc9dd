"""Frameworks without our helper: the folders that they really write, whole and damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprieve.domain.lease import LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent.profiles import PROFILES, Candidate, WreckError
from tests.agent.harness import Cloud, HostUnderTest, soon, wait_until
from tests.examples.tiny_agent import environment
from tests.frameworks.driver import JOBS, PYTHON, QUIET, Driver

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

PATIENCE_SECONDS = 240.0


def look(name: str, output: Path) -> dict[str, str]:
    """Return what is found, and what is wrong with each."""

    def fault(candidate: Candidate) -> str:
        try:
            PROFILES[name].check(output, candidate)
        except WreckError as error:
            return str(error)
        return ""

    return {found.name: fault(found) for found in PROFILES[name].candidates(output)}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


DAMAGES: list[tuple[Callable[[Path], object], dict[str, str]]] = [
    (cut, {"step_6": "of at least", "last.ckpt": "cut off or damaged"}),
    (Path.unlink, {"step_6": "__0_0.distcp is missing"}),
    (flip, {"last.ckpt": "is damaged"}),
]


def test_what_frameworks_wrote_is_told_from_what_is_left_of_it(driver: Driver) -> None:
    whole = driver.alone(JOBS / "real_folders.py", ".")
    found = [(c.name, c.step) for c in PROFILES["lightning"].candidates(whole / "lightning")]
    assert found[0] == ("last.ckpt", 6)
    assert set(look("lightning", whole / "lightning").values()) == {""}
    assert look("dcp", whole / "dcp") == {"step_6": ""}

    for number, (damage, faults) in enumerate(DAMAGES):
        output = driver.root / f"damaged-{number}"
        shutil.copytree(whole, output)
        damage(output / "dcp" / "step_6" / "__0_0.distcp")
        damage(output / "lightning" / "last.ckpt")
        said = look("dcp", output / "dcp") | look("lightning", output / "lightning")
        for name, fault in faults.items():
            assert fault in said[name]


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def hosts(cloud: Cloud, tmp_path: Path) -> Iterator[list[HostUnderTest]]:
    hosts = [
        HostUnderTest(cloud, tmp_path / name, instance_id=f"i-0{name * 16}", notice_seconds=8)
        for name in "ab"
    ]
    yield hosts
    for host in hosts:
        host.close()


def test_the_stock_hf_script_is_interrupted_and_ends_with_the_same_weights(
    driver: Driver, cloud: Cloud, hosts: list[HostUnderTest]
) -> None:
    script = str(JOBS / "stock_hf.py")
    line = f'exec "{PYTHON}" "{script}" --output_dir "$REPRIEVE_CKPT_DIR" --max_steps '
    spec = JobSpec(command=("sh", "-c", f"{line} 100000"), env=dict(QUIET), profile=("hf",))
    key = cloud.submit(spec)
    hosts[0].start()
    cloud.ring(key)
    wait_until(
        lambda: len(cloud.queues.said(ReportKind.COMMITTED)) > 2,
        "three checkpoints sent while the script rotates them away",
        seconds=PATIENCE_SECONDS,
    )
    hosts[0].metadata.interrupt(time=soon(12))
    wait_until(
        lambda: cloud.lease(key).state is LeaseState.DONE, "released", seconds=PATIENCE_SECONDS
    )
    saved = cloud.lease(key).committed_step
    assert saved

    total = saved + 7
    following = cloud.arm_next(key)
    shorter = replace(spec, command=("sh", "-c", f"{line} {total}"))
    cloud.memory.lease_rows[following] = replace(cloud.lease(following), spec=shorter)
    hosts[1].start()
    cloud.ring(following)
    wait_until(
        lambda: cloud.lease(following).state is LeaseState.DONE,
        "finished elsewhere",
        seconds=PATIENCE_SECONDS,
    )

    lease = cloud.lease(following)
    assert (lease.outcome, lease.restored_step) == (Outcome.FINISHED, saved)
    assert f"resuming from checkpoint-{saved}\n" in cloud.log(following)
    alone = driver.warm.start(
        *(script, "--output_dir", "out", "--max_steps", str(total)),
        env=environment(),
        cwd=driver.root / "alone",
    )
    weights = alone.finish().splitlines()[-1]
    assert weights.startswith("weights ")
    assert weights in cloud.log(following)
