"""
A Ray Tune sweep whose experiment lives in a bucket (or any folder that outlives the host).

    python ray_tune.py --storage s3://my-bucket/tune --trials 4 --iterations 50
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import reprieve_job

parser = argparse.ArgumentParser(description="Look for the lowest point of a made-up function.")
parser.add_argument("--storage", required=True, help="where the experiment lives: s3://… or a path")
parser.add_argument("--name", default="sweep", help="of the experiment; the same on each host")
parser.add_argument("--trials", type=int, default=4)
parser.add_argument("--iterations", type=int, default=50, help="of each trial")
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of one")
parser.add_argument("--scratch", help="a folder for Ray's own files, else /tmp/ray")
options = parser.parse_args()

job = reprieve_job.connect(total_steps=options.trials * options.iterations, framework="ray")

import ray  # noqa: E402
from ray import tune  # noqa: E402


def trial(config: dict[str, Any]) -> None:
    """Descend; Tune starts it again from its newest checkpoint, here or on another host."""
    place, done = float(config["start"]), 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            place, done = json.loads(Path(folder, "state.json").read_text())
    for iteration in range(done + 1, options.iterations + 1):
        place -= 0.1 * (place - 1)
        time.sleep(options.step_seconds)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps([place, iteration]))
            tune.report(
                {"loss": (place - 1) ** 2, "iteration": iteration, "began_at": done},
                checkpoint=tune.Checkpoint.from_directory(folder),
            )


class Progress(tune.Callback):
    """Tells the host how far all trials are together, and has Tune stop when the host asks."""

    def __init__(self) -> None:
        self._done = job.resume_step or 0

    def on_trial_result(self, **_told: Any) -> None:
        self._done += 1
        job.step(self._done)
        if job.should_exit():
            signal.raise_signal(signal.SIGUSR1)  # Tune saves the experiment, and fit() returns


ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=options.scratch)
path = f"{options.storage}/{options.name}"
if tune.Tuner.can_restore(path):
    tuner = tune.Tuner.restore(path, trial, resume_unfinished=True, restart_errored=True)
else:
    space = {"start": tune.grid_search(list(range(options.trials)))}
    where = tune.RunConfig(
        storage_path=options.storage, name=options.name, callbacks=[Progress()], verbose=0
    )
    tuner = tune.Tuner(trial, param_space=space, run_config=where)

# Interrupted it returns early, as if all were well: what counts is how far the trials are.
results = tuner.fit()
done = sum(result.metrics.get("iteration", 0) for result in results if result.metrics)
job.step(done)
if done < options.trials * options.iterations:
    with job.checkpoint(done) as folder:  # a mark of how far it is; the state is in the bucket
        (folder / "experiment.json").write_text(json.dumps({"path": path, "iterations": done}))
    raise SystemExit(reprieve_job.REQUEUE)

best = min(result.metrics["loss"] for result in results)
earlier = sum(result.metrics["began_at"] for result in results)
job.done(done)
print(f"finished {done} iterations, {earlier} of them earlier; lowest loss {best:.6f}", flush=True)
