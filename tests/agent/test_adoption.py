"""Jobs that know nothing of the contract: their folders become checkpoints, if they are whole."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from reprieve.domain.lease import Cause, LeaseKey, LeaseState, Outcome
from reprieve.domain.spec import JobSpec
from reprieve.protocol import ReportKind
from reprieve_agent import checkpoint, processes
from reprieve_agent import events as on
from reprieve_agent.adoption import Adopter, lay_out, step_in
from reprieve_agent.clock import boot_seconds
from reprieve_agent.events import Event
from reprieve_agent.places import Places
from reprieve_agent.profiles import HF_FOLDER, PROFILES, Folders, Whole, hugging_face, parse
from tests.agent.harness import Cloud, HostUnderTest, chain_state, soon, wait_until
from tests.agent.test_profiles import deepspeed, hf, lightning, torch_save
from tests.disks import small_disk

KEY = LeaseKey("job-1", 2, "token-2")


@pytest.fixture
def busy() -> set[str]:
    return set()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places.of(KEY, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    lay_out(places, None)
    return places


@pytest.fixture
def adopter(places: Places, told: list[Event], busy: set[str]) -> Adopter:
    return Adopter(
        KEY,
        places,
        PROFILES["hf"],
        after=-1,
        quiet_seconds=0.0,
        busy=lambda: busy,
        emit=told.append,
    )


def steps(places: Places) -> list[int]:
    return checkpoint.whole_steps(places.checkpoints)


def test_a_folder_that_two_looks_find_unchanged_becomes_a_checkpoint(
    places: Places, adopter: Adopter
) -> None:
    folder = hf(places.output)

    adopter.look()
    assert steps(places) == []
    adopter.look()

    assert steps(places) == [500]
    manifest = checkpoint.read_manifest(places.checkpoints / "step-500", 500)
    assert (manifest.framework, manifest.world_size) == ("hf", 1)
    names = sorted(file.path for file in manifest.files)
    assert names == sorted(f"checkpoint-500/{path.name}" for path in folder.iterdir())
    assert not (places.private / "adopting").exists()


def test_its_files_are_the_jobs_own_and_outlive_its_rotation(
    places: Places, adopter: Adopter
) -> None:
    folder = hf(places.output)
    adopter.finish(by=None)
    kept = places.checkpoints / "step-500" / "checkpoint-500" / "optimizer.pt"
    assert kept.samefile(folder / "optimizer.pt")  # no second copy on the disk

    shutil.rmtree(folder)

    with checkpoint.opened(places.checkpoints / "step-500", 500) as (_, files):
        for file in files:
            file.compare(file.read(lambda: False))


def test_a_folder_that_still_changes_is_left_alone(places: Places, adopter: Adopter) -> None:
    folder = hf(places.output)
    adopter.look()
    torch_save(folder / "scaler.pt", {})

    adopter.look()
    assert steps(places) == []
    adopter.look()
    assert steps(places) == [500]


def test_a_folder_with_a_file_open_for_writing_is_left_alone(
    places: Places, adopter: Adopter, busy: set[str]
) -> None:
    folder = hf(places.output)
    busy.add(str(folder / "optimizer.pt"))
    adopter.look()
    adopter.look()
    assert steps(places) == []

    busy.clear()
    adopter.look()
    assert steps(places) == [500]


def test_what_a_job_has_open_for_writing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("only read")
    marker = f"ADOPTION_TEST={tmp_path}"
    pid = os.fork()
    if not pid:
        script = f"""
            exec 3>'{tmp_path}/written' 4<'{tmp_path}/read'
            touch '{tmp_path}/up'; exec sleep 60
        """
        os.execve("/bin/sh", ["sh", "-c", script], dict([marker.split("=", 1)]))
    try:
        wait_until((tmp_path / "up").exists, "started")
        found = {name for name in processes.writing(None, marker) if name.startswith(str(tmp_path))}
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)

    assert found == {str(tmp_path / "written")}


def test_the_newest_whole_one_is_kept_and_older_ones_are_not_needed(
    places: Places, adopter: Adopter
) -> None:
    for step in (100, 200, 300):
        hf(places.output, step)
    (places.output / "checkpoint-300" / "optimizer.pt").unlink()

    adopter.finish(by=None)

    assert steps(places) == [200]


def test_wreckage_that_stays_is_reported_with_its_reason(
    places: Places, adopter: Adopter, told: list[Event]
) -> None:
    folder = hf(places.output)
    (folder / "rng_state.pth").unlink()

    for _ in range(3):
        adopter.look()
    assert told == []  # it may still be completed
    adopter.finish(by=None)

    assert steps(places) == []
    ((event),) = told
    assert isinstance(event, on.CommitFailed)
    assert event.step == 500
    assert event.reason.startswith("checkpoint-500: the random state is missing")


def test_fault_8_a_save_that_the_disk_had_no_room_for_leaves_the_one_before(
    told: list[Event], tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", kib=300) as disk:
        places = Places.of(KEY, state_dir=disk, run_dir=tmp_path / "run")
        places.make(None)
        lay_out(places, None)
        hf(places.output, 100)
        with pytest.raises(OSError, match="No space left"):
            (hf(places.output, 200) / "optimizer.pt").write_bytes(bytes(400 * 1024))
        adopter = Adopter(KEY, places, PROFILES["hf"], -1, 0.0, busy=set, emit=told.append)

        adopter.finish(by=None)

        assert steps(places) == [100]
        assert [getattr(event, "step", None) for event in told] == [200]


def test_a_last_look_that_takes_too_long_is_not_waited_for(
    places: Places, adopter: Adopter
) -> None:
    hf(places.output)
    going_on = threading.Event()

    def whole(_folder: Path, _step: int) -> Whole:
        going_on.wait(60)
        return Whole()

    adopter.profile = Folders("hf", HF_FOLDER, whole)

    adopter.finish(by=boot_seconds())

    assert steps(places) == []
    going_on.set()


@pytest.mark.parametrize("fault", [RecursionError("too deep"), OSError(28, "No space left")])
def test_what_nobody_foresaw_costs_one_checkpoint_only(
    places: Places, told: list[Event], fault: Exception
) -> None:
    hf(places.output, 100)
    hf(places.output, 200)

    def whole(folder: Path, step: int) -> Whole:
        if step == 200:
            raise fault
        return hugging_face(folder, step)

    profile = Folders("hf", HF_FOLDER, whole)
    adopter = Adopter(KEY, places, profile, -1, 0.0, busy=set, emit=told.append)

    adopter.finish(by=None)

    assert steps(places) == [100]
    assert [getattr(event, "step", None) for event in told] == [200]


def test_wreckage_that_is_completed_counts(places: Places, adopter: Adopter) -> None:
    folder = hf(places.output)
    (folder / "trainer_state.json").unlink()
    adopter.look()
    adopter.look()
    assert steps(places) == []

    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 500}))
    adopter.look()
    adopter.look()

    assert steps(places) == [500]


def test_what_the_attempt_began_with_is_not_sent_again(
    places: Places, adopter: Adopter, told: list[Event]
) -> None:
    hf(places.output)
    (places.output / "checkpoint-500" / "optimizer.pt").unlink()
    adopter.after = 500

    adopter.finish(by=None)

    assert (steps(places), told) == ([], [])


def test_a_link_in_a_folder_is_never_followed(
    places: Places, adopter: Adopter, told: list[Event], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = hf(places.output)
    (folder / "extra.json").symlink_to(tmp_path / "secret")
    elsewhere = hf(tmp_path, 600)
    (places.output / "checkpoint-600").symlink_to(elsewhere)

    adopter.finish(by=None)

    assert steps(places) == []
    assert [str(getattr(event, "reason", "")) for event in told] == [
        "checkpoint-500: checkpoint-500/extra.json isn't a plain file"
    ]


def test_fault_10_deepspeeds_word_of_the_latest_is_ours(places: Places, adopter: Adopter) -> None:
    deepspeed(places.output)  # its own `latest` names another tag
    adopter.profile = PROFILES["deepspeed"]

    adopter.finish(by=None)

    assert (places.checkpoints / "step-500" / "latest").read_text() == "global_step500"


def test_a_file_is_a_checkpoint_too(places: Places, adopter: Adopter) -> None:
    lightning(places.output)
    adopter.profile = PROFILES["lightning"]

    adopter.finish(by=None)

    assert (places.checkpoints / "step-500" / "epoch=0-step=500.ckpt").is_file()


def test_patterns_may_lie_side_by_side_in_one_folder(places: Places, adopter: Adopter) -> None:
    for name in ("model-7.bin", "optim-7.bin"):
        (places.output / name).write_bytes(b"state")
    profile = parse(("model-{step}.bin", "optim-{step}.bin"))
    assert profile
    adopter.profile = profile

    adopter.finish(by=None)

    assert steps(places) == [7]


def test_a_resumed_job_finds_its_checkpoint_where_it_left_it(places: Places) -> None:
    (places.resume / "checkpoint-500").mkdir()
    (places.resume / "checkpoint-500" / "trainer_state.json").write_text("{}")
    (places.resume / "MANIFEST.json").write_text("{}")
    (places.output / "stale").write_text("of an earlier try")

    lay_out(places, None)

    found = sorted(str(path.relative_to(places.output)) for path in places.output.rglob("*"))
    assert found == ["checkpoint-500", "checkpoint-500/trainer_state.json"]


def test_the_step_of_a_manifest_is_read_from_its_key() -> None:
    assert step_in("jobs/job-1/manifests/000002-000000000500.json") == 500
    assert step_in(None) == -1


# Whole runs -------------------------------------------------------------------------------

# A script that was written for no host at all: it saves as it always did, resumes from its own
# output folder, keeps its newest three and knows neither request nor signal.
STOCK = textwrap.dedent(
    """
    import hashlib, json, os, pathlib, shutil, sys, time, zipfile

    output, total = pathlib.Path(os.environ["REPRIEVE_CKPT_DIR"]), int(sys.argv[1])

    def archive(path, text):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", text)

    def step_of(folder):
        return int(folder.name.split("-")[1])

    saved = sorted(output.glob("checkpoint-*"), key=step_of)
    state, first = "", 1
    if saved:
        with zipfile.ZipFile(saved[-1] / "optimizer.pt") as file:
            state = file.read("archive/data.pkl").decode()
        first = step_of(saved[-1]) + 1
    print("first step", first, flush=True)
    for step in range(first, total + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        time.sleep(0.01)
        if step % 10 == 0:
            folder = output / f"checkpoint-{step}"
            folder.mkdir()
            for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"):
                archive(folder / name, state)
            (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
            for old in sorted(output.glob("checkpoint-*"), key=step_of)[:-3]:
                shutil.rmtree(old)
        if step == total:
            print("state", state, flush=True)
    """
)


def test_an_unmodified_script_is_interrupted_and_goes_on_elsewhere(
    cloud: Cloud, host: HostUnderTest, other: HostUnderTest
) -> None:
    spec = JobSpec(command=("python", "-c", STOCK, "100000"), profile=("hf",))
    key = cloud.submit(spec)
    cloud.ring(key)
    wait_until(lambda: cloud.queues.said(ReportKind.COMMITTED), "a checkpoint committed")

    host.metadata.interrupt(time=soon(3))
    wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "released")
    lease = cloud.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    saved = lease.committed_step
    assert saved
    assert saved % 10 == 0

    nxt = cloud.arm_next(key)
    cloud.memory.lease_rows[nxt] = replace(
        cloud.lease(nxt), spec=replace(spec, command=("python", "-c", STOCK, str(saved + 25)))
    )
    other.start()
    cloud.ring(nxt)
    wait_until(lambda: cloud.lease(nxt).state is LeaseState.DONE, "finished elsewhere")
    lease = cloud.lease(nxt)
    assert (lease.outcome, lease.restored_step) == (Outcome.FINISHED, saved)
    assert f"first step {saved + 1}\n" in cloud.log(nxt)
    assert chain_state(saved + 25) in cloud.log(nxt)
    assert lease.committed_step == saved + 20


def test_a_profile_that_cant_be_read_fails_the_attempt_and_says_so(
    cloud: Cloud, host: HostUnderTest
) -> None:
    key = cloud.submit(JobSpec(command=("true",), profile=("keras",)))
    cloud.ring(key)
    wait_until(lambda: cloud.queues.said(ReportKind.FAILED), "reported")

    assert "keras" in str(cloud.queues.said(ReportKind.FAILED)[0].data["detail"])
