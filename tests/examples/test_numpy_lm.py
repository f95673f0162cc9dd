"""The demo's training run: interrupted or not, it ends with the same bytes."""

import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.examples.tiny_agent import (
    EXAMPLES,
    Processes,
    Started,
    TinyAgent,
    environment,
    eventually,
)

pytestmark = pytest.mark.deep

SCRIPT = EXAMPLES / "numpy_lm" / "train.py"
STEPS = 60
OPTIONS = ("--steps", str(STEPS), "--out", "weights.npz")
REQUEUE = 75


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def finish(process: Started) -> str:
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert errors == ""
    return output


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the weights of a run that nobody interrupted, without a host."""
    directory = tmp_path_factory.mktemp("uninterrupted")
    processes = Processes()
    finish(processes.start(sys.executable, SCRIPT, *OPTIONS, env=environment(), cwd=directory))
    return digest(directory / "weights.npz")


def interrupt_after(agent: TinyAgent, steps: int, *options: str) -> int:
    """Start the script, ask it to leave once *steps* are done; return the step it saved."""
    paced = ("--step-seconds", "0.05", "--log-every", "1")
    process = agent.start(SCRIPT, *OPTIONS, *paced, *options)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step {steps} "):
            break
    agent.request()
    assert process.wait(timeout=60) == REQUEUE
    return int(agent.ack("saved")["step"])


def executed(folder: Path) -> list[tuple[int, int]]:
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return [(line["attempt"], line["step"]) for line in lines]


def test_an_interrupted_run_ends_with_the_same_bytes(agent: TinyAgent, uninterrupted: str) -> None:
    first_stop = interrupt_after(agent, 12)
    second = agent.successor()
    second_stop = interrupt_after(second, 30)
    third = second.successor()
    output = finish(third.start(SCRIPT, *OPTIONS))

    assert 12 <= first_stop < second_stop < STEPS
    assert output.splitlines()[0] == f"resumed from step {second_stop}"
    assert output.splitlines()[1].startswith(f"step {second_stop + 1} loss ")
    assert third.read("done.json") == {"v": 1, "step": STEPS}
    final = third.checkpoints / f"step-{STEPS}"
    assert digest(agent.root / "weights.npz") == uninterrupted
    assert digest(final / "weights.npz") == uninterrupted
    # No step was lost and none was repeated, and the checkpoint itself says so.
    assert executed(final) == [
        *((1, step) for step in range(1, first_stop + 1)),
        *((2, step) for step in range(first_stop + 1, second_stop + 1)),
        *((3, step) for step in range(second_stop + 1, STEPS + 1)),
    ]


def test_without_the_random_state_the_bytes_differ(agent: TinyAgent, uninterrupted: str) -> None:
    stop = interrupt_after(agent, 12, "--forget-random-state")
    state = json.loads((agent.checkpoints / f"step-{stop}" / "state.json").read_text())
    assert "random" not in state
    output = finish(agent.successor().start(SCRIPT, *OPTIONS, "--forget-random-state"))

    assert output.splitlines()[0] == f"resumed from step {stop}"
    assert digest(agent.root / "weights.npz") != uninterrupted


def test_a_checkpoint_without_its_random_state_is_not_resumed_by_accident(
    agent: TinyAgent,
) -> None:
    interrupt_after(agent, 12, "--forget-random-state")
    process = agent.successor().start(SCRIPT, *OPTIONS)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "has no random state" in errors.splitlines()[-1]


def test_a_host_that_dies_without_a_word_costs_the_steps_since_the_last_save(
    agent: TinyAgent, uninterrupted: str
) -> None:
    slow = (*OPTIONS, "--step-seconds", "0.05", "--save-every", "0.3")
    process = agent.start(SCRIPT, *slow)
    eventually(agent.saved_steps)
    process.kill()
    process.wait(timeout=30)
    following = agent.successor()
    output = finish(following.start(SCRIPT, *OPTIONS))

    assert output.startswith("resumed from step ")
    assert digest(agent.root / "weights.npz") == uninterrupted


def test_a_job_that_was_complete_does_not_train_again(agent: TinyAgent, uninterrupted: str) -> None:
    finish(agent.start(SCRIPT, *OPTIONS))
    following = agent.successor()
    (agent.root / "weights.npz").unlink()
    output = finish(following.start(SCRIPT, *OPTIONS))

    assert output == f"resumed from step {STEPS}\nfinished at step {STEPS}\n"
    assert following.read("done.json") == {"v": 1, "step": STEPS}
    assert digest(agent.root / "weights.npz") == uninterrupted


def test_resuming_with_other_options_is_refused_in_one_line(agent: TinyAgent) -> None:
    interrupt_after(agent, 12)
    following = agent.successor()
    process = following.start(SCRIPT, "--steps", "99")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == (
        f"the checkpoint in {following.resume_dir} is of a run with --steps {STEPS} --seed 0:"
        " use the same options, or another --checkpoints folder\n"
    )


def test_a_missing_helper_is_named_in_one_line(tmp_path: Path, processes: Processes) -> None:
    (tmp_path / "reprieve_job.py").write_text("raise ImportError")
    env = environment(PYTHONPATH=str(tmp_path))
    process = processes.start(sys.executable, SCRIPT, env=env, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("train.py needs reprieve_job")
    assert errors.count("\n") == 1


def test_no_numeric_library_starts_a_second_thread(agent: TinyAgent) -> None:
    process = agent.start(SCRIPT, *OPTIONS, "--step-seconds", "0.05")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("step 1 ")
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1


def load_module(directory: Path) -> ModuleType:
    """Import a copy of the script with a text so short that 11 batches are an epoch."""
    shutil.copy(SCRIPT, directory)
    text = (SCRIPT.with_name("sonnets.txt")).read_text()
    (directory / "sonnets.txt").write_text(text[: 16 + 11 * 64])
    spec = importlib.util.spec_from_file_location("numpy_lm_train", directory / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    module = load_module(tmp_path)
    # Too small for a numeric library that is already loaded here to share among threads.
    monkeypatch.setattr(module, "BATCH", 64)
    monkeypatch.setattr(module, "HIDDEN", 24)
    return module


def new_training(script: ModuleType) -> Any:
    return script.Training(script.Corpus(script.TEXT), steps=40, seed=1)


@pytest.mark.parametrize("stop", [7, 11, 12, 30])  # 11 batches make an epoch
def test_a_resumed_run_agrees_in_every_epoch(script: ModuleType, tmp_path: Path, stop: int) -> None:
    straight, before, after = (new_training(script) for _ in range(3))
    for _ in range(40):
        straight.advance(attempt=1)
    for _ in range(stop):
        before.advance(attempt=1)
    before.save(tmp_path, random_state=True)
    after.load(tmp_path, random_state=True)
    for _ in range(40 - stop):
        after.advance(attempt=2)

    assert straight.data.epoch == 3
    assert after.data.epoch == 3
    for name, weight in straight.weights.items():
        np.testing.assert_array_equal(weight, after.weights[name])


def test_the_order_of_the_data_alone_needs_its_random_state(
    script: ModuleType, tmp_path: Path
) -> None:
    straight, after = new_training(script), new_training(script)
    for _ in range(12):
        straight.advance(attempt=1)
    straight.save(tmp_path, random_state=False)
    after.load(tmp_path, random_state=False)
    assert [after.data.next_batch().tolist() for _ in range(10)] == [
        straight.data.next_batch().tolist() for _ in range(10)
    ]  # the rest of this epoch is in the checkpoint
    assert after.data.next_batch().tolist() != straight.data.next_batch().tolist()


def test_the_gradient_is_the_slope_of_the_loss(script: ModuleType) -> None:
    training = new_training(script)
    contexts, targets = training.corpus.batch(training.data.next_batch())
    random_state = training.dropout.bit_generator.state

    def loss() -> float:
        training.dropout.bit_generator.state = random_state
        forward = training._forward(contexts)
        chosen = forward.probabilities[np.arange(len(targets)), targets]
        return float(-np.log(chosen.astype(np.float64)).mean())

    training.dropout.bit_generator.state = random_state
    gradients = training._gradients(contexts, targets, training._forward(contexts))
    for name, gradient in gradients.items():
        weight = training.weights[name]
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        original = weight[place]
        weight[place] = original + 0.01
        above = loss()
        weight[place] = original - 0.01
        below = loss()
        weight[place] = original
        assert (above - below) / 0.02 == pytest.approx(gradient[place], rel=0.02), name


def test_training_learns(script: ModuleType) -> None:
    training = new_training(script)
    losses = [training.advance(attempt=1) for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.75 * losses[0]
