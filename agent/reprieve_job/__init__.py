"""
The job's side of Reprieve: save on request, leave in time, go on where the last attempt stopped.

A training loop needs five calls::

    import reprieve_job

    job = reprieve_job.connect(total_steps=10_000, every=600)
    state = load(job.resume_dir) if job.resume_dir else fresh()
    for step in range((job.resume_step or 0) + 1, 10_001):
        train_one_step(state)
        job.step(step)                          # progress, and a cheap look for a request
        if job.should_save():                   # asked to, or 600 s have passed
            with job.checkpoint(step) as folder:
                save(state, folder)
        if job.should_exit():                   # the host goes away and the state is safe
            raise SystemExit(reprieve_job.REQUEUE)
    job.done(10_000)

Without Reprieve's environment the same script runs anywhere: checkpoints go to ``./checkpoints``
and the next start resumes from the newest whole one.

This package runs in the job's own interpreter: standard library only, Python 3.9 or later. It
touches SIGUSR1 and no other signal (SIGTERM belongs to the frameworks and launchers). The contract
behind it, which any language can speak without this package, is docs/job-contract.md.
"""

from reprieve_job.checkpoints import CheckpointError
from reprieve_job.contract import REQUEUE, ContractError, Request
from reprieve_job.job import Job, connect

__all__ = ["REQUEUE", "CheckpointError", "ContractError", "Job", "Request", "connect"]
