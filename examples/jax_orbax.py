"""
A JAX loop whose state Orbax writes: parameters, momentum, the random key and the place in the data.

    python jax_orbax.py --steps 300 --step-seconds 0.02 --out model.npz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import reprieve_job

parser = argparse.ArgumentParser(description="Train a small network with dropout on made-up data.")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
parser.add_argument("--save-every", type=float, default=600.0, help="seconds between saves")
parser.add_argument("--out", type=Path, help="also write the final weights to this file")
options = parser.parse_args()

# Before `import jax`, which takes seconds: the host may ask from here on.
job = reprieve_job.connect(total_steps=options.steps, every=options.save_every, framework="orbax")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from orbax import checkpoint as orbax  # noqa: E402

BATCH, RATE, MOMENTUM, KEEP = 64, 1e-2, 0.9, 0.9

inputs = jax.random.normal(jax.random.key(1), (4096, 32))
targets = jnp.sign(inputs[:, :8].prod(axis=1, keepdims=True))


def first_state() -> dict[str, Any]:
    """Return the state before the first step; all that a step changes is in it."""
    below, above = jax.random.split(jax.random.key(0))
    weights = {
        "below": jax.random.normal(below, (32, 128)) / 32**0.5,
        "above": jax.random.normal(above, (128, 1)) / 128**0.5,
    }
    return {
        "weights": weights,
        "momentum": jax.tree.map(jnp.zeros_like, weights),
        "random": jax.random.key_data(jax.random.key(2)),
        "place": jnp.zeros((), jnp.int32),
    }


def loss_of(weights: Any, batch: Any, wanted: Any, key: Any) -> Any:
    hidden = jax.nn.relu(batch @ weights["below"])
    kept = jax.random.bernoulli(key, KEEP, hidden.shape)
    return jnp.mean((jnp.where(kept, hidden / KEEP, 0) @ weights["above"] - wanted) ** 2)


@jax.jit  # type: ignore[untyped-decorator]  # jax is seen by no type checker here
def train(state: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    key, dropout = jax.random.split(jax.random.wrap_key_data(state["random"]))
    rows = (state["place"] + jnp.arange(BATCH)) % len(inputs)
    loss, slope = jax.value_and_grad(loss_of)(
        state["weights"], inputs[rows], targets[rows], dropout
    )
    momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g, state["momentum"], slope)
    return {
        "weights": jax.tree.map(lambda w, m: w - RATE * m, state["weights"], momentum),
        "momentum": momentum,
        "random": jax.random.key_data(key),
        "place": state["place"] + BATCH,
    }, loss


checkpointer = orbax.StandardCheckpointer()
state = first_state()
if job.resume_dir is not None:
    shapes = jax.tree.map(orbax.utils.to_shape_dtype_struct, state)
    state = checkpointer.restore((job.resume_dir / "state").absolute(), shapes)
    print(f"resumed from step {job.resume_step}", flush=True)

for step in range((job.resume_step or 0) + 1, options.steps + 1):
    state, loss = train(state)
    time.sleep(options.step_seconds)

    job.step(step)
    if job.should_save() or step == options.steps:
        with job.checkpoint(step) as folder:
            checkpointer.save((folder / "state").absolute(), state)
            checkpointer.wait_until_finished()  # before the block ends: Orbax saves on the side
        print(f"saved step {step} loss {loss:.4f}", flush=True)
    if job.should_exit():
        raise SystemExit(reprieve_job.REQUEUE)

if options.out is not None:
    weights = {name: np.asarray(part) for name, part in state["weights"].items()}
    np.savez(options.out, allow_pickle=False, **weights)
job.done(options.steps)
print(f"finished at step {options.steps}", flush=True)
