"""The agent's state on disk, written before every action that follows from it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from reprieve.adapters.codec import from_item, to_item
from reprieve.domain.errors import MalformedError
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Places
from reprieve_agent.state import Stage, State

log = logging.getLogger(__name__)

VERSION = 1


class StateFile:
    """
    ``job.json``: the state, and beside it in plain words what ``reprieve-ctl`` needs.

    With the agent down, that command asks the job itself, so it must find the run
    directory and the attempt without knowing our types.
    """

    def __init__(self, path: Path, *, run_dir: Path) -> None:
        self._path = path
        self._run_dir = run_dir

    def save(self, state: State) -> None:
        """Write it."""
        content: dict[str, Any] = {"v": VERSION, "state": to_item(state), "job": self._job(state)}
        write_json(self._path, content, mode=0o600)

    def load(self) -> State | None:
        """Return what was saved; what can't be read counts as nothing, for HOLDS knows the rest."""
        content = read_json(self._path)
        if content is None or content.get("v") != VERSION:
            return None
        try:
            return from_item(State, content["state"])
        except (KeyError, TypeError, ValueError, MalformedError):
            log.exception("state file can't be read")
            return None

    def _job(self, state: State) -> dict[str, Any] | None:
        tenure = state.tenure
        if tenure is None or tenure.stage is not Stage.RUNNING or tenure.process is None:
            return None
        places = Places.of(tenure.key, state_dir=self._path.parent, run_dir=self._run_dir)
        return {
            "id": tenure.key.job,
            "attempt": tenure.key.attempt,
            "contract_dir": str(places.contract),
            "checkpoints_dir": str(places.checkpoints),
            "committed_step": tenure.committed_step,
            "request_id": tenure.request.id if tenure.request else None,
        }
