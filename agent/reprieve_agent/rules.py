"""What all parts of the machine share: the host they decide for, and what a move is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reprieve_agent.actions import Action
from reprieve_agent.periods import Periods
from reprieve_agent.state import Request, State, Tenure

Move = tuple[State, tuple[Action, ...]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a decision is made by, besides the state."""

    instance_id: str
    periods: Periods


def with_tenure(state: State, tenure: Tenure) -> State:
    return replace(state, tenure=tenure)


def with_request(state: State, tenure: Tenure, request: Request | None) -> State:
    return with_tenure(state, replace(tenure, request=request))


def reached(tenure: Tenure, step: int | None) -> Tenure:
    """Note the highest step known: a save can be news of more than the last progress."""
    if step is None or (tenure.step is not None and tenure.step >= step):
        return tenure
    return replace(tenure, step=step)
