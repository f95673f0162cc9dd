"""The helper's decisions, one at a time, inside this process."""

import ast
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

import reprieve_job
from reprieve_job import REQUEUE, CheckpointError, ContractError, Job, contract
from reprieve_job.checkpoints import CheckpointStore
from reprieve_job.early import Digests

PACKAGE = Path(reprieve_job.__file__).parent


class Clock:
    """The monotonic clock of the helper, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Host:
    """The other side of the run directory."""

    def __init__(self, root: Path) -> None:
        self.run_dir = root / "run"
        self.checkpoints = root / "checkpoints"
        self.run_dir.mkdir()

    def request(self, kind: str = "checkpoint_exit", **fields: Any) -> None:
        content = {"v": 1, "id": "r-1", "kind": kind, "reason": "test"} | fields
        (self.run_dir / "request.json").write_text(json.dumps(content))

    def read(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run_dir / name).read_text())
        return content

    def ack(self) -> tuple[str, str, int | None]:
        ack = self.read("ack.0.json")
        return ack["request_id"], ack["state"], ack["step"]


@pytest.fixture(autouse=True)
def wakeup_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [*os.environ]:
        if name.startswith("REPRIEVE_") or name in {"RANK", "WORLD_SIZE"}:
            monkeypatch.delenv(name)
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # as a job starts
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def clock(mocker: MockerFixture) -> Clock:
    clock = Clock()
    mocker.patch("reprieve_job.job.monotonic", clock)
    return clock


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setenv("REPRIEVE_CONTRACT", "1")
    monkeypatch.setenv("REPRIEVE_ATTEMPT", "3")
    monkeypatch.setenv("REPRIEVE_RUN_DIR", str(host.run_dir))
    monkeypatch.setenv("REPRIEVE_CKPT_DIR", str(host.checkpoints))
    return host


def save(job: Job, step: int, content: str = "state") -> None:
    with job.checkpoint(step) as folder:
        (folder / "state").write_text(content)


def saved(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_idle_step_reads_the_clock_and_no_file(
    host: Host, clock: Clock, mocker: MockerFixture
) -> None:
    job = reprieve_job.connect()
    look = mocker.spy(contract, "read_request")
    for step in range(1, 1001):
        assert job.step(step) is None
    assert look.call_count == 1

    clock.now += 0.25
    job.step(1001)
    assert look.call_count == 2


def test_the_signal_makes_the_next_step_look_at_once(host: Host, clock: Clock) -> None:
    job = reprieve_job.connect()
    job.step(1)
    host.request()
    assert job.step(2) is None

    signal.raise_signal(signal.SIGUSR1)
    request = job.step(3)

    assert request is not None
    assert (request.id, request.must_exit, request.reason) == ("r-1", True, "test")


def test_no_other_signal_is_touched(host: Host) -> None:
    others = {s for s in signal.valid_signals() if s is not signal.SIGUSR1}
    before = {s: signal.getsignal(s) for s in others}
    reprieve_job.connect()
    assert {s: signal.getsignal(s) for s in others} == before
    assert callable(signal.getsignal(signal.SIGUSR1))


def test_outside_the_main_thread_the_job_is_heard_by_looking_only(host: Host, clock: Clock) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    jobs: list[Job] = []
    thread = threading.Thread(target=lambda: jobs.append(reprieve_job.connect()))
    thread.start()
    thread.join()
    host.request()

    assert signal.getsignal(signal.SIGUSR1) is before
    assert host.read("ready.0.json")["hook"] == "poll"
    assert jobs[0].step(1) is not None


def test_progress_is_told_every_second_at_most(host: Host, clock: Clock) -> None:
    job = reprieve_job.connect(total_steps=50)
    job.step(1)
    first = host.read("progress.json")
    assert (first["v"], first["step"], first["total"]) == (1, 1, 50)
    assert abs(first["at_unix"] - time.time()) < 60

    clock.now += 0.9
    job.step(2)
    assert host.read("progress.json") == first
    clock.now += 0.1
    clock.now += 0.25
    job.step(3)
    assert host.read("progress.json")["step"] == 3


def test_rank_one_tells_neither_progress_nor_completion(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    job = reprieve_job.connect()
    job.step(1)
    job.done(1)

    assert saved(host.run_dir) == ["ready.1.json"]
    with pytest.raises(CheckpointError, match="rank 1 must not write"), job.checkpoint(1):
        pass


def test_a_rank_above_0_leaves_when_its_save_was_answered_for_all(
    host: Host, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    job = reprieve_job.connect(every=60)
    host.request()
    job.step(1)
    assert (job.should_save(), job.should_exit()) == (True, False)

    job.answered()

    assert (job.should_save(), job.should_exit()) == (False, True)
    assert list(host.run_dir.glob("ack.*")) == []
    clock.now += 60
    assert job.should_save()
    job.answered()
    assert not job.should_save()


def test_rank_0_answers_by_saving_only(host: Host) -> None:
    job = reprieve_job.connect()
    host.request()
    job.step(1)

    job.answered()

    assert (job.should_save(), job.should_exit()) == (True, False)


def test_reprieves_own_rank_comes_before_the_launchers(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("REPRIEVE_RANK", "2")
    assert reprieve_job.connect().rank == 2


def test_a_save_is_due_when_the_period_has_passed(host: Host, clock: Clock) -> None:
    job = reprieve_job.connect(every=600)
    clock.now += 599
    job.step(1)
    assert not job.should_save()
    clock.now += 1
    assert job.should_save()

    save(job, 1)
    assert not job.should_save()
    assert not job.should_exit()
    clock.now += 600
    assert job.should_save()


def test_without_a_period_only_a_request_makes_a_save_due(host: Host, clock: Clock) -> None:
    job = reprieve_job.connect()
    clock.now += 1e9
    job.step(1)
    assert not job.should_save()

    host.request()
    clock.now += 1
    job.step(2)
    assert job.should_save()


def test_a_job_leaves_once_its_answer_is_given(host: Host) -> None:
    host.request()
    job = reprieve_job.connect()
    job.step(7)
    assert not job.should_exit()

    save(job, 7)

    assert host.ack() == ("r-1", "saved", 7)
    assert job.should_exit()
    assert not job.should_save()
    assert REQUEUE == 75


def test_a_newer_save_updates_the_answer(host: Host) -> None:
    host.request()
    job = reprieve_job.connect()
    job.step(7)
    save(job, 7)
    states: list[str] = []
    with job.checkpoint(8) as folder:
        states.append(host.read("ack.0.json")["state"])
        (folder / "state").write_text("newer")

    assert states == ["saved"]  # never taken back to «saving»
    assert host.ack() == ("r-1", "saved", 8)


def test_a_request_that_is_withdrawn_is_forgotten(host: Host, clock: Clock) -> None:
    job = reprieve_job.connect()
    host.request("checkpoint")
    assert job.step(1) is not None
    (host.run_dir / "request.json").unlink()
    clock.now += 1
    assert job.step(2) is None


@pytest.mark.parametrize(
    "content", ["", '{"v": 1, "id"', "[]", "7", '{"v": 1}', '{"v": null, "id": "r", "kind": "c"}']
)
def test_what_is_no_request_does_not_disturb_training(
    host: Host, clock: Clock, content: str
) -> None:
    job = reprieve_job.connect()
    (host.run_dir / "request.json").write_text(content)
    assert job.step(1) is None
    host.request()
    clock.now += 1
    assert job.step(2) is not None


@pytest.mark.parametrize("fields", [{"kind": "snapshot"}, {"v": 2, "kind": "checkpoint_exit"}])
def test_what_this_version_does_not_know_is_declined(host: Host, fields: dict[str, Any]) -> None:
    host.request(**fields)
    job = reprieve_job.connect()

    assert job.step(1) is None
    assert host.ack() == ("r-1", "declined", None)
    assert "is not known" in host.read("ack.0.json")["error"]
    assert not job.should_save()
    assert not job.should_exit()


def test_a_job_may_decline(host: Host) -> None:
    host.request()
    job = reprieve_job.connect()
    job.step(1)
    job.decline("a save takes 300 s")

    assert host.ack() == ("r-1", "declined", None)
    assert host.read("ack.0.json")["error"] == "a save takes 300 s"
    assert job.should_exit()


def test_the_deadline_is_read_from_the_clock_that_nobody_sets(
    host: Host, mocker: MockerFixture
) -> None:
    mocker.patch("time.clock_gettime_ns", return_value=1_000 * 10**9)
    mocker.patch("time.time", return_value=5_000.0)
    host.request(deadline_boottime_ns=1_090 * 10**9, deadline_unix=9_999.0)
    job = reprieve_job.connect()
    assert job.seconds_left() == math.inf
    job.step(1)
    assert job.seconds_left() == 90.0


def test_the_wall_clock_serves_where_the_host_names_no_other(
    host: Host, mocker: MockerFixture
) -> None:
    mocker.patch("time.time", return_value=5_000.0)
    host.request(deadline_unix=5_030.0)
    job = reprieve_job.connect()
    job.step(1)
    assert job.seconds_left() == 30.0


def test_a_request_without_a_deadline_leaves_all_time(host: Host) -> None:
    host.request()
    job = reprieve_job.connect()
    job.step(1)
    assert job.seconds_left() == math.inf


def test_the_manifest_describes_each_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    job = reprieve_job.connect(framework="pytorch")
    with job.checkpoint(12) as folder:
        (folder / "shards").mkdir()
        (folder / "shards" / "0.bin").write_bytes(b"abc")
        (folder / "empty").touch()

    manifest = json.loads((host.checkpoints / "step-12" / "MANIFEST.json").read_text())
    assert manifest.pop("seconds") >= 0
    assert manifest == {
        "v": 1,
        "step": 12,
        "attempt": 3,
        "world_size": 4,
        "framework": "pytorch",
        "files": [
            {
                "path": "empty",
                "size": 0,
                "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            },
            {
                "path": "shards/0.bin",
                "size": 3,
                "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            },
        ],
    }


def test_bytes_reach_the_disk_before_the_name_does(host: Host, mocker: MockerFixture) -> None:
    events: list[str] = []
    sync, rename = os.fsync, Path.rename

    def recording_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def recording_rename(path: Path, target: Path) -> Path:
        events.append(f"rename to {target.name}")
        return rename(path, target)

    mocker.patch("os.fsync", recording_sync)
    mocker.patch("pathlib.Path.rename", recording_rename)
    job = reprieve_job.connect()
    with job.checkpoint(1) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "data").write_text("x")

    part = ".step-1.part"
    expected = ["data", "sub", "MANIFEST.json", part, "rename to step-1", "checkpoints"]
    assert events == expected


def test_a_save_that_raises_leaves_no_trace_and_is_told(host: Host) -> None:
    job = reprieve_job.connect()
    save(job, 1)
    host.request()
    job.step(2)
    signal.raise_signal(signal.SIGUSR1)

    def half_a_save() -> None:
        with job.checkpoint(2) as folder:
            (folder / "state").write_text("half")
            raise RuntimeError("writer failed")

    with pytest.raises(RuntimeError, match="writer failed"):
        half_a_save()

    assert host.ack() == ("r-1", "failed", 2)
    assert host.read("ack.0.json")["error"] == "writer failed"
    assert saved(host.checkpoints) == ["step-1"]
    assert job.should_exit()


def test_a_disk_that_fails_while_syncing_is_told_like_a_full_one(
    host: Host, mocker: MockerFixture
) -> None:
    job = reprieve_job.connect()
    mocker.patch("os.fsync", side_effect=OSError(28, "No space left on device"))
    with pytest.raises(CheckpointError, match=r"step 2 was not saved .* No space left on device"):
        save(job, 2)
    assert saved(host.checkpoints) == []


def test_a_checkpoint_without_files_is_a_mistake(host: Host) -> None:
    job = reprieve_job.connect()
    with pytest.raises(CheckpointError, match="nothing was written"), job.checkpoint(1):
        pass
    assert saved(host.checkpoints) == []


def test_a_link_in_a_checkpoint_is_a_mistake(host: Host, tmp_path: Path) -> None:
    job = reprieve_job.connect()
    with pytest.raises(CheckpointError, match="not a plain file"), job.checkpoint(1) as folder:
        (folder / "latest").symlink_to(tmp_path)


def test_the_manifests_name_is_taken(host: Host) -> None:
    job = reprieve_job.connect()
    with pytest.raises(CheckpointError, match="choose another name"), job.checkpoint(1) as folder:
        (folder / "MANIFEST.json").write_text("{}")


def test_the_newest_two_checkpoints_stay(host: Host) -> None:
    job = reprieve_job.connect()
    for step in (9, 10, 11):
        save(job, step)
    assert saved(host.checkpoints) == ["step-10", "step-11"]


def test_nothing_is_removed_before_the_new_checkpoint_is_whole(host: Host) -> None:
    job = reprieve_job.connect(keep=1)
    save(job, 1)
    with job.checkpoint(2) as folder:
        (folder / "state").write_text("x")
        assert saved(host.checkpoints) == [".step-2.part", "step-1"]
    assert saved(host.checkpoints) == ["step-2"]


def test_a_damaged_newer_checkpoint_does_not_push_out_a_whole_one(host: Host) -> None:
    job = reprieve_job.connect(keep=1)
    save(job, 5)
    (host.checkpoints / "step-5" / "state").write_text("no longer what it was")
    save(job, 4)
    assert saved(host.checkpoints) == ["step-4", "step-5"]


def test_all_checkpoints_stay_if_asked(host: Host) -> None:
    job = reprieve_job.connect(keep=None)
    for step in range(1, 6):
        save(job, step)
    assert len(saved(host.checkpoints)) == 5


def test_keeping_none_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="keep must be at least 1"):
        reprieve_job.connect(keep=0)


def test_a_step_that_someone_damaged_is_saved_again(host: Host) -> None:
    save(reprieve_job.connect(), 5)
    (host.checkpoints / "step-5" / "state").write_text("STATE")
    save(reprieve_job.connect(), 5)
    assert (host.checkpoints / "step-5" / "state").read_text() == "state"
    assert saved(host.checkpoints) == [".step-5.corrupt", "step-5"]


def test_training_goes_on_when_the_host_can_not_be_told(
    host: Host, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    job = reprieve_job.connect()
    (host.run_dir / "ready.0.json").unlink()
    host.run_dir.rmdir()
    clock.now += 5
    job.step(1)
    save(job, 1)
    assert saved(host.checkpoints) == ["step-1"]
    assert "host not told" in caplog.text


def test_completion_that_can_not_be_told_is_an_error(host: Host) -> None:
    job = reprieve_job.connect()
    (host.run_dir / "ready.0.json").unlink()
    host.run_dir.rmdir()
    with pytest.raises(FileNotFoundError):
        job.done(1)


def test_the_resumed_job_gets_the_hosts_checkpoint(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = tmp_path / "resume"
    resume.mkdir()
    (resume / "state").touch()
    monkeypatch.setenv("REPRIEVE_RESUME_DIR", str(resume))
    monkeypatch.setenv("REPRIEVE_RESUME_STEP", "120")
    job = reprieve_job.connect()
    assert (job.resume_dir, job.resume_step, job.attempt) == (resume, 120, 3)


def test_the_resumed_job_knows_how_many_processes_saved(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = tmp_path / "resume"
    resume.mkdir()
    (resume / "state").write_text("state")
    monkeypatch.setenv("REPRIEVE_RESUME_DIR", str(resume))
    monkeypatch.setenv("REPRIEVE_RESUME_STEP", "7")
    job = reprieve_job.connect()
    assert job.resume_world_size is None

    (resume / "MANIFEST.json").write_text('{"v": 1, "world_size": 2}')

    assert job.resume_world_size == 2


def test_a_first_attempt_has_nothing_to_resume(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRIEVE_RESUME_DIR", str(tmp_path / "resume"))
    monkeypatch.setenv("REPRIEVE_RESUME_STEP", "")
    job = reprieve_job.connect()
    assert (job.resume_dir, job.resume_step) == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("REPRIEVE_CONTRACT", "2", "speaks version 1"),
        ("REPRIEVE_RUN_DIR", "", "REPRIEVE_RUN_DIR is not"),
        ("REPRIEVE_CKPT_DIR", "", "REPRIEVE_CKPT_DIR is not"),
        ("REPRIEVE_RUN_DIR", "/proc/no-such-place", "can't be written"),
        ("REPRIEVE_ATTEMPT", "third", "REPRIEVE_ATTEMPT must be a whole number, not 'third'"),
        ("REPRIEVE_RESUME_STEP", "120", "REPRIEVE_RESUME_DIR is not"),
    ],
)
def test_a_broken_promise_of_the_host_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ContractError, match=message):
        reprieve_job.connect()


def test_a_job_never_starts_over_without_a_word(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRIEVE_RESUME_DIR", str(tmp_path))
    monkeypatch.setenv("REPRIEVE_RESUME_STEP", "120")
    host.run_dir.rmdir()
    with pytest.raises(ContractError, match="there is no checkpoint in"):
        reprieve_job.connect()


def test_without_a_host_nothing_is_touched_but_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGUSR1)
    job = reprieve_job.connect(total_steps=2, every=60)
    assert (job.resume_dir, job.resume_step, job.attempt) == (None, None, 0)
    assert job.step(1) is None
    assert job.seconds_left() == math.inf
    job.decline("nobody asked")
    clock.now += 60
    assert job.should_save()
    save(job, 1)
    job.done(2)

    assert signal.getsignal(signal.SIGUSR1) is before
    assert saved(tmp_path) == ["checkpoints"]
    again = reprieve_job.connect()
    assert (again.resume_dir, again.resume_step) == (Path("checkpoints/step-1"), 1)


def test_without_a_host_the_newest_step_is_the_highest_number(tmp_path: Path) -> None:
    job = reprieve_job.connect(checkpoint_dir=tmp_path)
    for step in (9, 10):
        save(job, step)
    (tmp_path / "step-x").mkdir()
    (tmp_path / ".step-11.part").mkdir()
    assert reprieve_job.connect(checkpoint_dir=tmp_path).resume_step == 10


def test_the_helper_needs_the_standard_library_alone() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); before = set(sys.modules)\n"
        "import reprieve_job\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(loaded - set(sys.stdlib_module_names)))"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["reprieve_job"]


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_an_old_interpreter_can_read_the_helper(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


# What the manifest says of each file ------------------------------------------------------------


def described(folder: Path) -> dict[str, str | None]:
    files = json.loads((folder / "MANIFEST.json").read_text())["files"]
    return {file["path"]: file.get("sha256") for file in files}


def test_a_file_that_changed_after_it_was_read_is_read_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=None)
    read = threading.Event()
    digested = Digests._digest

    def noted(digests: Digests, path: Path) -> str:
        found = digested(digests, path)
        read.set()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digests, "_digest", noted)
        with store.saving(7, facts={}) as part:
            (part / "early.bin").write_bytes(b"as it was")
            (part / "kept.bin").write_bytes(b"as it stays")
            assert read.wait(30)
            (part / "early.bin").write_bytes(b"as it is!")

    bodies = {"early.bin": b"as it is!", "kept.bin": b"as it stays"}
    expected = {path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()}
    assert described(tmp_path / "step-7") == expected


@pytest.mark.parametrize("lasting", [True, False])
def test_only_a_save_that_is_read_here_again_waits_for_the_disk(
    tmp_path: Path, mocker: MockerFixture, *, lasting: bool
) -> None:
    synced = mocker.spy(os, "fsync")

    saving = CheckpointStore(tmp_path, keep=None).saving(7, facts={}, lasting=lambda: lasting)
    with saving as part:
        (part / "model.bin").write_bytes(b"weights")

    assert described(tmp_path / "step-7") == {"model.bin": hashlib.sha256(b"weights").hexdigest()}
    assert bool(synced.call_count) is lasting
