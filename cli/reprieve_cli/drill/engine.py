"""
Play a scenario: submit its jobs, do its steps in their order, and look whether what must hold does.

Steps follow each other: each waits for its time or its condition, then acts. A step whose
condition never comes ends the drill, and the expectations are looked at all the same, since they
tell more than the step does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, assert_never

from reprieve.domain.errors import ReprieveError
from reprieve_cli import submission
from reprieve_cli.drill.actions import MARKETS, Actions, StepError
from reprieve_cli.drill.counting import count_calls
from reprieve_cli.drill.judge import Finding, Judge, is_event
from reprieve_cli.drill.reference import References
from reprieve_cli.drill.scenario import (
    CallSeen,
    CapacityOffer,
    HostsAlive,
    JobState,
    Passed,
    Scenario,
    WaitAction,
    When,
    WorldSeen,
)
from reprieve_cli.drill.stage import JobSeen, Stage, View
from reprieve_cli.drill.timeline import Line, of_job, of_world
from reprieve_cli.local.control import ControlError

_OPTIONAL = ("price", "estimate", "reservation", "reservation_type")
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0  # a look at everything is many calls


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what may never come, in notices."""

    step: float = 20.0
    """For a step's condition."""
    end: float = 20.0
    """After the last step, for the jobs to get where they are expected."""
    rest: float = 8.0
    """After that, for everything else that is expected: queues run dry, idle hosts leave."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a drill showed."""

    scenario: Scenario
    findings: tuple[Finding, ...]
    timeline: tuple[Line, ...]
    seconds: float
    stuck: str = ""
    """The step that could not be done, and why."""
    ids: dict[str, str] = field(default_factory=dict)
    """The jobs' ids, by their names."""

    @property
    def holds(self) -> bool:
        """Whether everything that was expected holds."""
        return not self.stuck and all(finding.holds for finding in self.findings)


