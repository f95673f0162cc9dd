"""Synthesis is done once for each content of its sources, and half of it is never met."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reprieve_cli import assembly
from reprieve_cli.errors import AnswerIsNoError, BadInputError

APP = """
import json, os, pathlib, sys
with open("synthesised", "a") as log:
    log.write(os.environ["CDK_CONTEXT_JSON"] + "\\n")
out = pathlib.Path(os.environ["CDK_OUTDIR"])
out.mkdir(parents=True)
(out / "half").write_text("")
{ending}
(out / "manifest.json").write_text("{{}}")
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a checkout whose app ends in a given way; sources are what really counts."""
    monkeypatch.setattr(assembly, "ROOT", tmp_path)
    monkeypatch.setattr(assembly, "CACHE", tmp_path / ".reprieve")
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"stack": "S", "reprieve": {}}}))
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "stack.py").write_text("")

    def make(ending: str) -> Path:
        (tmp_path / "app.py").write_text(APP.format(ending=ending))
        return tmp_path

    return make


def synthesised(checkout: Path) -> list[dict[str, object]]:
    lines = (checkout / "synthesised").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_same_sources_are_synthesised_once(checkout: Callable[[str], Path]) -> None:
    root = checkout("")

    first = assembly.synthesise({"reprieve": {"notice_seconds": 6}})
    again = assembly.synthesise({"reprieve": {"notice_seconds": 6}})

    assert first == again
    assert (first / "manifest.json").is_file()
    assert synthesised(root) == [{"stack": "S", "reprieve": {"notice_seconds": 6}}]


def test_another_source_or_setting_is_synthesised_anew(checkout: Callable[[str], Path]) -> None:
    root = checkout("")
    folders = {assembly.synthesise({})}

    (root / "infra" / "stack.py").write_text("# changed")
    folders.add(assembly.synthesise({}))
    (root / "infra" / "__pycache__").mkdir()
    (root / "infra" / "__pycache__" / "stack.pyc").write_text("")
    folders.add(assembly.synthesise({}))
    folders.add(assembly.synthesise({"stack": "T"}))

    assert len(folders) == 3


def test_old_assemblies_are_forgotten(
    checkout: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout("")
    monkeypatch.setattr(assembly, "KEPT", 2)
    folders = [assembly.synthesise({"stack": name}) for name in "ABC"]

    assert [folder.is_dir() for folder in folders] == [False, True, True]


@pytest.mark.parametrize(
    ("ending", "error", "said"),
    [
        ("sys.stderr.write('reprieve: pools.x: wrong\\n'); sys.exit(2)", BadInputError, "pools.x"),
        ("sys.exit(1)", AnswerIsNoError, "no output"),
        ("sys.exit('node: ENOSPC: no space left on device, write')", OSError, "No space left"),
    ],
)
def test_an_app_that_refuses_says_why_and_leaves_no_half_assembly(
    checkout: Callable[[str], Path], ending: str, error: type[Exception], said: str
) -> None:
    root = checkout(ending)

    with pytest.raises(error, match=said):
        assembly.synthesise({})

    assert list((root / ".reprieve").iterdir()) == []


def test_one_that_is_called_off_ends_at_once_and_leaves_no_half_assembly(
    checkout: Callable[[str], Path],
) -> None:
    root = checkout("import time; time.sleep(600)")
    called_off = threading.Event()
    called_off.set()

    with pytest.raises(AnswerIsNoError, match="called off"):
        assembly.synthesise({}, called_off=called_off)

    assert list((root / ".reprieve").iterdir()) == []


def test_two_at_once_synthesise_once(checkout: Callable[[str], Path]) -> None:
    root = checkout("import time; time.sleep(0.5)")

    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(assembly.synthesise, [{}, {}]))

    assert len(folders) == len(synthesised(root)) == 1


def test_outside_a_checkout_there_is_nothing_to_synthesise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "ROOT", tmp_path)

    with pytest.raises(BadInputError, match="needs a checkout"):
        assembly.synthesise({})
