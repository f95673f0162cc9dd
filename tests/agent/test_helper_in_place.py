"""The helper is where the job's own Python finds it, with nothing of ours beside it."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from reprieve.domain.lease import LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve_agent import contract
from reprieve_agent.places import Places

KEY = LeaseKey("job-1", 1, "token-1")

WHERE = """
import sys, importlib.util
for name in ("reprieve_job", "reprieve_agent", "boto3"):
    found = importlib.util.find_spec(name)
    print(name, "-" if found is None else found.origin)
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment as a job brings it: a Python of its own, and nothing of ours in it."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places.of(KEY, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    contract.lay_helper(places)
    return places


def promised(places: Places, spec: JobSpec) -> dict[str, str]:
    return contract.environment(
        KEY, places, spec=spec, base_step=None, grace=timedelta(seconds=105)
    )


def run(python: Path, script: str, env: Mapping[str, str], cwd: Path) -> str:
    done = subprocess.run(
        [python, "-c", script], env=dict(env), cwd=cwd, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_a_foreign_environment_finds_the_helper_and_nothing_else_of_ours(
    places: Places, foreign: Path, tmp_path: Path
) -> None:
    env = promised(places, JobSpec(("x",)))

    found = dict(line.split() for line in run(foreign, WHERE, env, tmp_path).splitlines())

    assert found == {
        "reprieve_job": str(places.python / "reprieve_job" / "__init__.py"),
        "reprieve_agent": "-",
        "boto3": "-",
    }


def test_a_job_there_saves_and_is_done(places: Places, foreign: Path, tmp_path: Path) -> None:
    script = """
import reprieve_job
job = reprieve_job.connect(total_steps=1)
job.step(1)
with job.checkpoint(1) as folder:
    (folder / "state").write_text("1")
job.done(1)
"""
    run(foreign, script, promised(places, JobSpec(("x",))), tmp_path)

    assert (places.checkpoints / "step-1" / "MANIFEST.json").exists()
    assert contract.done_step(places) == 1


def test_the_jobs_own_path_comes_first(places: Places, foreign: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "reprieve_job").mkdir(parents=True)
    (own / "reprieve_job" / "__init__.py").touch()
    env = promised(places, JobSpec(("x",), env={"PYTHONPATH": str(own)}))

    assert f"reprieve_job {own}" in run(foreign, WHERE, env, tmp_path)


def test_the_switch_leaves_the_path_alone(places: Places, foreign: Path, tmp_path: Path) -> None:
    env = promised(places, JobSpec(("x",), helper=False))

    assert "PYTHONPATH" not in env
    assert "reprieve_job -" in run(foreign, WHERE, env, tmp_path)


def test_whoever_the_job_runs_as_can_read_it(places: Places) -> None:
    for path in places.python.rglob("*"):
        needed = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & needed == needed
        assert not path.is_symlink()  # a container sees this folder alone
