"""What holds of every way through the machine, with an agent that may die at any point."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.adapters.codec import from_item, to_item
from reprieve.domain.clock import NoticeClock
from reprieve_agent import actions as do
from reprieve_agent.actions import Action
from reprieve_agent.config import Config, SupervisorKind
from reprieve_agent.events import Event
from reprieve_agent.runtime import Agent, Inbox, Parts
from reprieve_agent.state import Stage, State
from reprieve_agent.statefile import StateFile
from tests.agent.test_machine import ANY_EVENT, MACHINE, STARTS, Play

DEATH = None
TIMELINES = st.lists(
    st.tuples(st.floats(0, 40), st.one_of(ANY_EVENT, ANY_EVENT, ANY_EVENT, st.just(DEATH))),
    max_size=30,
)


@given(STARTS, TIMELINES)
@settings(max_examples=100)
def test_an_agent_that_dies_anywhere_asks_for_one_thing_and_ends_in_one_way(
    begin: Any, timeline: Sequence[tuple[float, Event | None]]
) -> None:
    play: Play = begin()
    asked, endings = _promises(play.done)
    for pause, event in timeline:
        before = play.state.tenure
        play.wait(pause)
        seen = len(play.done)
        if event is DEATH:
            play.state, again = MACHINE.recover(_from_disk(play.state), play.now)
            play.done += again
        else:
            play.tell(event)
        after = play.state.tenure
        if after is None or before is None or after.key != before.key:
            asked, endings = set(), set()
        if after and after.stage is not Stage.CLAIMING:
            more_asked, more_endings = _promises(play.done[seen:])
            asked |= more_asked
            endings |= more_endings
        assert len(asked) <= 1
        assert len(endings) <= 1


def _promises(actions: Sequence[Action]) -> tuple[set[str], set[object]]:
    """Return what a job was told to leave for, and the outcomes that were to be written."""
    asked = {a.request.id for a in actions if isinstance(a, do.Ask) and a.request.exits}
    return asked, {a.ending for a in actions if isinstance(a, do.Release)}


def _from_disk(state: State) -> State:
    return from_item(State, json.loads(json.dumps(to_item(state))))


class Played(Exception):  # noqa: N818 - no error: the play is over
    """Nothing more happens."""


class Script(Inbox):
    """What happens, in this order."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__()
        self._events = list(events)

    def get(self, seconds: float) -> Event:
        del seconds
        if not self._events:
            raise Played
        return self._events.pop(0)


class Witness:
    """In place of the executor: compares, at each action, what was decided with what is on disk."""

    def __init__(self, file: StateFile) -> None:
        self.seen = 0
        self.told: State | None = None
        self._file = file

    def follow(self, state: State) -> None:
        self.told = state

    def attend(self, state: State) -> None:
        assert state is self.told

    def carry_out(self, action: Action) -> None:
        self.seen += 1
        written = self._file.load()
        if written is None:
            # Nothing decided yet but to say hello: a new agent would do the same.
            assert isinstance(action, do.SendReport | do.ReturnTicket)
            return
        assert self.told
        assert _told(written) == _told(self.told)


def _told(state: State) -> State:
    """Leave out the step of a running job, which is news and no decision."""
    return replace(state, tenure=state.tenure and replace(state.tenure, step=None))


class Silent:
    """Reports that nobody sends."""

    def start(self) -> None:
        return

    def end(self) -> None:
        return

    def flush(self, _seconds: float) -> bool:
        return True


@given(STARTS, st.lists(ANY_EVENT, max_size=20))
@settings(max_examples=50, deadline=None)
def test_what_is_decided_is_on_disk_before_it_is_acted_upon(
    begin: Any, events: Sequence[Event]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = _config(Path(folder))
        file = StateFile(config.state_dir / "job.json", run_dir=config.run_dir)
        file.save(begin().state)
        witness: Any = Witness(file)
        reports: Any = Silent()
        agent = Agent(config, "b", MACHINE, Script(events), witness)
        try:
            agent.run(Parts(beating=(), others=(), reports=reports))
        except Played:
            return
        assert witness.told.leaving


def _config(folder: Path) -> Config:
    return Config(
        stack="Reprieve",
        pool="small",
        jobs_table="jobs",
        checkpoints_bucket="bucket",
        work_queue_url="work",
        reports_queue_url="reports",
        aws_region="us-east-1",
        clock=NoticeClock(),
        state_dir=folder,
        run_dir=folder,
        job_user="",
        job_path="/usr/bin:/bin",
        supervisor=SupervisorKind.CHILD,
        boot_id_file=folder / "boot_id",
        shutdown_command=(),
    )
