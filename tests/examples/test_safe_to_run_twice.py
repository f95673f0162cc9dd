"""Steps after the newest checkpoint run again: what they did outside must not count twice."""

import sqlite3
from pathlib import Path

import pytest

from tests.examples.tiny_agent import TinyAgent

LEDGER_JOB = Path(__file__).parent / "ledger_job.py"
STEPS = 20
SAVED, LOST = 8, 13  # the newest checkpoint, and the step at which the host is gone
BALANCE = sum(step * step for step in range(1, STEPS + 1))


def run_twice(agent: TinyAgent, *options: str) -> tuple[list[int], str]:
    """Lose the first attempt and finish the second; return all steps billed, and its output."""
    ledger = agent.root / "ledger.db"
    argv: list[str | Path] = [LEDGER_JOB, "--ledger", ledger, *options]
    lost = agent.start(*argv, "--die-at", str(LOST))
    lost.communicate(timeout=60)
    assert lost.returncode == -9
    assert max(agent.saved_steps()) == SAVED
    output, errors = agent.successor().start(*argv).communicate(timeout=60)
    assert errors == ""
    with sqlite3.connect(ledger) as bills:
        rows = bills.execute("SELECT step FROM bills ORDER BY step").fetchall()
    return [step for (step,) in rows], output


@pytest.mark.parametrize("keyed", ["--keyed", None], ids=["keyed", "not-keyed"])
def test_a_step_that_runs_twice_is_billed_once_if_its_entry_has_a_name(
    agent: TinyAgent, keyed: str | None
) -> None:
    billed, output = run_twice(agent, *([keyed] if keyed else []))

    # The steps after the checkpoint did run twice, and the job's own state took no harm.
    assert output.splitlines()[0] == f"billed {SAVED + 1}"
    assert output.splitlines()[-1] == f"balance {BALANCE}"
    again = [] if keyed else list(range(SAVED + 1, LOST + 1))
    assert billed == sorted([*range(1, STEPS + 1), *again])
