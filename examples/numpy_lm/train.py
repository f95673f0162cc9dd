"""
Train a small character-level language model on Shakespeare's sonnets, interruptions included.

An embedding, one hidden layer and a softmax guess the next character from the 16 before it; Adam
with warm-up and cosine decay, shuffled data, dropout. Everything that decides the next step is in
the checkpoint (weights, Adam's moments, the place in the schedule, the place in the shuffled data,
both random states), so a run that was interrupted ends with the same bytes as one that was not.

    python train.py --steps 400 --out weights.npz

Without a host, checkpoints go to ./checkpoints and the next start resumes from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# One thread: sums in a fixed order are what makes two runs equal to the last bit.
for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = "1"

import numpy as np  # noqa: E402

try:
    import reprieve_job
except ImportError:
    raise SystemExit(
        "train.py needs reprieve_job, which Reprieve puts in a job's path."
        " To run it by hand: pip install reprieve, or PYTHONPATH=<the repository>/agent"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Arrays = dict[str, Floats]

TEXT = Path(__file__).with_name("sonnets.txt")
CONTEXT = 16  # characters the model sees
EMBEDDING = 24
HIDDEN = 256
BATCH = 256
DROPOUT = np.float32(0.1)
PEAK_RATE = 4e-3
WARMUP_STEPS = 30
BETA1, BETA2, EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)


class Corpus:
    """The text as numbers: one per distinct character."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="ascii")
        alphabet = sorted(set(text))
        number = {character: index for index, character in enumerate(alphabet)}
        self.characters = np.array([number[character] for character in text], dtype=np.int32)
        self.vocabulary = len(alphabet)
        self.windows = len(text) - CONTEXT

    def batch(self, starts: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the contexts (batch, CONTEXT) that begin at *starts*, and what follows each."""
        contexts = self.characters[starts[:, None] + np.arange(CONTEXT, dtype=np.int32)]
        return contexts, self.characters[starts + CONTEXT]


class ShuffledOrder:
    """Every window once per epoch, in an order drawn anew for each epoch."""

    def __init__(self, windows: int, generator: np.random.Generator) -> None:
        self.generator = generator
        self.order = self._draw(windows)
        self.position = 0
        self.epoch = 0

    def next_batch(self) -> NDArray[np.int32]:
        if self.position + BATCH > len(self.order):
            self.order = self._draw(len(self.order))
            self.position = 0
            self.epoch += 1
        batch = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return batch

    def _draw(self, windows: int) -> NDArray[np.int32]:
        return self.generator.permutation(windows).astype(np.int32)


class Forward(NamedTuple):
    inputs: Floats  # (batch, CONTEXT * EMBEDDING)
    hidden: Floats  # (batch, HIDDEN), after dropout
    gate: Floats  # (batch, HIDDEN), dropout times the slope of tanh
    probabilities: Floats  # (batch, vocabulary)


class Training:
    """All that decides the next step."""

    def __init__(self, corpus: Corpus, *, steps: int, seed: int) -> None:
        self.corpus = corpus
        self.steps = steps
        self.seed = seed
        self.step = 0
        self.weights = initial_weights(corpus.vocabulary, np.random.default_rng(seed))
        self.first = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.second = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.data = ShuffledOrder(corpus.windows, np.random.default_rng([seed, 1]))
        self.dropout = np.random.default_rng([seed, 2])
        self.log: list[dict[str, Any]] = []  # every step executed on the way here

    def advance(self, *, attempt: int) -> float:
        """Take one optimiser step; return the loss of its batch."""
        self.step += 1
        contexts, targets = self.corpus.batch(self.data.next_batch())
        forward = self._forward(contexts)
        chosen = forward.probabilities[np.arange(BATCH), targets]
        loss = float(-np.log(chosen).mean())
        self._update(self._gradients(contexts, targets, forward))
        self.log.append({"attempt": attempt, "step": self.step, "loss": round(loss, 6)})
        return loss

    def rate(self) -> float:
        """Return the learning rate of this step: linear warm-up, then half a cosine."""
        if self.step <= WARMUP_STEPS:
            return PEAK_RATE * self.step / WARMUP_STEPS
        progress = (self.step - WARMUP_STEPS) / max(1, self.steps - WARMUP_STEPS)
        return float(PEAK_RATE * 0.5 * (1 + np.cos(np.pi * progress)))

    def save(self, folder: Path, *, random_state: bool) -> None:
        write_arrays(folder / "weights.npz", self.weights)
        write_arrays(folder / "first_moment.npz", self.first)
        write_arrays(folder / "second_moment.npz", self.second)
        np.save(folder / "order.npy", self.data.order)
        state: dict[str, Any] = {
            "step": self.step,
            "steps": self.steps,  # the schedule's length
            "seed": self.seed,
            "epoch": self.data.epoch,
            "position": self.data.position,
        }
        if random_state:
            state["random"] = {
                "data": self.data.generator.bit_generator.state,
                "dropout": self.dropout.bit_generator.state,
            }
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        lines = "".join(json.dumps(line) + "\n" for line in self.log)
        (folder / "steps.jsonl").write_text(lines, encoding="utf-8")

    def load(self, folder: Path, *, random_state: bool) -> None:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if (state["steps"], state["seed"]) != (self.steps, self.seed):
            raise SystemExit(
                f"the checkpoint in {folder} is of a run with --steps {state['steps']}"
                f" --seed {state['seed']}: use the same options, or another --checkpoints folder"
            )
        self.step = state["step"]
        self.weights = read_arrays(folder / "weights.npz")
        self.first = read_arrays(folder / "first_moment.npz")
        self.second = read_arrays(folder / "second_moment.npz")
        self.data.order = np.load(folder / "order.npy")
        self.data.epoch = state["epoch"]
        self.data.position = state["position"]
        if random_state:
            if "random" not in state:
                raise SystemExit(f"the checkpoint in {folder} has no random state: start over")
            self.data.generator.bit_generator.state = state["random"]["data"]
            self.dropout.bit_generator.state = state["random"]["dropout"]
        lines = (folder / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        self.log = [json.loads(line) for line in lines]

    def _forward(self, contexts: NDArray[np.int32]) -> Forward:
        w = self.weights
        inputs = w["embedding"][contexts].reshape(BATCH, CONTEXT * EMBEDDING)
        active = np.tanh(inputs @ w["hidden"] + w["hidden_bias"])
        kept = self.dropout.random(active.shape, dtype=np.float32) >= DROPOUT
        scale = kept.astype(np.float32) / (1 - DROPOUT)
        hidden = active * scale
        logits = hidden @ w["output"] + w["output_bias"]
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponents / exponents.sum(axis=1, keepdims=True)
        return Forward(inputs, hidden, scale * (1 - active * active), probabilities)

    def _gradients(
        self, contexts: NDArray[np.int32], targets: NDArray[np.int32], forward: Forward
    ) -> Arrays:
        w = self.weights
        d_logits = forward.probabilities.copy()
        d_logits[np.arange(BATCH), targets] -= 1
        d_logits /= BATCH
        d_hidden = (d_logits @ w["output"].T) * forward.gate
        d_inputs = (d_hidden @ w["hidden"].T).reshape(BATCH, CONTEXT, EMBEDDING)
        d_embedding = np.zeros_like(w["embedding"])
        np.add.at(d_embedding, contexts, d_inputs)
        return {
            "embedding": d_embedding,
            "hidden": forward.inputs.T @ d_hidden,
            "hidden_bias": d_hidden.sum(axis=0),
            "output": forward.hidden.T @ d_logits,
            "output_bias": d_logits.sum(axis=0),
        }

    def _update(self, gradients: Arrays) -> None:
        """Apply Adam with bias correction."""
        rate = np.float32(self.rate())
        unbias1, unbias2 = 1 - BETA1**self.step, 1 - BETA2**self.step
        for name, gradient in gradients.items():
            first, second = self.first[name], self.second[name]
            first += (1 - BETA1) * (gradient - first)
            second += (1 - BETA2) * (gradient * gradient - second)
            self.weights[name] -= rate * (first / unbias1) / (np.sqrt(second / unbias2) + EPSILON)


def initial_weights(vocabulary: int, generator: np.random.Generator) -> Arrays:
    def normal(rows: int, columns: int, deviation: float) -> Floats:
        drawn = generator.standard_normal((rows, columns), dtype=np.float32)
        return drawn * np.float32(deviation)

    fan_in = CONTEXT * EMBEDDING
    return {
        "embedding": normal(vocabulary, EMBEDDING, 0.5),
        "hidden": normal(fan_in, HIDDEN, fan_in**-0.5),
        "hidden_bias": np.zeros(HIDDEN, dtype=np.float32),
        "output": normal(HIDDEN, vocabulary, HIDDEN**-0.5),
        "output_bias": np.zeros(vocabulary, dtype=np.float32),
    }


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an .npz whose bytes depend on the arrays alone: fixed order, fixed time stamps."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(arrays[name]))


def read_arrays(path: Path) -> Arrays:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def parse_options(arguments: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a character model on the sonnets.")
    parser.add_argument("--steps", type=int, default=400, help="optimiser steps (400)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (0)")
    parser.add_argument(
        "--step-seconds", type=float, default=0.0, help="least duration of a step (0: full speed)"
    )
    parser.add_argument(
        "--save-every", type=float, default=600.0, help="seconds between periodic saves (600)"
    )
    parser.add_argument("--log-every", type=int, default=10, help="steps between two lines (10)")
    parser.add_argument("--out", type=Path, help="also write the final weights to this file")
    parser.add_argument(
        "--checkpoints", type=Path, default=Path("checkpoints"), help="where, without a host"
    )
    parser.add_argument(
        "--forget-random-state",
        action="store_true",
        help="leave the random states out of checkpoints, to see that the result then differs",
    )
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.steps < 1 or options.log_every < 1:
        parser.error("--steps and --log-every must be at least 1")
    return options


def train(training: Training, job: reprieve_job.Job, options: argparse.Namespace) -> None:
    first_step = training.step + 1
    while training.step < options.steps:
        started = time.monotonic()
        loss = training.advance(attempt=job.attempt)
        time.sleep(max(0.0, started + options.step_seconds - time.monotonic()))
        step = training.step
        job.step(step)
        if step in {first_step, options.steps} or step % options.log_every == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
        if job.should_save() or step == options.steps:
            with job.checkpoint(step) as folder:
                training.save(folder, random_state=not options.forget_random_state)
            print(f"saved step {step}", flush=True)
        if job.should_exit():
            print(f"leaving after step {step}, to be resumed", flush=True)
            raise SystemExit(reprieve_job.REQUEUE)


def main() -> None:
    options = parse_options()
    job = reprieve_job.connect(
        total_steps=options.steps,
        every=options.save_every,
        framework="numpy",
        checkpoint_dir=options.checkpoints,
    )
    training = Training(Corpus(TEXT), steps=options.steps, seed=options.seed)
    if job.resume_dir is not None:
        training.load(job.resume_dir, random_state=not options.forget_random_state)
        print(f"resumed from step {training.step}", flush=True)
    train(training, job, options)
    if options.out is not None:
        write_arrays(options.out, training.weights)
    job.done(training.step)
    print(f"finished at step {training.step}", flush=True)


if __name__ == "__main__":
    main()
