"""A trial begins and its process is lost; the next one runs it again."""

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from reprieve_job.optuna import requeue_running

optuna.logging.set_verbosity(optuna.logging.WARNING)


def opened() -> optuna.Study:
    storage = JournalStorage(JournalFileBackend("study.journal"))
    return optuna.create_study(storage=storage, study_name="s", load_if_exists=True)


opened().ask().suggest_float("x", 0, 1)
study = opened()
requeue_running(study)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
