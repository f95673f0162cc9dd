"""
The loop everybody writes for Spot instances, done right: nothing but Python and reprieve_job.

Save every 600 s, save at once when the host is going away, leave in good order, resume where the
last attempt stopped. Without a host it saves to ./checkpoints and resumes from there.

    python spot_training.py --steps 2000 --step-seconds 0.01
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import reprieve_job

parser = argparse.ArgumentParser(description="Fit a line by stochastic gradient descent.")
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
parser.add_argument("--save-every", type=float, default=600.0, help="seconds between saves")
options = parser.parse_args()

# First thing: from here on the host may ask, even while slow imports and data loading go on.
job = reprieve_job.connect(total_steps=options.steps, every=options.save_every)

# State is everything that decides the next step. Forget the random state, and the resumed run
# sees other data than the one that was not interrupted.
state = {"slope": 0.0, "offset": 0.0}
randomness = random.Random(7)
if job.resume_dir is not None:
    saved = json.loads((job.resume_dir / "state.json").read_text())
    state = saved["state"]
    version, internal, gauss_next = saved["random"]
    randomness.setstate((version, tuple(internal), gauss_next))
    print(f"resumed from step {job.resume_step}", flush=True)


def save(folder: Path) -> None:
    content = {"state": state, "random": randomness.getstate()}
    (folder / "state.json").write_text(json.dumps(content))


for step in range((job.resume_step or 0) + 1, options.steps + 1):
    x = randomness.uniform(-1, 1)
    error = state["slope"] * x + state["offset"] - (3 * x - 2 + randomness.gauss(0, 0.1))
    state["slope"] -= 0.05 * error * x
    state["offset"] -= 0.05 * error
    time.sleep(options.step_seconds)

    job.step(step)  # this step is complete: progress for the host, and a cheap look for a request
    if job.should_save() or step == options.steps:  # asked to, or 600 s have passed, or the end
        with job.checkpoint(step) as folder:  # whole or not there: never a torn file
            save(folder)
        print(f"saved step {step}", flush=True)
    if job.should_exit():  # the host goes away and the state is safe: leave, to be started again
        raise SystemExit(reprieve_job.REQUEUE)

job.done(options.steps)  # the proof of completion, also when the host is going away
print(f"slope {state['slope']:.6f} offset {state['offset']:.6f}")
