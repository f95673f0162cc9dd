"""The contract's files, as its schemas have them: what either side writes, the other reads."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import reprieve_job
from reprieve.domain.lease import Cause
from reprieve.domain.spec import JobSpec
from reprieve_agent import checkpoint, contract
from reprieve_agent import events as on
from reprieve_agent.adoption import Adopter, lay_out
from reprieve_agent.clock import now
from reprieve_agent.contract import Watcher
from reprieve_agent.events import Event
from reprieve_agent.files import write_json
from reprieve_agent.places import Places
from reprieve_agent.profiles import PROFILES
from reprieve_agent.state import AckState, Request, RequestKind
from reprieve_job import contract as job_contract
from tests.agent import contract_files as files
from tests.agent.harness import OWN_KEY
from tests.agent.test_profiles import deepspeed

KEY = OWN_KEY

few = settings(max_examples=30)

counts = st.integers(0, 10**9)
steps = st.integers(0, 10**12 - 1)
moments = st.floats(0, 4e9)
text = st.text('abc é"\\\n{}', max_size=30)


def one_of(model: type[files.File], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return any document that the schema of *model* allows."""
    return st.builds(model, v=st.just(1), **fields)


requests = one_of(
    files.Request,
    id=text.filter(bool),
    kind=st.sampled_from(["checkpoint", "checkpoint_exit"]),
    reason=text,
    deadline_unix=st.none() | moments,
    deadline_boottime_ns=st.none() | counts,
    save_by_unix=st.none() | moments,
)
acks = one_of(
    files.Ack,
    request_id=text,
    state=st.sampled_from(files.Answer),
    step=st.none() | steps,
    path=st.none() | text,
    error=st.none() | text,
)
manifests = one_of(
    files.Manifest,
    step=steps,
    attempt=counts,
    world_size=st.integers(1, 4096),
    framework=text,
    seconds=st.none() | st.floats(0, 1e6),
    files=st.lists(
        st.builds(
            files.ManifestFile,
            path=st.lists(st.text("abc-1_", min_size=1), min_size=1, max_size=3).map("/".join),
            size=counts,
            sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
        ),
        min_size=1,
        max_size=3,
    ),
)


def checked(model: type[files.File], path: Path) -> files.File:
    """Read a file by its schema; it may hold nothing that the schema doesn't name."""
    written = json.loads(path.read_text())
    assert set(written) <= set(model.model_fields)
    return model.model_validate_json(path.read_text())


@pytest.fixture
def job(places: Places, monkeypatch: pytest.MonkeyPatch) -> reprieve_job.Job:
    for name in [*os.environ]:
        if name.startswith("REPRIEVE_") or name in {"RANK", "WORLD_SIZE"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("REPRIEVE_CONTRACT", "1")
    monkeypatch.setenv("REPRIEVE_ATTEMPT", str(KEY.attempt))
    monkeypatch.setenv("REPRIEVE_RUN_DIR", str(places.contract))
    monkeypatch.setenv("REPRIEVE_CKPT_DIR", str(places.checkpoints))
    monkeypatch.setattr("reprieve_job.wakeup.Wakeup.listen", lambda self: True)
    return reprieve_job.connect(total_steps=10, framework="pytorch")


def a_request(kind: RequestKind, request_id: str = "r-1") -> Request:
    return Request(
        id=request_id,
        kind=kind,
        cause=Cause.NOTICE,
        reason="interruption",
        since=now().boot,
        save_by=now().boot + 90,
        deadline=now().boot + 105,
        term_at=now().boot + 45,
    )


# What is written ----------------------------------------------------------------------------


def test_the_committed_schemas_are_those_of_the_tests() -> None:
    assert json.loads(files.SCHEMA.read_text()) == files.schema(), "run tests/agent/contract_files"


@pytest.mark.parametrize("profile", [(), ("hf",)], ids=["helper", "profile"])
def test_every_promise_of_the_environment_is_in_the_contract(
    places: Places, profile: tuple[str, ...]
) -> None:
    page = (files.SCHEMA.parent / "job-contract.md").read_text()
    spec = JobSpec(("x",), profile=profile)
    promised = contract.environment(
        KEY, places, spec=spec, base_step=None, grace=timedelta(seconds=105)
    )

    assert promised["REPRIEVE_CKPT_DIR"] == str(places.output if profile else places.checkpoints)
    for name in promised:
        assert f"`{name}`" in page


@pytest.mark.parametrize("kind", list(RequestKind))
def test_the_host_asks_as_the_schema_says(places: Places, kind: RequestKind) -> None:
    contract.write_request(places, a_request(kind), now())

    written = checked(files.Request, places.contract / "request.json")

    assert isinstance(written, files.Request)
    assert (written.deadline_unix is None) == (kind is RequestKind.CHECKPOINT)
    read = job_contract.read_request(places.contract)
    assert read
    assert (read.id, read.kind, read.must_exit) == (
        "r-1",
        kind,
        kind is RequestKind.CHECKPOINT_EXIT,
    )


def test_the_helper_answers_as_the_schema_says(
    places: Places, job: reprieve_job.Job, watcher: Watcher, told: list[Event]
) -> None:
    checked(files.Ready, places.contract / "ready.0.json")
    contract.write_request(places, a_request(RequestKind.CHECKPOINT_EXIT), now())
    job.step(4)
    checked(files.Progress, places.contract / "progress.json")
    with job.checkpoint(4) as folder:
        checked(files.Ack, places.contract / "ack.0.json")
        watcher.look()
        (folder / "state").write_text("state")
    checked(files.Ack, places.contract / "ack.0.json")
    checked(files.Manifest, places.checkpoints / "step-4" / "MANIFEST.json")
    job.done(4)
    checked(files.Done, places.contract / "done.json")
    watcher.look()

    acked = [(event.state, event.step) for event in told if isinstance(event, on.JobAcked)]
    assert acked == [(AckState.SAVING, 4), (AckState.SAVED, 4)]
    assert on.JobReady(KEY) in told
    assert on.JobProgress(KEY, 4) in told
    assert on.CheckpointFound(KEY, 4) in told
    assert contract.done_step(places) == 4


def test_the_helper_says_no_as_the_schema_says(places: Places, job: reprieve_job.Job) -> None:
    contract.write_request(places, a_request(RequestKind.CHECKPOINT_EXIT), now())
    job.step(4)
    with pytest.raises(reprieve_job.CheckpointError, match="broken"), job.checkpoint(4):
        raise OSError("broken")

    failed = checked(files.Ack, places.contract / "ack.0.json")

    assert isinstance(failed, files.Ack)
    assert (failed.state, failed.path) == ("failed", None)


def test_the_host_describes_a_frameworks_folder_as_the_schema_says(places: Places) -> None:
    lay_out(places, None)
    deepspeed(places.output)
    adopter = Adopter(
        KEY, places, PROFILES["deepspeed"], -1, 0.0, busy=set, emit=lambda event: None
    )

    adopter.finish(by=None)

    manifest = checked(files.Manifest, places.checkpoints / "step-500" / "MANIFEST.json")
    assert isinstance(manifest, files.Manifest)
    assert (manifest.attempt, manifest.world_size, manifest.framework) == (
        KEY.attempt,
        2,
        "deepspeed",
    )


# What is read -------------------------------------------------------------------------------


@few
@given(requests)
def test_the_helper_reads_every_request_that_the_schema_allows(document: files.Request) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "request.json").write_text(document.model_dump_json())
        read = job_contract.read_request(Path(folder))

    assert read
    assert (read.id, read.kind, read.reason) == (document.id, document.kind, document.reason)
    assert read.deadline_boottime_ns == document.deadline_boottime_ns


