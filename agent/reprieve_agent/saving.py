"""How often a job is asked to save, and whether advice is worth a save: by the formulas."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.economics.hosting import (
    NO_TERMS,
    SaveCost,
    SavePlan,
    Verdict,
    save_plan,
    saves_on_advice,
)
from reprieve.domain.economics.switches import Policy
from reprieve.protocol import POLICY, Scalar
from reprieve_agent.clock import Now
from reprieve_agent.periods import Periods
from reprieve_agent.state import Mark, Request, State, Tenure

TELLING = 0.05  # an interval that changed by less isn't news


def planned(state: State, tenure: Tenure, periods: Periods) -> tuple[Tenure, dict[str, Scalar]]:
    """Return *tenure* with its interval as it is best now, and what to tell if it changed."""
    plan = _plan(state, tenure, periods)
    every = plan.every.total_seconds() if plan.every else None
    was = tenure.save_every
    news = every is None or was is None or abs(every - was) > TELLING * was
    told: dict[str, Scalar] = {POLICY: plan.text, **plan.facts} if news else {}
    return replace(tenure, save_every=every), told


def _plan(state: State, tenure: Tenure, periods: Periods) -> SavePlan:
    assert tenure.lease is not None  # noqa: S101 - a job that runs has read its lease
    terms, spec = state.terms or NO_TERMS, tenure.lease.spec
    return save_plan(
        terms,
        tenure.lease.rate,
        _cost(tenure),
        window_seconds=periods.notice - periods.margin,
        given=spec.save_every,
        asked=spec.periodic_saves,
        due=spec.due is not None and Policy.DEADLINE not in terms.off,
    )


def _cost(tenure: Tenure) -> SaveCost:
    """Return C and E: as the job's own manifests and our uploads tell, else as it answered."""
    told, seen = tenure.estimates, tenure.cost
    return SaveCost(
        told.save_seconds if told.save_seconds is not None else seen.save_seconds,
        told.needed if told.needed is not None else seen.emergency_seconds,
    )


def measured(tenure: Tenure, request: Request) -> Tenure:
    """Note C: how long the save that *request* asked for kept the job from its work."""
    marks = dict(request.marks)
    begun, ended = marks.get(Mark.ACCEPTED), marks.get(Mark.SAVED)
    if begun is None or ended is None or ended <= begun:
        return tenure
    return replace(tenure, cost=replace(tenure.cost, save_seconds=ended - begun))


def made_durable(tenure: Tenure, step: int, *, upload_seconds: float, now: Now) -> Tenure:
    """Note when what is durable was saved, and E: how long an asked save takes until it is."""
    request, cost = tenure.request, tenure.cost
    if request and not request.exits and request.ack_step is not None and step >= request.ack_step:
        cost = replace(cost, emergency_seconds=now.boot - request.since)
    return replace(tenure, cost=cost, durable_at=now.boot - upload_seconds)


def on_advice(state: State, tenure: Tenure, *, periods: Periods, now: Now) -> Verdict:
    """Return whether a rebalance recommendation is worth a save, but not one after the other."""
    last = tenure.last_request
    if last is not None and now.boot - last < periods.between_requests:
        ago = now.boot - last
        text = f"no save: it was asked for one {ago:.0f} s ago"
        return Verdict(yes=False, text=text, facts={"saves": False, "asked_s_ago": round(ago, 1)})
    cost = _cost(tenure)
    if tenure.durable_at is None and cost.save_seconds is None:
        text = "a save: nothing of this attempt is durable, and what a save costs isn't known"
        return Verdict(yes=True, text=text, facts={"saves": True})
    unsaved = now.boot - max(tenure.since, tenure.durable_at or tenure.since)
    return saves_on_advice(state.terms or NO_TERMS, cost, unsaved_seconds=unsaved)
