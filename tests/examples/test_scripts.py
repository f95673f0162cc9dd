"""The other examples: each is interrupted by a real request and ends as if it had not been."""

import hashlib
import sys
from pathlib import Path

from tests.examples.tiny_agent import (
    EXAMPLES,
    Processes,
    Started,
    TinyAgent,
    environment,
    eventually,
)

REQUEUE = 75


def finish(process: Started) -> str:
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert errors == ""
    return output


def alone(processes: Processes, directory: Path, *argv: str | Path) -> str:
    """Run a script to its end, without a host; return what it printed."""
    directory.mkdir(exist_ok=True)
    return finish(processes.start(sys.executable, *argv, env=environment(), cwd=directory))


def interrupt(agent: TinyAgent, *argv: str | Path) -> int:
    """Run a script on a host that asks it to leave; return the step it saved."""
    process = agent.start(*argv)
    eventually(lambda: agent.read("progress.json"))
    agent.request()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == REQUEUE, errors
    return int(agent.ack("saved")["step"])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_spot_loop_ends_as_if_it_had_not_been_interrupted(
    agent: TinyAgent, processes: Processes, tmp_path: Path
) -> None:
    script = EXAMPLES / "spot_training.py"
    expected = alone(processes, tmp_path / "alone", script, "--steps", "300")
    step = interrupt(agent, script, "--steps", "300", "--step-seconds", "0.02")
    following = agent.successor()
    output = finish(following.start(script, "--steps", "300"))

    assert 0 < step < 300
    assert output.splitlines()[0] == f"resumed from step {step}"
    assert output.splitlines()[-1] == expected.splitlines()[-1]
    assert following.read("done.json") == {"v": 1, "step": 300}


def test_the_spot_loop_saves_in_its_own_rhythm_and_resumes_without_a_host(
    processes: Processes, tmp_path: Path
) -> None:
    script = EXAMPLES / "spot_training.py"
    expected = alone(processes, tmp_path / "alone", script, "--steps", "200")
    slow = ("--steps", "200", "--step-seconds", "0.01", "--save-every", "0.1")
    process = processes.start(sys.executable, script, *slow, env=environment(), cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("saved step ")
    process.kill()
    process.wait(timeout=30)
    output = alone(processes, tmp_path, script, "--steps", "200")

    assert output.startswith("resumed from step ")
    assert output.splitlines()[-1] == expected.splitlines()[-1]


def test_the_public_script_resumes_by_itself_where_its_disk_survives(
    processes: Processes, tmp_path: Path
) -> None:
    script = EXAMPLES / "public_style" / "train.py"
    alone(processes, tmp_path / "alone", script)
    slow = ("--sleep-per-step", "0.01", "--save-steps", "10", "--save-total-limit", "2")
    process = processes.start(sys.executable, script, *slow, env=environment(), cwd=tmp_path)
    eventually((tmp_path / "output" / "checkpoint-30" / "trainer_state.json").exists)
    process.kill()
    process.wait(timeout=30)
    output = alone(processes, tmp_path, script)

    assert output.startswith("Resuming training from output/checkpoint-")
    assert digest(tmp_path / "output" / "final_weight.npy") == digest(
        tmp_path / "alone" / "output" / "final_weight.npy"
    )


def test_the_public_script_keeps_as_many_checkpoints_as_it_is_told(
    processes: Processes, tmp_path: Path
) -> None:
    script = EXAMPLES / "public_style" / "train.py"
    alone(processes, tmp_path, script, "--save-steps", "40", "--save-total-limit", "2")
    names = sorted(path.name for path in (tmp_path / "output").glob("checkpoint-*"))
    assert names == ["checkpoint-280", "checkpoint-300"]


def test_the_public_script_made_interruptible_computes_the_same(
    agent: TinyAgent, processes: Processes, tmp_path: Path
) -> None:
    folder = EXAMPLES / "public_style"
    alone(processes, tmp_path / "alone", folder / "train.py")
    script = folder / "train_interruptible.py"
    step = interrupt(agent, script, "--sleep-per-step", "0.02")
    output = finish(agent.successor().start(script))

    assert 0 < step < 300
    assert output.startswith("Resuming training from ")
    assert digest(tmp_path / "output" / "final_weight.npy") == digest(
        tmp_path / "alone" / "output" / "final_weight.npy"
    )
