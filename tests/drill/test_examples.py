"""The drills of docs/drills.md hold as they stand there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reprieve_cli.drill.document import load
from tests.cli.test_demo import a_machine
from tests.cli.test_ending import REPRIEVE
from tests.drill.test_schema import wrong

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = sorted((DOCS / "drills").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_read_and_is_told_in_the_page(path: Path) -> None:
    assert load(path).description
    assert wrong(path.read_text()) == []
    page = (DOCS / "drills.md").read_text()
    assert f"drills/{path.name}" in page
    shown = [line for line in path.read_text().splitlines() if not line.startswith(("#", "  EC2"))]
    steps = shown[shown.index("steps:") : shown.index("expect:")]
    assert all(line in page for line in steps), "the page shows other steps"


@pytest.mark.e2e
@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_holds(path: Path) -> None:
    with a_machine() as machine:
        ended = subprocess.run(
            [*REPRIEVE, "drill", str(path)],
            capture_output=True,
            text=True,
            env=machine.environment,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert machine.left() == ([], [])
