"""``reprieve drill`` from a person's side: what it says, what it writes, how it ends."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.app import run
from reprieve_cli.drill import session, venue
from reprieve_cli.drill.engine import Drill
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.stage import Stage
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.control import ControlError
from tests.drill.conftest import IMPATIENT, Theatre

HOLDS = """
name: {name}
clock_scale: 0.01
jobs:
  - {{name: train, command: [python, train.py]}}
steps:
  - job: {{name: train, do: cancel}}
expect: {{jobs: {{train: {{status: {status}}}}}}}
"""


class Reprieve:
    """Calls the command; each scenario is played in a memory of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self.folder = folder
        self.code = -1
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        self.code = run(("drill", *arguments), find_cloud=lambda: pytest.fail("nobody asks"))
        self.out, self.err = self._capsys.readouterr()
        return self.code

    def write(self, name: str, *, status: str = "CANCELLED", text: str = HOLDS) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(text.format(name=name, status=status) if text is HOLDS else text)
        return str(path)


@pytest.fixture
def reprieve(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Reprieve:
    @contextmanager
    def in_memory(_scenario: Scenario, show: Callable[[str], None]) -> Iterator[tuple[Stage, Any]]:
        show("starting")
        with venue.reaching():
            yield Theatre().stage, None

    def impatient(*given: Any, **options: Any) -> Drill:
        return Drill(*given, **(options | {"patience": IMPATIENT}))

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(venue, "of_its_own", in_memory)
    monkeypatch.setattr(session, "Drill", impatient)
    return Reprieve(capsys, tmp_path)


def test_what_holds_ends_with_0_and_the_answer_on_the_last_line(reprieve: Reprieve) -> None:
    assert reprieve(reprieve.write("calm")) == 0
    first, *_, last = reprieve.out.splitlines()
    assert first == "calm (the notice takes 1.2 s, every wait is scaled with it)"
    assert last.startswith("calm holds: 1 of 1 expectations kept, ")
    assert "timeline" not in reprieve.out
    assert reprieve.err == ""


def test_what_doesnt_hold_ends_with_1_and_is_told_with_the_timeline(reprieve: Reprieve) -> None:
    assert reprieve(reprieve.write("storm", status="SUCCEEDED")) == 1
    lines = reprieve.out.splitlines()
    at = lines.index("BROKEN  job train: status")
    assert lines[at + 1 : at + 3] == [
        "          expected  SUCCEEDED",
        "          seen      CANCELLED",
    ]
    assert any("cancel train" in line for line in lines[at:])
    assert lines[-1].startswith("storm is BROKEN: 0 of 1 expectations kept, ")
    assert max(map(len, lines)) <= 80


def test_the_whole_timeline_is_told_on_demand(reprieve: Reprieve) -> None:
    assert reprieve(reprieve.write("calm"), "--verbose") == 0
    assert "timeline, in seconds (1.2 s are one notice):" in reprieve.out


def test_several_are_played_and_one_broken_one_breaks_the_whole(reprieve: Reprieve) -> None:
    files = [reprieve.write("calm"), reprieve.write("storm", status="SUCCEEDED")]
    assert reprieve(*files) == 1
    answers = [line for line in reprieve.out.splitlines() if "expectations kept" in line]
    assert [line.split(":")[0] for line in answers] == ["calm holds", "storm is BROKEN"]
    assert reprieve.out.splitlines()[-1] == "1 of 2 scenarios hold; BROKEN: storm"


def test_scripts_get_one_document(reprieve: Reprieve) -> None:
    file = reprieve.write("storm", status="SUCCEEDED")
    assert reprieve(file, "--json") == 1
    document = json.loads(reprieve.out)
    assert document["holds"] is False
    (scenario,) = document["scenarios"]
    assert list(scenario) == [
        *("name", "file", "holds", "stuck", "clock_scale", "seconds", "jobs"),
        *("expectations", "timeline"),
    ]
    assert (scenario["name"], scenario["file"], scenario["stuck"]) == ("storm", file, None)
    assert scenario["expectations"] == [
        {
            "what": "job train: status",
            "expected": "SUCCEEDED",
            "seen": "CANCELLED",
            "holds": False,
        }
    ]
    assert scenario["timeline"][0]["seconds"] == 0
    assert list(scenario["jobs"]) == ["train"]
    assert "storm" in reprieve.err  # people still see it, on the other stream


def test_a_ci_system_gets_a_case_for_each_expectation(reprieve: Reprieve, tmp_path: Path) -> None:
    files = [reprieve.write("calm"), reprieve.write("storm", status="SUCCEEDED")]
    report = tmp_path / "junit.xml"
    assert reprieve(*files, "--junit", str(report)) == 1
    calm, storm = ET.parse(report).getroot()
    assert (calm.get("tests"), calm.get("failures"), calm.get("errors")) == ("2", "0", "0")
    assert (storm.get("tests"), storm.get("failures"), storm.get("errors")) == ("2", "1", "0")
    (failure,) = storm.iter("failure")
    assert failure.get("message") == "expected SUCCEEDED, seen CANCELLED"
    assert "cancel train" in (storm.findtext("system-out") or "")


def test_a_step_that_cant_be_done_is_an_error_in_the_report(
    reprieve: Reprieve, tmp_path: Path
) -> None:
    text = HOLDS.format(name=r'"stuck\x07"', status="QUEUED").replace(
        "job: {name: train, do: cancel}", "host: {nth: 1, do: kill}"
    )
    report = tmp_path / "junit.xml"
    assert reprieve(reprieve.write("stuck", text=text), "--junit", str(report)) == 1
    assert "STUCK   step 1 (kill host number 1)" in reprieve.out
    (suite,) = ET.parse(report).getroot()
    (error,) = suite.iter("error")
    assert "only 0 were launched so far" in str(error.get("message"))


def test_all_bad_files_are_told_before_anything_is_played(reprieve: Reprieve) -> None:
    files = [
        reprieve.write("one", text="clock_scale: 0\n"),
        reprieve.write("fine"),
        str(reprieve.folder / "none.yaml"),
    ]
    assert reprieve(*files) == 2
    assert reprieve.out == ""
    *problems, last = reprieve.err.splitlines()
    assert [line.rpartition("/")[2].split(":")[0] for line in problems] == [
        *["one.yaml"] * 3,
        "none.yaml",
    ]
    assert last == "error: nothing was played: 4 problems in the files, see docs/drills.md"


def test_bad_files_are_one_document_for_scripts(reprieve: Reprieve) -> None:
    assert reprieve(reprieve.write("one", text="clock_scale: 0\n"), "--json") == 2
    assert json.loads(reprieve.out)["error"]["exit_code"] == 2


def test_a_job_that_nobody_could_run_is_bad_input_with_the_file(reprieve: Reprieve) -> None:
    text = HOLDS.format(name="x", status="QUEUED").replace(
        "command:", "env: {AWS_SECRET: x, 'not a name': y}, command:"
    )
    assert reprieve(reprieve.write("unrunnable", text=text)) == 2
    assert "unrunnable.yaml: " in reprieve.err


@pytest.mark.parametrize("trouble", [embedded.CloudError("no room"), ControlError("it died")])
def test_trouble_with_the_cloud_itself_is_3(
    reprieve: Reprieve, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def fails(_drill: Drill) -> None:
        raise trouble

    monkeypatch.setattr(Drill, "run", fails)
    assert reprieve(reprieve.write("calm")) == 3
    assert reprieve.err == f"error: {trouble}\n"


def test_the_cloud_that_is_up_must_be_up(
    reprieve: Reprieve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert reprieve(reprieve.write("calm"), "--up") == 3
    assert "run 'reprieve local up'" in reprieve.err


def test_the_cloud_that_is_up_keeps_its_stack(reprieve: Reprieve) -> None:
    text = HOLDS.format(name="own", status="QUEUED") + "stack: {pools: {gpu: {}}}\n"
    assert reprieve(reprieve.write("own", text=text), "--up") == 2
    assert "play it without --up" in reprieve.err


def test_only_one_cloud_can_be_kept(reprieve: Reprieve) -> None:
    assert reprieve(reprieve.write("a"), reprieve.write("b"), "--keep") == 2


def test_no_scenario_is_bad_input(reprieve: Reprieve) -> None:
    assert reprieve() == 2


def test_the_form_is_printed_without_a_scenario(reprieve: Reprieve) -> None:
    assert reprieve("--schema") == 0
    assert json.loads(reprieve.out)["title"] == "Reprieve drill scenario"
