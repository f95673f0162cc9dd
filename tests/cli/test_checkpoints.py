"""Checkpoints in people's hands: read to the last byte, fetched whole, collected knowingly."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from reprieve.domain.checkpoint import FileEntry, Manifest, data_key, manifest_key
from reprieve.domain.job import CheckpointRef
from tests.builders import NOON, a_held_lease, a_job
from tests.cli.conftest import Cli

WEIGHTS = {"model.bin": b"weights" * 30, "deep/optimizer.bin": b"moments" * 50}


def commit(cli: Cli, step: int) -> str:
    """Put a checkpoint into the bucket and return its manifest's key."""
    files = []
    for path, body in WEIGHTS.items():
        key, content = data_key("job-1", 1, f"s{step}", path), f"{step}".encode() + body
        cli.objects.bodies[key] = content
        files.append(FileEntry(path, key, len(content), hashlib.sha256(content).hexdigest()))
    manifest = Manifest("job-1", 1, "t1", step, None, tuple(files), NOON)
    cli.objects.bodies[manifest.key] = manifest.to_json()
    return manifest.key


@pytest.fixture
def story(cli: Cli) -> Cli:
    """Return a job that runs and has saved five times."""
    keys = [commit(cli, step) for step in (10, 20, 30, 40, 50)]
    job = a_job(checkpoint=CheckpointRef(50, keys[-1]))
    lease = a_held_lease(job, sealed_attempt=1, committed_manifest=keys[-1])
    cli.memory.job_rows[job.id] = job
    cli.memory.lease_rows[lease.key] = lease
    return cli


def damage(cli: Cli, step: int) -> None:
    key = data_key("job-1", 1, f"s{step}", "model.bin")
    cli.objects.bodies[key] = cli.objects.bodies[key][:-1] + b"?"


def test_verify_reads_every_byte_where_ls_compares_sizes(story: Cli) -> None:
    assert story("checkpoints", "verify", "job-1") == 0
    assert story.last_line == "5 checkpoints whole"

    damage(story, 30)

    assert story("checkpoints", "ls", "job-1") == 0
    assert story("checkpoints", "verify", "job-1") == 1
    assert story.last_line == "4 checkpoints whole, 1 damaged"
    assert "try 1, step 30: model.bin has another SHA-256 than its manifest says" in story.out
    assert story("checkpoints", "verify", "job-1", "--step", "40") == 0
    assert story("checkpoints", "verify", "job-1", "--step", "30", "--json") == 1
    assert story.document["checkpoints"][0]["fault"].startswith("model.bin has another")


def test_verify_of_a_step_that_isnt_there_says_how_to_ask(story: Cli) -> None:
    assert story("checkpoints", "verify", "job-1", "--step", "11") == 2
    assert "no checkpoint of step 11" in story.err


def test_restore_makes_the_folder_in_one_move(story: Cli, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "newest"

    assert story("checkpoints", "restore", "job-1", str(target)) == 0

    assert story.last_line.startswith("step 50 in ")
    found = {str(f.relative_to(target)): f.read_bytes() for f in target.rglob("*") if f.is_file()}
    assert found == {path: b"50" + body for path, body in WEIGHTS.items()}
    assert [path.name for path in target.parent.iterdir()] == ["newest"]


def test_restore_of_a_damaged_one_leaves_nothing(story: Cli, tmp_path: Path) -> None:
    damage(story, 50)

    assert story("checkpoints", "restore", "job-1", str(tmp_path / "new")) == 1
    assert "step 50 isn't whole: model.bin has another SHA-256" in story.err
    assert list(tmp_path.iterdir()) == []
    assert story("checkpoints", "restore", "job-1", str(tmp_path / "new"), "--step", "40") == 0


def test_restore_never_writes_over_what_is_there(story: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    assert story("checkpoints", "restore", "job-1", str(tmp_path)) == 2
    assert "isn't an empty folder" in story.err
    assert story("checkpoints", "restore", "job-1", str(tmp_path / "mine")) == 2


def test_restore_of_a_job_without_checkpoint_says_so(cli: Cli, tmp_path: Path) -> None:
    cli.memory.job_rows["job-1"] = a_job()

    assert cli("checkpoints", "restore", "job-1", str(tmp_path / "new")) == 1
    assert "job-1 has no checkpoint yet" in cli.err


def test_gc_shows_and_deletes_only_if_told_to(story: Cli) -> None:
    before = dict(story.objects.bodies)

    assert story("checkpoints", "gc", "job-1") == 0
    assert "2 checkpoints" in story.last_line
    assert "kept until the sweep" in story.last_line
    assert story.objects.bodies == before

    story("checkpoints", "gc", "job-1", "--delete", "--json")

    gone = [manifest_key("job-1", 1, step) for step in (10, 20)]
    assert story.document["checkpoints"] == gone
    assert before.keys() - story.objects.bodies.keys() == {
        *gone,
        *(data_key("job-1", 1, f"s{step}", path) for step in (10, 20) for path in WEIGHTS),
    }


def test_gc_touches_nothing_of_a_job_that_no_host_holds(story: Cli) -> None:
    job = a_job(attempt=2, token="t2")
    story.memory.job_rows[job.id] = job

    assert story("checkpoints", "gc", "job-1", "--delete") == 0
    assert story.last_line.startswith("nothing can go")