@few
@given(acks)
def test_the_host_reads_every_answer_that_the_schema_allows(document: files.Ack) -> None:
    told: list[Event] = []
    with tempfile.TemporaryDirectory() as folder:
        places = Places.of(KEY, state_dir=Path(folder), run_dir=Path(folder))
        places.make(None)
        (places.contract / "ack.0.json").write_text(document.model_dump_json())
        Watcher(KEY, places, told.append, calm_period=1, urgent_period=1).look()

    ((acked),) = told
    assert isinstance(acked, on.JobAcked)
    assert (acked.request_id, acked.step) == (document.request_id, document.step)
    assert str(acked.state) == str(document.state)


@few
@given(manifests)
def test_the_host_reads_every_manifest_that_the_schema_allows(document: files.Manifest) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "MANIFEST.json").write_text(document.model_dump_json())
        read = checkpoint.read_manifest(Path(folder), document.step)

    assert (read.step, read.framework, read.world_size) == (
        document.step,
        document.framework,
        document.world_size,
    )
    assert [(f.path, f.size, f.sha256) for f in read.files] == [
        (f.path, f.size, f.sha256) for f in document.files
    ]


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (files.Done, {"v": 2, "step": 3}),
        (files.Done, {"v": 1, "step": -3}),
        (files.Ack, {"v": 1, "request_id": "r", "state": "dancing"}),
        (files.Ready, {"v": 1, "pid": 0, "start_ticks": 1, "rank": 0, "hook": "signal"}),
        (files.Manifest, {"v": 1, "step": 1, "attempt": 1, "world_size": 1, "files": []}),
    ],
)
def test_the_schemas_refuse_something(model: type[files.File], document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(document)


# Several ranks ------------------------------------------------------------------------------


def say(places: Places, name: str, **content: Any) -> None:
    write_json(places.contract / name, {"v": 1} | content)


def answers(watcher: Watcher, told: list[Event]) -> list[AckState]:
    told.clear()
    watcher.look()
    return [event.state for event in told if isinstance(event, on.JobAcked)]


def test_the_lowest_rank_that_registered_answers_saved_for_all(
    places: Places, watcher: Watcher, told: list[Event]
) -> None:
    for rank in (2, 3):
        say(places, f"ready.{rank}.json", pid=1, start_ticks=1, rank=rank, hook="poll")
    say(places, "ack.3.json", request_id="r", state="saved", step=7)
    assert answers(watcher, told) == []

    say(places, "ack.2.json", request_id="r", state="saved", step=7)
    assert answers(watcher, told) == [AckState.SAVED]


@pytest.mark.parametrize("state", [AckState.SAVING, AckState.FAILED, AckState.DECLINED])
def test_any_rank_may_say_that_a_save_began_or_will_not_come(
    places: Places, watcher: Watcher, told: list[Event], state: AckState
) -> None:
    for rank in (0, 1):
        say(places, f"ready.{rank}.json", pid=1, start_ticks=1, rank=rank, hook="poll")

    say(places, "ack.1.json", request_id="r", state=state.value, step=7)

    assert answers(watcher, told) == [state]


def test_a_job_that_never_registered_may_answer_all_the_same(
    places: Places, watcher: Watcher, told: list[Event]
) -> None:
    say(places, "ack.5.json", request_id="r", state="saved", step=7)

    assert answers(watcher, told) == [AckState.SAVED]
