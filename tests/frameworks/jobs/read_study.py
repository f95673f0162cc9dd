"""Prints the trials of a study whose journal is the first argument."""

import json
import sys

from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

storage = JournalStorage(JournalFileBackend(sys.argv[1]))
study = load_study(study_name=None, storage=storage)
rows = [
    {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "again": trial.user_attrs.get("runs_again"),
    }
    for trial in study.trials
]
sys.stdout.write(json.dumps(rows))
