"""
An agent that kills itself, without a word, the first time it comes to each stage, and starts again.

Run as ``python crashing_agent.py before|after RECORD``: right before it acts on the state that
it has just written, or right after it began to. RECORD keeps the stages it died in.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from reprieve_agent.__main__ import main
from reprieve_agent.runtime import Agent
from reprieve_agent.state import State
from reprieve_agent.statefile import StateFile

WHEN, RECORD = sys.argv[1], Path(sys.argv[2])


def die_once(state: State) -> None:
    tenure = state.tenure
    if tenure is None:
        return
    asked = "+request" if tenure.request and tenure.stage.value == "RUNNING" else ""
    name = f"{tenure.stage.value}{asked}"
    died = RECORD.read_text().split() if RECORD.exists() else []
    if name not in died:
        RECORD.write_text("\n".join([*died, name]))
        os.kill(os.getpid(), signal.SIGKILL)


def dying_after(target: Any, name: str, state_of: Any) -> None:
    original = getattr(target, name)

    def wrapped(*args: Any) -> None:
        original(*args)
        die_once(state_of(*args))

    setattr(target, name, wrapped)


def pass_on(child: int, signum: int, _frame: object) -> None:
    os.kill(child, signum)


def live() -> int:
    """Run the agent, again and again while it kills itself; forked, for imports take longest."""
    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit(main())
        signal.signal(signal.SIGTERM, partial(pass_on, child))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            return code


if WHEN == "before":
    dying_after(StateFile, "save", lambda _file, state: state)
else:
    dying_after(Agent, "_apply", lambda _agent, state, _actions: state)
sys.exit(live())
