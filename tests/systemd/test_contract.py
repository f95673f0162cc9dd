"""The contract of supervisors on a machine that boots: its own pytest, its own systemd."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_agent.systemd_supervisor import PROPERTIES
from reprieve_cli.assembly import ROOT
from tests.rehearsal import metadata_stub
from tests.rehearsal.box import Box, eventually
from tests.rehearsal.debian import NotHereError, tree

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(900)]

SUITE = "trixie"
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
OURS = ("agent/reprieve_agent", "layers/core/python/reprieve")
TESTS = ("builders", *(f"agent/{name}" for name in ("kept", "waiting", "scripted_docker")))
CONTRACT = "tests/agent/test_supervisor_contract.py"
PATHS = ("/srv/site", "/srv/repo", *(f"/srv/repo/{Path(name).parent}" for name in OURS))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    try:
        box = Box(tree(SUITE), tmp_path_factory.mktemp("machine") / "disk")
        box.write("/srv/metadata.py", Path(metadata_stub.__file__).read_bytes())
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


ASK_METADATA = (
    "import http.client as h; c = h.HTTPConnection('169.254.169.254', timeout=5); "
    "c.request('PUT', '/latest/api/token'); print(c.getresponse().status)"
)


def test_not_even_root_reaches_the_metadata_service_from_a_jobs_unit(box: Box) -> None:
    box.run("systemd-run", "--quiet", "python3", "/srv/metadata.py")
    ask = ("python3", "-c", ASK_METADATA)
    assert eventually(lambda: box.run(*ask).stdout == "200\n", 30), "the service isn't there"

    streams = {"StandardOutput": "file:/srv/out", "StandardError": "file:/srv/error"}
    properties = [f"--property={k}={v}" for k, v in {**PROPERTIES, **streams}.items()]
    box.run("systemd-run", "--quiet", "--unit=asking", *properties, *ask)

    assert eventually(lambda: box.property("asking", "ExecMainCode") == "1", 30)
    assert "timed out" in box.run("cat", "/srv/error").stdout
    assert box.run("cat", "/srv/out").stdout == ""
