"""How an attempt ended."""

from __future__ import annotations

from reprieve.domain.lease import Cause, Outcome
from reprieve.protocol import ReportKind
from reprieve_agent.state import Ending, Tenure

REQUEUE_EXIT_CODE = 75

REPORTS = {
    Outcome.FINISHED: ReportKind.FINISHED,
    Outcome.FAILED: ReportKind.FAILED,
    Outcome.INTERRUPTED: ReportKind.INTERRUPTED,
}


def ending(tenure: Tenure) -> Ending:
    """
    Judge an attempt whose process is gone.

    ``done.json`` is proof. While a request is out the exit code proves nothing: several
    frameworks exit 0 after an interruption. Without one, 0 is finished, 75 asks to be
    queued again, and the rest is the job's own failure.
    """
    request = tenure.request
    if tenure.done_step is not None:
        return Ending(Outcome.FINISHED, Cause.DONE)
    if request and request.exits:
        return Ending(Outcome.INTERRUPTED, request.cause, request.reason)
    if tenure.stopped:
        return Ending(Outcome.INTERRUPTED, Cause.STOP, "stopped by the host's shutdown")
    if tenure.exit_code == REQUEUE_EXIT_CODE:
        return Ending(Outcome.INTERRUPTED, Cause.REQUEUE, "the job asked to be queued again")
    if tenure.exit_code == 0 and request and request.open:
        detail = "exit 0 without done.json while a checkpoint was asked for"
        return Ending(Outcome.INTERRUPTED, Cause.REQUEUE, detail)
    if tenure.exit_code == 0:
        return Ending(Outcome.FINISHED, Cause.DONE)
    return Ending(Outcome.FAILED, Cause.CRASH, tenure.exit_detail)