@dataclass(slots=True)
class Drill:
    """
    One scenario on one stage.

    *say* hears each line as it is played, *waiting* in a few words what is waited for.
    """

    scenario: Scenario
    stage: Stage
    patience: Patience = field(default_factory=Patience)
    references: References = field(default_factory=References)
    say: Callable[[Line], None] = lambda _line: None
    waiting: Callable[[str], None] = lambda _what: None
    ids: dict[str, str] = field(default_factory=dict, init=False)
    warnings: dict[str, list[str]] = field(default_factory=dict, init=False)
    _view: View = field(init=False)
    _notes: list[Line] = field(default_factory=list, init=False)
    _began: float = field(default=0.0, init=False)

    def run(self) -> Outcome:
        """Play it and return what it showed; raise ``BadInputError`` for a job nobody could run."""
        if self.scenario.pools is not None:
            self.stage.world.put_pools(market(self.scenario.pools))
        self._view = View.of(self.stage)
        self._began = time.monotonic()
        actions = Actions(
            self.scenario, self.stage, self._view, self.ids, self._wait_for, self._submit
        )
        if self.scenario.world is not None:
            actions.change_world(self.scenario.world.settings)
        for plan in self.scenario.jobs:
            if plan.name not in self.scenario.submitted_later:
                self._submit(plan.name)
        stuck = self._steps(actions)
        judge = Judge(self.scenario, self._view, self.ids, self.warnings, self.references)
        if not stuck:
            self._await_jobs()
        findings = self._judge(judge, patient=not stuck)
        return Outcome(
            scenario=self.scenario,
            findings=tuple(findings),
            timeline=tuple(self._timeline()),
            seconds=time.monotonic() - self._began,
            stuck=stuck,
            ids=dict(self.ids),
        )

    # ------------------------------------------------------------------ play
    def _submit(self, name: str) -> None:
        plan = next(job for job in self.scenario.jobs if job.name == name)
        request = submission.Request(
            command=plan.command,
            pool=plan.pool,
            name=plan.name,
            code=plan.code,
            setup=plan.setup,
            env=tuple(f"{name}={value}" for name, value in plan.env),
            save_every=plan.save_every,
            max_restarts=plan.max_restarts,
        )

        warned = self.warnings.setdefault(plan.name, [])
        job = submission.submit(request, lambda: self.stage.cloud, warn=warned.append)
        self.ids[plan.name] = job.id
        self._note(f"{plan.name} submitted as {job.id}")
        for warning in warned:
            self._note(f"{plan.name}: warned that {warning}")

    def _steps(self, actions: Actions) -> str:
        """Do them; return what stopped us, or nothing."""
        for place, step in enumerate(self.scenario.steps, start=1):
            try:
                if step.at is not None:
                    self._sleep_until(self.scenario.real(step.at))
                if step.when is not None:
                    self._until(step.when, seconds=self._notices(self.patience.step))
                self._note(f"step {place}: {step.action}")
                actions(step.action)
            except (StepError, ControlError, ReprieveError) as error:
                stuck = f"step {place} ({step.action}): {error}"
                self._note(f"stuck at {stuck}")
                return stuck
        return ""

    def _wait_for(self, action: WaitAction) -> None:
        within = action.within
        default = self._notices(self.patience.step)
        self._until(action.until, seconds=default if within is None else self.scenario.real(within))

    def _until(self, when: When, *, seconds: float) -> None:
        self.waiting(f"waiting for {when}")
        if isinstance(when, Passed):
            time.sleep(self.scenario.real(when.seconds))
            return
        deadline = time.monotonic() + seconds
        while not self.holds(when):
            if time.monotonic() > deadline:
                raise StepError(f"waited {seconds:.0f} s in vain for {when}")
            time.sleep(_POLL_SECONDS)

    def holds(self, when: When) -> bool:
        """Tell whether it is so now."""
        match when:
            case JobState():
                submitted = when.job in self.ids
                return submitted and _reached(self._view.job(self.ids[when.job]), when)
            case HostsAlive(rule):
                return rule.fits(len(self._view.alive()))
            case CallSeen(call, times, in_flight):
                view = self._view
                calls = view.calls_in_flight() if in_flight else view.calls_of(call.service)
                return count_calls(call, calls) >= times
            case WorldSeen(kind):
                return any(entry["kind"] == kind for entry in self._view.world())
            case Passed(seconds):
                return time.monotonic() - self._began >= self.scenario.real(seconds)
            case _:
                assert_never(when)

    def _sleep_until(self, seconds: float) -> None:
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))

    def _notices(self, count: float) -> float:
        return count * self.stage.notice_seconds

    # ------------------------------------------------------------------ the end
    def _await_jobs(self) -> None:
        """Wait until each job is where it should be, or over, or nobody waits any longer."""
        self.waiting("waiting for the jobs to end")
        deadline = time.monotonic() + self._notices(self.patience.end)
        while time.monotonic() < deadline and not all(map(self._arrived, self.ids)):
            time.sleep(_POLL_SECONDS)

    def _arrived(self, name: str) -> bool:
        job = self._view.job(self.ids[name]).job
        wanted = self.scenario.expect.jobs.get(name)
        rule = wanted.fields.get("status") if wanted else None
        return job.terminal or (rule is not None and rule.fits(job.status))

    def _judge(self, judge: Judge, *, patient: bool) -> list[Finding]:
        """Look until everything holds, or what doesn't has had its time."""
        self.waiting("looking whether everything holds")
        deadline = time.monotonic() + self._notices(self.patience.rest)
        while True:
            findings = judge.findings()
            late = time.monotonic() > deadline
            if late or not patient or all(finding.holds for finding in findings):
                return findings
            time.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))

    def _note(self, text: str) -> None:
        line = Line(datetime.now(UTC), "drill", text)
        self._notes.append(line)
        self.say(line)

    def _timeline(self) -> list[Line]:
        lines = [*self._notes, *of_world(self._view.world())]
        for name, job_id in self.ids.items():
            lines += of_job(name, self._view.job(job_id))
        return sorted(lines, key=lambda line: line.at)


def market(offers: tuple[CapacityOffer, ...]) -> dict[str, Any]:
    """Return the world's market that sells *offers* and nothing else."""

    def of(name: str) -> list[dict[str, Any]]:
        return [
            {"type": offer.type, "zone": offer.zone, "capacity": offer.capacity}
            | {key: value for key in _OPTIONAL if (value := getattr(offer, key)) is not None}
            for offer in offers
            if offer.market == name
        ]

    return {key: of(name) for name, key in MARKETS.items()}


def _reached(seen: JobSeen, state: JobState) -> bool:
    job, lease = seen.job, seen.lease
    committed = job.checkpoint.step if job.checkpoint else -1
    if lease and lease.committed_step is not None:
        committed = max(committed, lease.committed_step)
    step = lease.step if lease and lease.step is not None else -1
    return (
        (not state.status or job.status in state.status)
        and (state.attempt is None or job.attempt >= state.attempt)
        and (state.step is None or step >= state.step)
        and (state.committed is None or committed >= state.committed)
        and (state.event is None or any(is_event(event, state.event) for event in seen.events))
    )
