"""Play scenarios one after the other while a person watches."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_cli import phrases
from reprieve_cli.drill import report, venue
from reprieve_cli.drill.engine import Drill, Outcome
from reprieve_cli.drill.reference import References
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.timeline import Line
from reprieve_cli.errors import BadInputError
from reprieve_cli.local.cloud import Cloud
from reprieve_cli.signals import terminated_like_interrupted
from reprieve_cli.terminal import Terminal

INDENT = 18  # of what continues a line: the width of a time, who tells it, and their gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    up: bool = False
    verbose: bool = False
    keep: bool = False


def play(scenarios: Sequence[Scenario], options: Options, terminal: Terminal) -> list[Outcome]:
    """Play them; whatever ends it, nothing of our own clouds is left."""
    references = References()
    outcomes = []
    with terminated_like_interrupted():
        for scenario in scenarios:
            outcomes.append(_play(scenario, options, terminal, references))
            if len(scenarios) > 1:  # of one alone, it is the answer of the whole
                terminal.line(report.answer(outcomes[-1]))
                terminal.line()
    return outcomes


def _play(
    scenario: Scenario, options: Options, terminal: Terminal, references: References
) -> Outcome:
    terminal.line(_title(scenario))
    with contextlib.ExitStack() as stack:
        show = stack.enter_context(terminal.working("starting"))
        if options.up:
            stage, cloud = stack.enter_context(venue.that_is_up(scenario))
            scenario = venue.on_clock_of(cloud, scenario)
        else:
            stage, cloud = stack.enter_context(venue.of_its_own(scenario, show))
        drill = Drill(
            scenario,
            stage,
            references=references,
            say=_Teller(terminal),
            waiting=lambda what: show(f"{scenario.name}: {what}"),
        )
        try:
            outcome = drill.run()
        except BadInputError as error:
            raise BadInputError(f"{scenario.path}: {error}") from error
        for text in report.body(outcome, everything=options.verbose):
            terminal.line(text, indent=INDENT)
        if options.keep:
            _keep(cloud, drill, terminal, show)
    return outcome


def _title(scenario: Scenario) -> str:
    notice = f"the notice takes {scenario.notice_seconds:g} s"
    return f"{scenario.name} ({notice}, every wait is scaled with it)"


@dataclass(slots=True)
class _Teller:
    """Says the drill's own lines as they come."""

    terminal: Terminal
    start: datetime | None = field(default=None, init=False)

    def __call__(self, line: Line) -> None:
        self.start = self.start or line.at
        self.terminal.line(report.of_line(line, start=self.start), indent=INDENT)


def _keep(cloud: Cloud, drill: Drill, terminal: Terminal, show: Callable[[str], None]) -> None:
    """Leave the cloud up until Ctrl-C; that ends the looking around, not the drill."""
    terminal.line("the cloud stays up until Ctrl-C; in another shell:")
    for name, value in sorted(cloud.env.items()):
        terminal.line(f"  export {name}={value}")
    for job_id in drill.ids.values():
        terminal.line(f"  reprieve why {job_id}")
    show(f"{phrases.count(len(drill.ids), 'job')} to look at")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
