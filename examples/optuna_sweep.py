"""
A sweep of 20 trials that may be interrupted in the middle of a trial.

    python optuna_sweep.py --trials 20 --step-seconds 0.01
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter

import reprieve_job

parser = argparse.ArgumentParser(description="Find the lowest point of a parabola.")
parser.add_argument("--trials", type=int, default=20)
parser.add_argument("--step-seconds", type=float, default=0.0)
options = parser.parse_args()

job = reprieve_job.connect(framework="optuna")

import optuna  # noqa: E402

from reprieve_job.optuna import Sweep  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
sweep = Sweep(job, n_trials=options.trials)
study = optuna.create_study(
    storage=sweep.storage,
    study_name="parabola",
    load_if_exists=True,
    sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=5),
)


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -10, 10)
    y = trial.suggest_float("y", -10, 10)
    for _ in range(10):
        time.sleep(options.step_seconds)
        sweep.poll()
    return float((x - 2) ** 2 + y**2)


sweep.optimize(study, objective)
job.done(len(study.trials))
states = Counter(trial.state.name for trial in study.trials)
print(json.dumps({"best": study.best_value, **states}), flush=True)
