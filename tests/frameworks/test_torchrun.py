"""Two ranks: they save the same step, or none does."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.tiny_agent import TinyAgent, environment, eventually
from tests.frameworks.driver import (
    EXAMPLES,
    JOBS,
    PATIENCE_SECONDS,
    Driver,
    Run,
    digest,
    progressing,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

LAUNCHER = JOBS / "torchrun.py"
TWO_RANKS = ("--standalone", "--nproc-per-node", "2", "--shutdown-timeout", "90")
DDP = (LAUNCHER, *TWO_RANKS, EXAMPLES / "torchrun_ddp.py", "--steps", "100")
LOCAL = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@pytest.fixture
def two_ranks(driver: Driver) -> Iterator[Driver]:
    """Leave no rank behind: each is in a process group of its own."""
    yield driver
    for ready in driver.root.glob("run-*/ready.*.json"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(ready.read_text())["pid"], signal.SIGKILL)


def test_two_ranks_end_as_if_they_had_not_been_interrupted(two_ranks: Driver) -> None:
    driver = two_ranks
    driver.alone(*DDP)
    agent = driver.agent()
    launcher = driver.start(agent, *DDP, "--step-seconds", "0.2")
    progressing(agent)
    agent.request()
    # The launcher makes 1 of the ranks' 75: the checkpoint counts, not the status.
    assert launcher.status() == 1
    step = agent.ack("saved")["step"]
    following = agent.successor()
    driver.start(following, *DDP).finish()

    assert 0 < step < 100
    assert sorted(path.name for path in following.resume_dir.iterdir()) == [
        "MANIFEST.json",
        "random-0.pt",
        "random-1.pt",
        "state.pt",
    ]
    assert following.read("done.json") == {"v": 1, "step": 100}
    assert digest(driver.root / "on-2" / "model.pt") == digest(driver.root / "alone" / "model.pt")


def test_a_request_that_one_rank_has_seen_is_a_request_to_both(driver: Driver) -> None:
    hosts = [TinyAgent(driver.root / f"host-{rank}", driver.processes) for rank in (0, 1)]
    hosts[1].request()
    runs = [
        driver.warm.start(
            JOBS / "agreeing.py",
            str(rank),
            driver.root / "rendezvous",
            env=host.environment(RANK=str(rank), WORLD_SIZE="2", **LOCAL),
            cwd=driver.root / "ranks",
        )
        for rank, host in enumerate(hosts)
    ]
    for run in runs:
        run.finish()
    said = [
        json.loads((driver.root / "ranks" / f"said-{rank}.json").read_text()) for rank in (0, 1)
    ]

    alike = [{name: value for name, value in words.items() if name != "failure"} for words in said]
    assert alike[0] == alike[1]
    assert alike[0] == {
        "nobody": False,
        "rank 1": True,
        "asked": True,
        "after a failure": True,
        "after a save": False,
        "leave": True,
    }
    assert [words["failure"] for words in said] == ["CheckpointError", "FileNotFoundError"]
    assert hosts[0].saved_steps() == [2]
    files = {path.name for path in (hosts[0].checkpoints / "step-2").iterdir()}
    assert files == {"MANIFEST.json", "rank-0", "rank-1"}


def test_what_two_ranks_saved_is_refused_by_one_unless_it_can_be_resharded(
    driver: Driver,
) -> None:
    agent = driver.agent()
    saved = agent.checkpoints / "step-7"
    saved.mkdir()
    (saved / "state").write_text("half of it")
    (saved / "MANIFEST.json").write_text(json.dumps({"v": 1, "step": 7, "world_size": 2}))
    following = agent.successor()
    script = JOBS / "other_world.py"
    refused = driver.start(following, script)
    driver.start(following, script, "reshardable").finish()

    assert refused.status() == 1
    assert "saved by 2 rank(s)" in (refused.folder / "stderr").read_text()


@pytest.mark.parametrize(("patience", "save", "saved"), [("90", "2", 2), ("1", "60", 0)])
def test_torchrun_waits_for_a_save_as_long_as_it_is_told(
    driver: Driver, patience: str, save: str, saved: int
) -> None:
    folder = driver.root / "here"
    run = driver.warm.start(
        LAUNCHER,
        *("--standalone", "--nproc-per-node", "2", "--shutdown-timeout", patience),
        *(JOBS / "terminated.py", save),
        env=environment(**LOCAL),
        cwd=folder,
    )
    eventually(lambda: len(list(folder.glob("ready-*"))) == 2, within=PATIENCE_SECONDS)
    os.kill(main_process(run), signal.SIGTERM)
    run.status()

    assert len(list(folder.glob("saved-*"))) == saved


def main_process(run: Run) -> int:
    return int(Path(run.folder / "pid").read_text())
