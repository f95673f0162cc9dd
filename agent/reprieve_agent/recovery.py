"""What an agent of the same boot does again after a crash."""

from __future__ import annotations

from typing import assert_never

from reprieve_agent import actions as do
from reprieve_agent import closing, starting
from reprieve_agent.actions import Action
from reprieve_agent.state import Stage, Tenure


def again(tenure: Tenure) -> tuple[Action, ...]:
    match tenure.stage:
        case Stage.CLAIMING:
            return (do.TryClaim(tenure.key),)
        case Stage.CLAIMED:
            return ()  # following the lease reads its row
        case Stage.PREPARING:
            return (starting.prepare(tenure),)
        case Stage.SEALING:
            return (do.WriteSeal(tenure.key, tenure.base),)
        case Stage.STARTING:
            return (do.RenewNow(tenure.key),)
        case Stage.RUNNING:
            return _reattach(tenure)
        case Stage.CLOSING:
            return (*_attach(tenure), do.Sweep(tenure.key, tenure.process))
        case Stage.RELEASING:
            return (closing.release(tenure),)
        case Stage.EVICTING:
            return (do.Evict(tenure.key, tenure.process),)
        case _:
            assert_never(tenure.stage)


def _reattach(tenure: Tenure) -> tuple[Action, ...]:
    request = tenure.request
    again = (do.Ask(tenure.key, request, tenure.process),) if request and request.open else ()
    doomed = tenure.ending is not None or (request is not None and request.killed)
    kill = (do.Kill(tenure.key, tenure.process),) if doomed else ()
    return (*_attach(tenure), *again, *kill)


def _attach(tenure: Tenure) -> tuple[Action, ...]:
    if tenure.process is None or tenure.lease is None:
        return ()
    return (
        do.Attach(tenure.key, tenure.lease, tenure.base, tenure.committed_manifest, tenure.process),
    )
