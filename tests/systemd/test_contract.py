"""The contract of supervisors on a machine that boots: its own pytest, its own systemd."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_cli.assembly import ROOT
from tests.rehearsal.box import Box
from tests.rehearsal.debian import NotHereError, tree

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(900)]

SUITE = "trixie"
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
OURS = ("agent/reprieve_agent", "layers/core/python/reprieve")
TESTS = ("builders", *(f"agent/{name}" for name in ("kept", "waiting", "scripted_docker")))
CONTRACT = "tests/agent/test_supervisor_contract.py"
PATHS = ("/srv/site", "/srv/repo", *(f"/srv/repo/{Path(name).parent}" for name in OURS))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    try:
        box = Box(tree(SUITE), tmp_path / "disk")
        for name in PYTEST:
            spec = importlib.util.find_spec(name)
            assert spec
            assert spec.origin
            origin = Path(spec.origin)
            put(box, origin.parent if origin.name == "__init__.py" else origin, "site")
        for name in OURS:
            put(box, ROOT / name, f"repo/{Path(name).parent}")
        for name in (*(f"tests/{test}.py" for test in TESTS), CONTRACT):
            put(box, ROOT / name, f"repo/{Path(name).parent}")
        with box:
            yield box
    except NotHereError as error:
        pytest.skip(str(error))


def put(box: Box, source: Path, folder: str) -> None:
    """Copy a package or a module below /srv."""
    target = box.path(f"/srv/{folder}/{source.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def test_jobs_in_transient_units_keep_the_contract_of_supervisors(box: Box) -> None:
    done = box.run(
        *("python3", "-m", "pytest", "--noconftest", "-c", "/dev/null", "--rootdir=/srv/repo"),
        *("-p", "no:cacheprovider", "--import-mode=importlib", "-q", f"/srv/repo/{CONTRACT}"),
        env={"PYTHONPATH": ":".join(PATHS)},
        seconds=800,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    # No unit outlives what it was for, however that ended.
    left = box.run("systemctl", "list-units", "--all", "--no-legend", "reprieve-job*").stdout
    assert left == ""
