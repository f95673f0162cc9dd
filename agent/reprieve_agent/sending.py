"""Which of the steps on disk is sent to the bucket next."""

from __future__ import annotations

from dataclasses import replace

from reprieve_agent import actions as do
from reprieve_agent.rules import Move, with_tenure
from reprieve_agent.state import Stage, State, Tenure


def upload_newest(state: State, tenure: Tenure) -> Move:
    """
    Send the newest step not yet sent.

    One at a time while there is time; under a request the newest never waits for an
    older one, which goes on beside it until the newer is committed. Where no new save would
    arrive in time, what is on its way has the link for itself.
    """
    step = tenure.newest
    if step is None or step in tenure.uploading:
        return with_tenure(state, tenure), ()
    urgent = tenure.stage is Stage.CLOSING or tenure.request is not None
    unasked = tenure.request is not None and tenure.request.unasked
    if tenure.uploading and (unasked or not urgent):
        return with_tenure(state, tenure), ()
    sending = replace(tenure, uploading=(*tenure.uploading, step))
    return with_tenure(state, sending), (do.Upload(tenure.key, step, tenure.estimates),)
