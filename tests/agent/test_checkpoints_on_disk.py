"""Local checkpoints: which folders count, how they are committed, which are kept."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.checkpoint import Manifest, manifest_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve_agent import checkpoint
from reprieve_agent import events as on
from reprieve_agent.estimator import NEWEST, Estimates
from reprieve_agent.events import Event
from reprieve_agent.ledgers import Ledgers
from reprieve_agent.upload import Uploads
from tests.agent.fakes import MemoryCheckpoints
from tests.agent.harness import wait_until
from tests.builders import a_key

KEY = a_key()
FILES = {"model.bin": b"weights" * 100, "inner/optimizer.bin": b"moments" * 300}


def save(
    folder: Path,
    step: int,
    files: dict[str, bytes] | None = None,
    name: str = "step-{}",
    **manifest: Any,
) -> Path:
    """Leave a whole checkpoint, as a job would."""
    target = folder / name.format(step)
    described = []
    for path, body in (files or FILES).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(body)
        sha256 = hashlib.sha256(body).hexdigest()
        described.append({"path": path, "size": len(body), "sha256": sha256})
    written = {"v": 1, "step": step, "world_size": 2, "framework": "torch", "files": described}
    (target / "MANIFEST.json").write_text(json.dumps(written | manifest))
    return target


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    change(manifest)
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))


def make_link(path: Path) -> None:
    path.rename(path.with_name("hidden"))
    path.symlink_to(path.with_name("hidden"))


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_whole_steps_are_found_by_number(tmp_path: Path) -> None:
    for step in (900, 1000, 5):
        save(tmp_path, step)
    save(tmp_path, 7, name="step-00007")

    assert checkpoint.whole_steps(tmp_path) == [5, 7, 900, 1000]
    assert checkpoint.folder_of(tmp_path, 7) == tmp_path / "step-00007"


def test_a_folder_that_isnt_there_holds_nothing(tmp_path: Path) -> None:
    assert checkpoint.whole_steps(tmp_path / "nowhere") == []


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no manifest yet": lambda f: (f / "MANIFEST.json").unlink(),
    "half a manifest": lambda f: (f / "MANIFEST.json").write_text('{"v": 1, "st'),
    "a manifest that is a list": lambda f: (f / "MANIFEST.json").write_text("[]"),
    "a manifest that is a link": lambda f: make_link(f / "MANIFEST.json"),
    "a missing file": lambda f: (f / "model.bin").unlink(),
    "a short file": lambda f: (f / "model.bin").write_bytes(b"short"),
    "a file that is a link": lambda f: make_link(f / "model.bin"),
    "a folder that is a link": lambda f: make_link(f / "inner"),
    "a file that is a pipe": lambda f: make_pipe(f / "model.bin"),
    "a file that is a folder": lambda f: make_folder(f / "model.bin"),
    "no files": lambda f: rewrite(f, lambda m: m.update(files=[])),
    "another step": lambda f: rewrite(f, lambda m: m.update(step=41)),
    "no step": lambda f: rewrite(f, lambda m: m.pop("step")),
    "a path outside": lambda f: rewrite(f, lambda m: m["files"][0].update(path="../x")),
    "an absolute path": lambda f: rewrite(f, lambda m: m["files"][0].update(path="/etc/passwd")),
    "a path with a zero": lambda f: rewrite(f, lambda m: m["files"][0].update(path="a\0b")),
    "an empty path": lambda f: rewrite(f, lambda m: m["files"][0].update(path="")),
    "a digest that isn't one": lambda f: rewrite(f, lambda m: m["files"][0].update(sha256="x")),
    "a size that isn't one": lambda f: rewrite(f, lambda m: m["files"][0].update(size="many")),
    "files that aren't a list": lambda f: rewrite(f, lambda m: m.update(files={"a": 1})),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_isnt_whole_isnt_found(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    folder = save(tmp_path, 40)
    assert checkpoint.whole_steps(tmp_path) == [40]

    damage(folder)

    assert checkpoint.whole_steps(tmp_path) == []
    assert checkpoint.fault(folder, 40)


@pytest.mark.parametrize(
    "name",
    [".step-40.part", ".step-40.old", "step-40.tmp", "step-", "step-4x", "step--4", "latest"],
)
def test_other_names_arent_checkpoints(tmp_path: Path, name: str) -> None:
    save(tmp_path, 40, name=name)

    assert checkpoint.whole_steps(tmp_path) == []


def test_the_two_newest_committed_are_kept_and_all_that_is_newer(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        save(tmp_path, step)

    checkpoint.prune(tmp_path, committed=40)

    assert checkpoint.whole_steps(tmp_path) == [30, 40, 50]
    assert {path.name for path in tmp_path.iterdir()} == {"step-30", "step-40", "step-50"}


# Committing -------------------------------------------------------------------------------


@dataclass
class Sender:
    """Uploads of one attempt over a bucket in memory."""

    folder: Path
    store: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    said: list[Event] = field(default_factory=list)
    ours: bool = True
    parent: str | None = None
    ledgers: Ledgers = field(default_factory=Ledgers)

    def __post_init__(self) -> None:
        self.uploads = Uploads(
            KEY,
            self.folder,
            self.store,
            self.said.append,
            lambda: self.ours,
            self.parent,
            self.ledgers,
            host_type="g5.xlarge",
        )

    def commit(self, step: int) -> Event:
        before = len(self.said)
        self.uploads.start(step)
        wait_until(lambda: len(self.said) > before, "an answer")
        return self.said[-1]

    def idle(self) -> bool:
        return not self.uploads._running


def test_a_commit_is_what_was_saved_under_fresh_keys(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path, parent="jobs/job-1/manifests/000000-000000000020.json")

    event = sender.commit(40)

    assert isinstance(event, on.Committed)
    manifest = sender.store.manifest(event.manifest)
    assert (manifest.step, manifest.attempt, manifest.token) == (40, 1, "t1")
    assert (manifest.framework, manifest.world_size) == ("torch", 2)
    assert manifest.parent == sender.parent
    assert {f.path: sender.store.objects[f.key] for f in manifest.files} == FILES
    assert event.bytes == sum(map(len, FILES.values()))
    assert event.digest == hashlib.sha256(sender.store.objects[event.manifest]).hexdigest()


def test_the_manifest_is_written_last(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path)

    sender.commit(40)

    assert [operation for operation, _ in sender.store.calls] == ["put_file", "put_file", "commit"]


def test_each_commit_names_the_one_before_as_its_parent(tmp_path: Path) -> None:
    sender = Sender(tmp_path, parent="the base")
    keys: list[str | None] = ["the base"]
    for step in (10, 20, 30):
        save(tmp_path, step)
        event = sender.commit(step)
        assert isinstance(event, on.Committed)
        assert sender.store.manifest(event.manifest).parent == keys[-1]
        keys.append(event.manifest)


def test_the_same_step_committed_again_is_fine_and_overwrites_nothing(tmp_path: Path) -> None:
    save(tmp_path, 40)
    first = Sender(tmp_path)
    before = first.commit(40)
    assert isinstance(before, on.Committed)
    kept = dict(first.store.objects)

    again = Sender(tmp_path, store=first.store, parent=before.manifest).commit(40)

    assert isinstance(again, on.Committed)
    assert (again.manifest, again.digest) == (before.manifest, before.digest)
    assert kept.items() <= first.store.objects.items()


def test_the_first_commit_of_a_step_stands_whatever_comes_later(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path)
    first = sender.commit(40)
    save(tmp_path, 40, {"model.bin": b"another run"})

    later = sender.commit(40)

    assert isinstance(first, on.Committed)
    assert isinstance(later, on.Committed)
    assert later.digest == first.digest


def test_a_flipped_byte_is_never_committed(tmp_path: Path) -> None:
    folder = save(tmp_path, 40)
    (folder / "model.bin").write_bytes(b"W" + FILES["model.bin"][1:])
    sender = Sender(tmp_path)

    event = sender.commit(40)

    assert isinstance(event, on.CommitFailed)
    assert "SHA-256" in event.reason
    assert [op for op, _ in sender.store.calls if op == "commit"] == []


def test_a_step_that_is_gone_is_no_commit(tmp_path: Path) -> None:
    assert Sender(tmp_path).commit(40) == on.CommitFailed(KEY, 40, "step-40 is gone")


def test_a_folder_rotated_away_in_the_middle_is_committed_all_the_same(tmp_path: Path) -> None:
    folder = save(tmp_path, 40)
    sender = Sender(tmp_path)

    rotating = threading.Lock()

    def before(_operation: str, _key: str) -> None:
        with rotating:
            if folder.exists():
                old = folder.rename(tmp_path / ".step-40.old")
                for path in FILES:
                    (old / path).unlink()

    sender.store.before = before

    assert isinstance(sender.commit(40), on.Committed)


def test_passing_trouble_is_waited_out(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path)
    troubles = {"put_file": 2, "commit": 1}

    def before(operation: str, _key: str) -> None:
        if troubles[operation]:
            troubles[operation] -= 1
            raise UnknownOutcomeError("503")

    sender.store.before = before

    assert isinstance(sender.commit(40), on.Committed)
    assert troubles == {"put_file": 0, "commit": 0}


def test_a_manifest_whose_answer_was_lost_is_ours(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path)
    lost = [True]

    class Forgetful(MemoryCheckpoints):
        def commit(self, manifest: Any) -> Any:
            standing = super().commit(manifest)
            if lost.pop() if lost else False:
                raise UnknownOutcomeError("no answer")
            return standing

    sender.store = Forgetful()
    sender.__post_init__()

    event = sender.commit(40)

    assert isinstance(event, on.Committed)
    assert sender.store.manifest(event.manifest).parent is None


def test_no_manifest_is_written_while_the_lease_isnt_surely_ours(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path, ours=False)

    sender.uploads.start(40)
    wait_until(lambda: len(sender.store.objects) == 2, "the data is there")
    assert sender.said == []
    sender.ours = True

    wait_until(lambda: sender.said, "committed")
    assert isinstance(sender.said[0], on.Committed)


def test_an_aborted_upload_commits_nothing_and_says_nothing(tmp_path: Path) -> None:
    save(tmp_path, 40)
    sender = Sender(tmp_path)
    gate = threading.Event()

    def before(operation: str, _key: str) -> None:
        if operation == "put_file":
            gate.wait(10)

    sender.store.before = before
    sender.uploads.start(40)
    sender.uploads.start(40)  # said twice is one upload
    wait_until(lambda: len(sender.store.calls) == 2, "under way")
    sender.uploads.abort((40,))
    gate.set()

    wait_until(sender.idle, "ended")
    assert sender.said == []
    assert [op for op, _ in sender.store.calls] == ["put_file", "put_file"]


def test_only_the_steps_named_are_aborted(tmp_path: Path) -> None:
    for step in (40, 50):
        save(tmp_path, step)
    sender = Sender(tmp_path, ours=False)
    sender.uploads.start(40)
    sender.uploads.start(50)

    sender.uploads.abort((40,))
    sender.ours = True

    wait_until(sender.idle, "both ended")
    assert [event.step for event in sender.said if isinstance(event, on.Committed)] == [50]


# Bytes that need not be sent ----------------------------------------------------------------


def sent(store: MemoryCheckpoints) -> list[str]:
    return sorted(Path(key).name for operation, key in store.calls if operation == "put_file")


def test_of_a_job_that_trains_one_file_only_that_file_is_sent_again(tmp_path: Path) -> None:
    frozen, trained = b"backbone" * 12_500, b"adapter!" * 125  # 100 : 1
    sender = Sender(tmp_path)
    save(tmp_path, 10, {"frozen.bin": frozen, "lora.bin": trained})
    first = sender.commit(10)
    save(tmp_path, 20, {"frozen.bin": frozen, "lora.bin": trained[::-1]})

    second = sender.commit(20)

    assert isinstance(first, on.Committed)
    assert isinstance(second, on.Committed)
    assert (first.sent, second.sent) == (len(frozen) + len(trained), len(trained))
    assert sent(sender.store) == ["frozen.bin", "lora.bin", "lora.bin"]
    files = {f.path: f for f in sender.store.manifest(second.manifest).files}
    assert sender.store.objects[files["frozen.bin"].key] == frozen
    assert sender.store.objects[files["lora.bin"].key] == trained[::-1]


def test_an_attempt_that_resumed_sends_nothing_of_its_base_again(tmp_path: Path) -> None:
    save(tmp_path / "one", 10)
    first = Sender(tmp_path / "one")
    base = first.commit(10)
    assert isinstance(base, on.Committed)
    save(tmp_path / "two", 20, FILES | {"model.bin": b"trained on"})

    again = Sender(tmp_path / "two", store=first.store, parent=base.manifest).commit(20)

    assert isinstance(again, on.Committed)
    assert again.sent == len(b"trained on")


def test_files_of_equal_content_are_sent_once(tmp_path: Path) -> None:
    save(tmp_path, 10, {"a.bin": b"same", "b.bin": b"same", "c.bin": b"other"})
    sender = Sender(tmp_path)

    event = sender.commit(10)

    assert isinstance(event, on.Committed)
    assert len(sent(sender.store)) == 2
    manifest = sender.store.manifest(event.manifest)
    assert [sender.store.objects[f.key] for f in manifest.files] == [b"same", b"same", b"other"]


def test_an_agent_that_starts_again_sends_no_finished_file_twice(tmp_path: Path) -> None:
    save(tmp_path / "saves", 40)
    ledgers = Ledgers(tmp_path / "ledgers")
    first = Sender(tmp_path / "saves", ledgers=ledgers, ours=False)
    first.uploads.start(40)
    wait_until(lambda: len(done_ledgers(tmp_path / "ledgers")) == 2, "both files are there")

    second = Sender(tmp_path / "saves", store=first.store, ledgers=ledgers)
    event = second.commit(40)

    assert isinstance(event, on.Committed)
    assert sent(first.store) == ["model.bin", "optimizer.bin"]
    assert {f.path: first.store.objects[f.key] for f in manifest_of(event, first).files} == FILES
    assert done_ledgers(tmp_path / "ledgers") == []
    first.uploads.abort()
    wait_until(first.idle, "ended")


def done_ledgers(folder: Path) -> list[Path]:
    found = [p for p in folder.rglob("*.json") if not p.name.startswith(".")]
    return [p for p in found if json.loads(p.read_text())["done"]]


def manifest_of(event: on.Committed, sender: Sender) -> Manifest:
    return sender.store.manifest(event.manifest)


def test_a_ledger_keeps_its_parts_for_the_next_life(tmp_path: Path) -> None:
    ledgers = Ledgers(tmp_path)
    ledger = ledgers.of(40, "ab" * 32, key="a key")
    ledger.begin("upload", 64)
    ledger.sent(2, "tag")

    found = ledgers.of(40, "ab" * 32, key="another key")
    assert (found.key, found.upload_id, found.part_bytes) == ("a key", "upload", 64)
    assert found.parts == {2: "tag"}

    found.forget()
    assert ledgers.of(40, "ab" * 32, key="another key").parts == {}


def test_a_ledger_that_cant_be_read_is_a_new_one(tmp_path: Path) -> None:
    ledgers = Ledgers(tmp_path)
    ledgers.of(40, "ab" * 32, key="a key").end()
    (tmp_path / "40" / f"{'ab' * 32}.json").write_text('{"key": "a key", "parts": [')

    assert ledgers.of(40, "ab" * 32, key="a new key").key == "a new key"


def test_what_was_measured_travels_with_the_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 40, seconds=12.0)
    sender = Sender(tmp_path)
    known = Estimates(save_seconds=2.0, bytes=1000.0, bytes_per_second=1.0, step_seconds=0.5)

    sender.uploads.start(40, known)
    wait_until(lambda: bool(sender.said), "an answer")

    (event,) = sender.said
    assert isinstance(event, on.Committed)
    measured = manifest_of(event, sender).measured
    assert measured is not None
    assert (measured.host, measured.step_seconds) == ("g5.xlarge", 0.5)
    assert measured.save_seconds == pytest.approx(2.0 + NEWEST * 10.0)
    assert measured.size == pytest.approx(1000 + NEWEST * (event.bytes - 1000))


# Sending while the job still saves ----------------------------------------------------------


def unfinished(folder: Path, step: int, files: dict[str, bytes]) -> Path:
    part = folder / f".step-{step}.part"
    part.mkdir(parents=True)
    for path, body in files.items():
        (part / path).write_bytes(body)
    return part


def test_in_a_hurry_a_finished_file_goes_up_while_the_save_goes_on(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {"model.bin": FILES["model.bin"]})

    sender.uploads.hurry(urgent=True)
    wait_until(lambda: sent(sender.store) == ["model.bin"], "sent ahead")
    sender.uploads.hurry(urgent=False)
    assert [op for op, _ in sender.store.calls if op == "commit"] == []
    (part / "optimizer.bin").write_bytes(b"written last")
    describe(part, 40)
    part.rename(tmp_path / "step-40")
    event = sender.commit(40)

    assert isinstance(event, on.Committed)
    assert sent(sender.store) == ["model.bin", "optimizer.bin"]
    stored = {f.path: sender.store.objects[f.key] for f in manifest_of(event, sender).files}
    assert stored == {"model.bin": FILES["model.bin"], "optimizer.bin": b"written last"}


def test_a_file_that_changed_after_it_was_sent_ahead_is_sent_again(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {"model.bin": b"first half"})
    sender.uploads.hurry(urgent=True)
    wait_until(lambda: sent(sender.store) == ["model.bin"], "sent ahead, too early")
    sender.uploads.hurry(urgent=False)

    with (part / "model.bin").open("ab") as file:
        file.write(b" and the second")
    describe(part, 40)
    part.rename(tmp_path / "step-40")
    event = sender.commit(40)

    assert isinstance(event, on.Committed)
    (stored,) = manifest_of(event, sender).files
    assert sender.store.objects[stored.key] == b"first half and the second"


def test_what_the_job_left_undigested_is_digested_as_it_is_sent(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {"model.bin": b"sent ahead"})
    sender.uploads.hurry(urgent=True)
    wait_until(lambda: sent(sender.store) == ["model.bin"], "sent ahead")
    sender.uploads.hurry(urgent=False)
    (part / "optimizer.bin").write_bytes(b"written last")
    (part / "empty.bin").write_bytes(b"")
    describe(part, 40)
    rewrite(part, lambda manifest: [file.pop("sha256") for file in manifest["files"]])
    part.rename(tmp_path / "step-40")

    event = sender.commit(40)

    assert isinstance(event, on.Committed)
    bodies = {"model.bin": b"sent ahead", "optimizer.bin": b"written last", "empty.bin": b""}
    digests = {path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()}
    entries = manifest_of(event, sender).files
    assert {f.path: f.sha256 for f in entries} == digests
    assert {f.path: sender.store.objects[f.key] for f in entries} == bodies
    assert sent(sender.store) == ["empty.bin", "model.bin", "optimizer.bin"]


def test_a_file_sent_ahead_whose_digest_the_job_says_wrongly_isnt_committed(
    tmp_path: Path,
) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {"model.bin": b"weights"})
    sender.uploads.hurry(urgent=True)
    wait_until(lambda: sent(sender.store) == ["model.bin"], "sent ahead")
    describe(part, 40)
    rewrite(part, lambda manifest: manifest["files"][0].update(sha256="0" * 64))
    part.rename(tmp_path / "step-40")

    event = sender.commit(40)

    assert isinstance(event, on.CommitFailed)
    assert "model.bin has another SHA-256" in event.reason
    sender.uploads.abort()


def test_what_is_still_written_isnt_sent_ahead(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {})
    with (part / "growing.bin").open("wb") as growing:
        growing.write(b"first half")
        growing.flush()
        (part / "model.bin").write_bytes(b"complete")
        sender.uploads.hurry(urgent=True)
        wait_until(lambda: "model.bin" in sent(sender.store), "the finished one was sent")

        assert sent(sender.store) == ["model.bin"]
    wait_until(lambda: sent(sender.store) == ["growing.bin", "model.bin"], "the other followed")
    sender.uploads.abort()


def test_a_frozen_file_isnt_sent_again_in_a_hurry_either(tmp_path: Path) -> None:
    frozen = b"frozen weights"
    save(tmp_path, 30, {"frozen.bin": frozen, "adapter.bin": b"adapter at 30"})
    sender = Sender(tmp_path)
    first = sender.commit(30)
    assert isinstance(first, on.Committed)
    part = unfinished(tmp_path, 40, {"frozen.bin": frozen, "adapter.bin": b"adapter at 40"})
    sender.uploads.hurry(urgent=True)
    wait_until(lambda: sent(sender.store).count("adapter.bin") == 2, "sent ahead")
    sender.uploads.hurry(urgent=False)
    describe(part, 40)
    rewrite(part, lambda manifest: [file.pop("sha256") for file in manifest["files"]])
    part.rename(tmp_path / "step-40")

    second = sender.commit(40)

    assert isinstance(second, on.Committed)
    keys = [
        {file.path: file.key for file in manifest_of(event, sender).files}["frozen.bin"]
        for event in (first, second)
    ]
    assert keys[0] == keys[1]
    assert second.sent == len(b"adapter at 40")


def test_without_hurry_nothing_unfinished_is_looked_at(tmp_path: Path) -> None:
    unfinished(tmp_path, 30, {"model.bin": b"unfinished"})
    save(tmp_path, 40)
    sender = Sender(tmp_path)

    sender.commit(40)

    assert sent(sender.store) == ["model.bin", "optimizer.bin"]


def test_trouble_while_sending_ahead_costs_nothing_but_the_try(tmp_path: Path) -> None:
    sender = Sender(tmp_path)
    part = unfinished(tmp_path, 40, {"model.bin": b"weights"})
    tries: list[str] = []

    def before(operation: str, key: str) -> None:
        if operation == "put_file" and not tries:
            tries.append(key)
            raise UnknownOutcomeError("503")

    sender.store.before = before
    sender.uploads.hurry(urgent=True)
    wait_until(lambda: tries, "tried")
    describe(part, 40)
    part.rename(tmp_path / "step-40")

    assert isinstance(sender.commit(40), on.Committed)
    sender.uploads.abort()


def describe(part: Path, step: int) -> None:
    """Write the manifest of what lies in *part*, as a job does last."""
    bodies = {path.name: path.read_bytes() for path in sorted(part.iterdir())}
    files = [
        {"path": name, "size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for name, body in bodies.items()
    ]
    (part / "MANIFEST.json").write_text(json.dumps({"v": 1, "step": step, "files": files}))


# How many stay here --------------------------------------------------------------------------


def test_op_20_with_one_kept_a_failed_save_leaves_the_last_durable_one(tmp_path: Path) -> None:
    save(tmp_path, 100)
    sender = Sender(tmp_path)
    durable = sender.commit(100)
    assert isinstance(durable, on.Committed)
    checkpoint.prune(tmp_path, 100, kept=1)
    save(tmp_path, 200)
    failing = [True]

    def before(operation: str, _key: str) -> None:
        if operation == "commit" and failing[0]:
            raise UnknownOutcomeError("503 Slow Down")

    sender.store.before = before
    sender.uploads.start(200)
    wait_until(lambda: ("commit", manifest_key("job-1", 1, 200)) in sender.store.calls, "tried")

    assert checkpoint.whole_steps(tmp_path) == [100, 200]  # nothing was cleared for it
    assert sender.store.manifests("job-1", 1) == [durable.manifest]

    failing[0] = False
    sender.uploads.abort((200,))
    wait_until(sender.idle, "given up")
    save(tmp_path, 300)
    assert isinstance(sender.commit(300), on.Committed)
    checkpoint.prune(tmp_path, 300, kept=1)

    assert checkpoint.whole_steps(tmp_path) == [300]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_limit_of_none_is_a_limit_of_one(tmp_path: Path, kept: int) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)

    checkpoint.prune(tmp_path, 20, kept=kept)

    assert checkpoint.whole_steps(tmp_path) == [20, 30]


@pytest.mark.parametrize(
    ("names", "newest"),
    [(("step-900", "step-1000"), 1000), (("step-100000", "step-0900000"), 900000)],
)
def test_op_21_steps_are_numbers_and_other_names_nobody_s_business(
    tmp_path: Path, names: tuple[str, ...], newest: int
) -> None:
    for name in names:
        save(tmp_path, int(name.removeprefix("step-")), name=name)
    for odd in ("step-1000-tmp", "handpicked"):
        save(tmp_path, 2_000_000, name=odd)

    assert checkpoint.whole_steps(tmp_path)[-1] == newest
    checkpoint.prune(tmp_path, 10_000_000, kept=1)

    assert checkpoint.whole_steps(tmp_path) == [newest]
    assert (tmp_path / "step-1000-tmp").exists()
    assert (tmp_path / "handpicked").exists()
