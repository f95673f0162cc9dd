"""The helper in real jobs: separate processes, real signals, real files."""

import hashlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.tiny_agent import Processes, TinyAgent, environment, eventually, running

CHAIN_JOB = Path(__file__).parents[1] / "examples" / "chain_job.py"
STEPS = 40
REQUEUE = 75


@pytest.fixture
def processes() -> Iterator[Processes]:
    with running() as started:
        yield started


@pytest.fixture
def agent(tmp_path: Path, processes: Processes) -> TinyAgent:
    (tmp_path / "gates").mkdir()
    return TinyAgent(tmp_path, processes)


@pytest.fixture
def gates(agent: TinyAgent) -> "Gates":
    return Gates(agent.root / "gates")


class Gates:
    """The places where the job waits for the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def arm(self, *names: str) -> None:
        for name in names:
            (self._directory / f"{name}.wait").touch()

    def reached(self, name: str) -> None:
        eventually((self._directory / f"{name}.here").exists)

    def open(self, name: str) -> None:
        (self._directory / f"{name}.go").touch()


def uninterrupted_digest() -> str:
    digest = b"start"
    for step in range(1, STEPS + 1):
        digest = hashlib.sha256(digest + str(step).encode()).digest()
    return digest.hex()


def assert_finishes_as_if_never_interrupted(agent: TinyAgent, *, first_step: int) -> None:
    process = agent.start(CHAIN_JOB)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert output == f"first step {first_step}\ndigest {uninterrupted_digest()}\n"
    assert agent.read("done.json") == {"v": 1, "step": STEPS}


def test_a_request_is_answered_at_the_next_step_boundary_and_the_job_resumes(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("step-10")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-10")
    agent.request()
    gates.open("step-10")

    assert process.wait(timeout=30) == REQUEUE
    folder = agent.checkpoints / "step-10"
    assert agent.ack("saved") == {
        "v": 1,
        "request_id": "r-1",
        "state": "saved",
        "step": 10,
        "path": str(folder),
        "error": None,
    }
    assert agent.read("done.json") is None
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=11)


def test_the_signal_wakes_a_job_that_would_look_only_later(agent: TinyAgent, gates: Gates) -> None:
    # 40 steps take less than the quarter of a second between two looks: only the signal can
    # have made the job look in time.
    gates.arm("step-3")
    process = agent.start(CHAIN_JOB, "--save-at", "2")
    gates.reached("step-3")
    agent.request()
    gates.open("step-3")

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved")["step"] == 3


def test_a_job_that_gets_no_signal_finds_the_request_by_looking(agent: TinyAgent) -> None:
    process = agent.start(CHAIN_JOB, "--step-seconds", "0.02", "--steps", "1000")
    agent.ready()
    ready = agent.run_dir / "ready.0.json"
    ready.unlink()  # nobody to wake
    agent.request()

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved")["step"] < 1000


def test_fault_4_a_signal_and_a_request_before_the_handler_wait_for_the_first_step(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("connect")
    process = agent.start(CHAIN_JOB)
    gates.reached("connect")
    agent.request()
    os.kill(process.pid, signal.SIGUSR1)  # the handler is not there yet
    gates.open("connect")

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved")["step"] == 1
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=2)


def test_a_request_during_a_periodic_save_is_answered_by_that_save(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("save-20")
    process = agent.start(CHAIN_JOB, "--save-at", "20")
    gates.reached("save-20")
    agent.request()
    gates.open("save-20")

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved")["step"] == 20
    assert agent.saved_steps() == [20]
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=21)


def test_saving_a_step_that_is_already_saved_answers_and_changes_nothing(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("saved-20", "save-20")
    process = agent.start(CHAIN_JOB, "--save-at", "20", "--save-again")
    gates.reached("save-20")
    gates.open("save-20")
    gates.reached("saved-20")
    manifest = agent.checkpoints / "step-20" / "MANIFEST.json"
    before = manifest.stat()
    agent.request()
    gates.open("saved-20")

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved")["step"] == 20
    after = manifest.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [path.name for path in agent.checkpoints.iterdir()] == ["step-20"]


def test_saving_is_said_before_saved(agent: TinyAgent, gates: Gates) -> None:
    gates.arm("step-5", "save-5")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-5")
    agent.request()
    gates.open("step-5")

    assert agent.ack("saving")["path"] is None
    assert agent.saved_steps() == []
    gates.open("save-5")
    assert agent.ack("saved")["path"] == str(agent.checkpoints / "step-5")
    assert process.wait(timeout=30) == REQUEUE


def test_a_full_disk_is_said_clearly_and_leaves_the_checkpoint_before(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("step-21")
    process = agent.start(CHAIN_JOB, "--save-at", "20")
    gates.reached("step-21")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    agent.request()
    gates.open("step-21")
    _, errors = process.communicate(timeout=30)

    assert process.returncode == 1
    ack = agent.ack("failed")
    assert (ack["step"], ack["path"]) == (21, None)
    assert "checkpoint of step 21 was not saved" in ack["error"]
    assert errors.splitlines()[-1].endswith(
        f"checkpoint of step 21 was not saved in {agent.checkpoints}:"
        " File too large; earlier checkpoints are untouched"
    )
    assert [path.name for path in agent.checkpoints.iterdir()] == ["step-20"]
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=21)


def test_a_kill_in_the_middle_of_a_save_leaves_nothing_that_looks_like_a_checkpoint(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("save-30")
    process = agent.start(CHAIN_JOB, "--save-at", "20", "30")
    gates.reached("save-30")
    process.kill()
    process.wait(timeout=30)

    assert agent.saved_steps() == [20]
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=21)


def test_fault_4_a_signal_after_the_handler_does_not_spoil_the_exit_status(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm("step-10", "late-exit")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-10")
    agent.request()
    gates.open("step-10")
    gates.reached("late-exit")
    agent.wake()
    gates.open("late-exit")
    # From here the interpreter takes itself apart: wake it until it is gone.
    while process.poll() is None:
        process.send_signal(signal.SIGUSR1)

    assert process.returncode == REQUEUE


def test_a_plain_checkpoint_request_does_not_end_the_job(agent: TinyAgent, gates: Gates) -> None:
    gates.arm("step-10", "step-20")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-10")
    agent.request("checkpoint")
    gates.open("step-10")
    assert agent.ack("saved")["step"] == 10
    # The interruption that the rebalance recommendation foretold.
    gates.reached("step-20")
    agent.request("checkpoint_exit", request_id="r-2")
    gates.open("step-20")

    assert process.wait(timeout=30) == REQUEUE
    assert agent.ack("saved", request_id="r-2")["step"] == 20
    assert sorted(agent.saved_steps()) == [10, 20]
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=21)


def test_a_plain_checkpoint_request_alone_costs_no_step(agent: TinyAgent, gates: Gates) -> None:
    gates.arm("step-10")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-10")
    agent.request("checkpoint")
    gates.open("step-10")
    output, errors = process.communicate(timeout=30)

    assert process.returncode == 0, errors
    assert output == f"first step 1\ndigest {uninterrupted_digest()}\n"
    assert agent.ack("saved")["step"] == 10
    assert agent.read("done.json") == {"v": 1, "step": STEPS}


def test_a_request_at_the_last_step_is_saved_but_the_job_is_done(
    agent: TinyAgent, gates: Gates
) -> None:
    gates.arm(f"step-{STEPS}")
    process = agent.start(CHAIN_JOB)
    gates.reached(f"step-{STEPS}")
    agent.request()
    gates.open(f"step-{STEPS}")

    assert process.wait(timeout=30) == 0
    assert agent.ack("saved")["step"] == STEPS
    assert agent.read("done.json") == {"v": 1, "step": STEPS}


SAVES = 20


@pytest.mark.parametrize("how", ["bare", "bash-run.sh"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_fault_5_beside_data_workers_every_save_is_of_the_current_step(
    agent: TinyAgent, gates: Gates, method: str, how: str
) -> None:
    steps = range(1, SAVES + 1)
    gates.arm(*(f"step-{step}" for step in steps))
    argv: tuple[str | Path, ...] = (sys.executable, CHAIN_JOB, "--workers", method)
    if how == "bash-run.sh":
        # Not with exec, and not as the last command: bash stays, and hears nothing of it.
        script = agent.root / "run.sh"
        script.write_text('"$@"\nexit $?\n')
        argv = ("bash", script, *argv)
    main = agent.run(*argv)
    gates.reached("step-1")
    assert (agent.ready()["pid"] == main.pid) is (how == "bare")

    for step in steps:
        gates.reached(f"step-{step}")
        leaves = step == SAVES
        agent.request("checkpoint_exit" if leaves else "checkpoint", request_id=f"r-{step}")
        gates.open(f"step-{step}")
        assert agent.ack("saved", request_id=f"r-{step}")["step"] == step

    _, errors = main.communicate(timeout=60)
    assert (main.returncode, errors) == (REQUEUE, "")
    assert_finishes_as_if_never_interrupted(agent.successor(), first_step=SAVES + 1)


def test_the_job_registers_the_process_that_trains(agent: TinyAgent, gates: Gates) -> None:
    gates.arm("step-1")
    process = agent.start(CHAIN_JOB)
    gates.reached("step-1")

    stat = Path(f"/proc/{process.pid}/stat").read_text()
    assert agent.ready() == {
        "v": 1,
        "pid": process.pid,
        "start_ticks": int(stat.rpartition(")")[2].split()[19]),
        "rank": 0,
        "hook": "signal",
    }


def start_alone(processes: Processes, directory: Path, *options: str) -> tuple[str, str, int]:
    process = processes.start(sys.executable, CHAIN_JOB, *options, env=environment(), cwd=directory)
    output, errors = process.communicate(timeout=60)
    return output, errors, process.returncode


def truncate(folder: Path) -> None:
    with (folder / "ballast").open("r+b") as stream:
        stream.truncate(100)


def flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / "digest").read_bytes())
    content[7] ^= 1
    (folder / "digest").write_bytes(content)


def lose_a_file(folder: Path) -> None:
    (folder / "digest").unlink()


def tear_the_manifest(folder: Path) -> None:
    manifest = folder / "MANIFEST.json"
    manifest.write_bytes(manifest.read_bytes()[:40])


def lose_the_manifest(folder: Path) -> None:
    (folder / "MANIFEST.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "ballast is not 4096 bytes long"),
        (flip_a_bit, "digest does not match its SHA-256"),
        (lose_a_file, "digest: No such file or directory"),
        (tear_the_manifest, "unreadable MANIFEST.json"),
        (lose_the_manifest, "no MANIFEST.json"),
    ],
)
def test_without_a_host_a_damaged_checkpoint_is_passed_over_with_the_reason(
    tmp_path: Path, processes: Processes, damage: object, reason: str
) -> None:
    assert callable(damage)
    output, errors, status = start_alone(
        processes, tmp_path, "--steps", "20", "--save-at", "10", "20"
    )
    assert (status, errors) == (0, "")
    damage(tmp_path / "checkpoints" / "step-20")

    output, errors, status = start_alone(processes, tmp_path, "--save-at", "20", "30")

    assert status == 0, errors
    assert output == f"first step 11\ndigest {uninterrupted_digest()}\n"
    assert errors.startswith("checkpoint ignored: checkpoints/step-20: ")
    assert reason in errors
    # Step 20 was reached again and saved again, whole.
    manifest = json.loads((tmp_path / "checkpoints" / "step-20" / "MANIFEST.json").read_text())
    assert [entry["path"] for entry in manifest["files"]] == ["ballast", "digest"]


def test_without_a_host_a_killed_run_goes_on_from_its_newest_checkpoint(
    tmp_path: Path, processes: Processes
) -> None:
    gates = Gates(tmp_path)
    gates.arm("save-30")
    process = processes.start(
        sys.executable,
        CHAIN_JOB,
        *("--save-at", "10", "20", "30", "--gates", str(tmp_path)),
        env=environment(),
        cwd=tmp_path,
    )
    gates.reached("save-30")
    process.kill()
    process.wait(timeout=30)
    gates.open("save-30")

    output, errors, status = start_alone(processes, tmp_path, "--save-at", "30")

    assert (status, errors) == (0, "")
    assert output == f"first step 21\ndigest {uninterrupted_digest()}\n"
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-20", "step-30"]  # the part that was cut off is gone too
