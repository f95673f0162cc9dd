"""
A training script as one finds them in public repositories: it knows nothing of Reprieve.

Softmax regression on made-up digits. It writes checkpoint-<step>/ folders into --output-dir, keeps
the newest --save-total-limit of them, and resumes from the newest when it is started again.

    python train.py --output-dir output --max-steps 300
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np

CLASSES = 10
FEATURES = 64


def get_dataset(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=8192)
    return centres[labels] + rng.normal(scale=2.0, size=(8192, FEATURES)), labels


def get_last_checkpoint(output_dir: Path) -> Path | None:
    checkpoints = [path for path in output_dir.glob("checkpoint-*") if path.is_dir()]
    return max(checkpoints, key=lambda path: int(path.name.split("-")[1]), default=None)


def save_checkpoint(
    args: argparse.Namespace, step: int, state: dict[str, np.ndarray], rng: np.random.Generator
) -> None:
    folder = args.output_dir / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "model.npz", weight=state["weight"], velocity=state["velocity"])
    trainer_state = {"global_step": step, "rng": rng.bit_generator.state}
    (folder / "trainer_state.json").write_text(json.dumps(trainer_state))
    rotate_checkpoints(args)
    print(f"Saving model checkpoint to {folder}", flush=True)


def rotate_checkpoints(args: argparse.Namespace) -> None:
    checkpoints = sorted(
        args.output_dir.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])
    )
    for folder in checkpoints[: -args.save_total_limit]:
        shutil.rmtree(folder)


def save_final_weight(output_dir: Path, weight: np.ndarray) -> None:
    output_dir.mkdir(parents=True, exist_ok=True)
    np.save(output_dir / "final_weight.npy", weight)
    print(f"Training complete, final weights in {output_dir}/final_weight.npy", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", type=Path, default=Path("output"))
    parser.add_argument("--max-steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--save-total-limit", type=int, default=3)
    parser.add_argument("--logging-steps", type=int, default=25)
    parser.add_argument("--sleep-per-step", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    features, labels = get_dataset(args.seed)
    rng = np.random.default_rng(args.seed)
    state = {"weight": np.zeros((FEATURES, CLASSES)), "velocity": np.zeros((FEATURES, CLASSES))}
    global_step = 0

    checkpoint = get_last_checkpoint(args.output_dir)
    if checkpoint is not None:
        trainer_state = json.loads((checkpoint / "trainer_state.json").read_text())
        global_step = trainer_state["global_step"]
        rng.bit_generator.state = trainer_state["rng"]
        with np.load(checkpoint / "model.npz") as arrays:
            state = {name: arrays[name] for name in arrays.files}
        print(f"Resuming training from {checkpoint}", flush=True)
    else:
        print("Starting training from scratch", flush=True)

    while global_step < args.max_steps:
        batch = rng.integers(len(features), size=args.batch_size)
        logits = features[batch] @ state["weight"]
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        loss = -np.log(probabilities[np.arange(len(batch)), labels[batch]]).mean()
        probabilities[np.arange(len(batch)), labels[batch]] -= 1
        gradient = features[batch].T @ probabilities / len(batch)
        state["velocity"] = args.momentum * state["velocity"] - args.learning_rate * gradient
        state["weight"] = state["weight"] + state["velocity"]
        time.sleep(args.sleep_per_step)
        global_step += 1
        if global_step % args.logging_steps == 0:
            print(f"step: {global_step}, loss: {loss:.4f}", flush=True)
        if global_step % args.save_steps == 0 or global_step == args.max_steps:
            save_checkpoint(args, global_step, state, rng)

    save_final_weight(args.output_dir, state["weight"])


if __name__ == "__main__":
    main()
