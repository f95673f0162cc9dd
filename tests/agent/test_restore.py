"""Which checkpoint an attempt starts from, with every kind of damage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reprieve.domain.checkpoint import FileEntry, Manifest, Measured, data_key, manifest_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.lease import Lease
from reprieve.ports.checkpoints import AbortedError
from reprieve_agent.restore import NoValidCheckpointError, Restored, Restorer
from tests.agent.fakes import MemoryCheckpoints
from tests.builders import NOON, a_key, a_lease

JOB = "job-1"


@dataclass
class Bucket:
    """A bucket with checkpoints in it, and what was passed over."""

    folder: Path
    store: MemoryCheckpoints = field(default_factory=MemoryCheckpoints)
    passed_over: dict[str, str] = field(default_factory=dict)

    def commit(self, attempt: int, step: int, parent: str | None = None) -> str:
        """Put a checkpoint of two files there; return its manifest's key."""
        files = []
        for path in ("model.bin", "deep/optimizer.bin"):
            body = f"{attempt} {step} {path}".encode() * 50
            key = data_key(JOB, attempt, f"save-{step}", path)
            self.store.objects[key] = body
            files.append(FileEntry(path, key, len(body), hashlib.sha256(body).hexdigest()))
        manifest = Manifest(JOB, attempt, f"t{attempt}", step, parent, tuple(files), NOON)
        return self.store.commit(manifest).key

    def file_of(self, manifest: str) -> str:
        return self.store.manifest(manifest).files[0].key

    def restore(self, lease: Lease) -> Restored:
        return self.restorer().restore(lease, self.target, None)

    def restorer(self, stopped: Callable[[], bool] = lambda: False) -> Restorer:
        return Restorer(self.store, self._pass_over, stopped, by="i-0bb00000000000001")

    @property
    def target(self) -> Path:
        target = self.folder / "resume"
        target.mkdir(exist_ok=True)
        return target

    def restored_files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.target)): path.read_bytes()
            for path in self.target.rglob("*")
            if path.is_file()
        }

    def _pass_over(self, key: str, reason: str) -> None:
        self.passed_over[key] = reason


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def test_what_was_measured_comes_back_with_the_checkpoint(bucket: Bucket) -> None:
    measured = Measured("g5.xlarge", 2.0, 700.0, 350.0, 0.5)
    key = bucket.commit(1, 1000)
    told = replace(bucket.store.manifest(key), measured=measured)
    bucket.store.objects[key] = told.to_json()

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(key, 1000, measured)


def attempt(n: int, sealed_attempt: int, base: str | None = None) -> Lease:
    return a_lease(key=a_key(attempt=n, token=f"t{n}"), sealed_attempt=sealed_attempt, base=base)


def test_the_newest_commit_of_the_sealed_attempt_is_restored_and_nothing_else(
    bucket: Bucket,
) -> None:
    bucket.commit(1, 900)
    newest = bucket.commit(1, 1000)
    (bucket.target / "left over").mkdir()
    (bucket.target / "left over" / "file").write_text("of an earlier try")

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(newest, 1000)
    assert set(bucket.restored_files()) == {"model.bin", "deep/optimizer.bin", "MANIFEST.json"}


def test_a_job_that_never_committed_starts_from_nothing(bucket: Bucket) -> None:
    assert bucket.restore(attempt(1, sealed_attempt=0)) == Restored()
    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored()
    assert bucket.restored_files() == {}


def test_commits_that_have_vanished_are_no_fresh_start(bucket: Bucket) -> None:
    lost = replace(attempt(4, sealed_attempt=3), pointer=manifest_key(JOB, 3, 400))
    with pytest.raises(NoValidCheckpointError, match="the bucket has none, though"):
        bucket.restore(lost)


def test_an_attempt_that_never_sealed_is_not_of_the_lineage(bucket: Bucket) -> None:
    own = bucket.commit(1, 10)
    bucket.commit(2, 45)  # a host that thawed and committed, though attempt 2 never sealed

    assert bucket.restore(attempt(3, sealed_attempt=1)) == Restored(own, 10)


def test_a_later_step_of_an_abandoned_attempt_is_not_of_the_lineage(bucket: Bucket) -> None:
    bucket.commit(1, 45)  # committed by a thawed host after attempt 2 had sealed from nothing
    own = bucket.commit(2, 3)

    assert bucket.restore(attempt(3, sealed_attempt=2)) == Restored(own, 3)


def test_a_sealed_attempt_without_a_commit_leads_to_its_base(bucket: Bucket) -> None:
    base = bucket.commit(1, 40)
    bucket.commit(1, 60)  # later than the base: a late commit of attempt 1

    assert bucket.restore(attempt(3, sealed_attempt=2, base=base)) == Restored(base, 40)


def _flip(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


DAMAGE: dict[str, Callable[[Bucket, str], object]] = {
    "a truncated file": lambda b, m: b.store.objects.update(
        {b.file_of(m): b.store.objects[b.file_of(m)][:-7]}
    ),
    "a flipped byte": lambda b, m: b.store.objects.update(
        {b.file_of(m): _flip(b.store.objects[b.file_of(m)])}
    ),
    "a missing file": lambda b, m: b.store.objects.pop(b.file_of(m)),
    "a file of zero bytes": lambda b, m: b.store.objects.update({b.file_of(m): b""}),
    "a truncated manifest": lambda b, m: b.store.objects.update({m: b.store.objects[m][:-9]}),
    "an empty manifest": lambda b, m: b.store.objects.update({m: b""}),
    "a manifest that isn't one": lambda b, m: b.store.objects.update({m: b'["a list"]'}),
    "another step's manifest": lambda b, m: b.store.objects.update(
        {m: b.store.objects[m].replace(b'"step": 1000', b'"step": 1001')}
    ),
    "a manifest that leads outside": lambda b, m: b.store.objects.update(
        {m: b.store.objects[m].replace(b'"model.bin"', b'"../../etc/x"')}
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    bucket: Bucket, damage: Callable[[Bucket, str], object]
) -> None:
    before = bucket.commit(1, 900)
    newest = bucket.commit(1, 1000, parent=before)
    damage(bucket, newest)

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(before, 900)
    assert list(bucket.passed_over) == [newest]
    assert bucket.passed_over[newest]
    assert bucket.restored_files()["model.bin"] == b"1 900 model.bin" * 50


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_base_leads_to_its_ancestors(
    bucket: Bucket, damage: Callable[[Bucket, str], object]
) -> None:
    first = bucket.commit(1, 20)
    older = bucket.commit(3, 990, parent=first)
    base = bucket.commit(3, 1000, parent=older)
    bucket.commit(2, 5000)  # never sealed
    damage(bucket, base)

    assert bucket.restore(attempt(5, sealed_attempt=4, base=base)) == Restored(older, 990)


def test_ancestors_are_followed_across_attempts(bucket: Bucket) -> None:
    first = bucket.commit(1, 20)
    second = bucket.commit(2, 40, parent=first)
    third = bucket.commit(3, 60, parent=second)
    for bad in (second, third):
        bucket.store.objects[bucket.file_of(bad)] = b"damaged"

    assert bucket.restore(attempt(5, sealed_attempt=4, base=third)) == Restored(first, 20)
    assert list(bucket.passed_over) == [third, second]


def test_when_all_are_bad_nothing_starts_silently_from_zero(bucket: Bucket) -> None:
    for step in (10, 20):
        bucket.store.objects[bucket.file_of(bucket.commit(1, step))] = b""

    with pytest.raises(NoValidCheckpointError, match="all 2"):
        bucket.restore(attempt(2, sealed_attempt=1))


def test_a_base_that_points_to_nothing_is_no_fresh_start(bucket: Bucket) -> None:
    nowhere = manifest_key(JOB, 1, 40)

    with pytest.raises(NoValidCheckpointError):
        bucket.restore(attempt(3, sealed_attempt=2, base=nowhere))


def test_what_one_host_set_aside_no_other_fetches_again(bucket: Bucket) -> None:
    before, newest = bucket.commit(1, 900), bucket.commit(1, 1000)
    bucket.store.objects[bucket.file_of(newest)] = b""
    bucket.restore(attempt(2, sealed_attempt=1))
    reason = bucket.passed_over[newest]
    bucket.store.calls.clear()

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(before, 900)
    assert ("manifest", newest) not in bucket.store.calls
    assert bucket.passed_over[newest] == f"set aside before: {reason}"


def test_a_mark_parks_no_job_a_host_with_bad_memory_may_have_set_it(bucket: Bucket) -> None:
    good, bad = bucket.commit(1, 900), bucket.commit(1, 1000)
    bucket.store.objects[bucket.file_of(bad)] = b""
    for key in (good, bad):
        bucket.store.set_aside(key, "another SHA-256 than its manifest says", by="i-0aa")

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(good, 900)


def test_a_mark_that_cant_be_written_is_no_reason_to_wait(bucket: Bucket) -> None:
    before, newest = bucket.commit(1, 900), bucket.commit(1, 1000)
    bucket.store.objects[bucket.file_of(newest)] = b""

    def refuse(operation: str, _key: str) -> None:
        if operation == "set_aside":
            raise UnknownOutcomeError("AccessDenied")

    bucket.store.before = refuse

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(before, 900)
    assert list(bucket.passed_over) == [newest]


def _of_op_19(bucket: Bucket, *, whole: bool) -> list[str]:
    """Step 100 whole (or damaged too), 200 without manifest, 300 with an empty file, 400 cut."""
    steps: list[str] = []
    for step in (100, 200, 300, 400):
        steps.append(bucket.commit(1, step, parent=steps[-1] if steps else None))
    del bucket.store.objects[steps[1]]
    optimizer, last = (
        bucket.store.manifest(steps[2]).files[1].key,
        bucket.store.manifest(steps[3]).files[-1].key,
    )
    bucket.store.objects[optimizer] = b""
    bucket.store.objects[last] = bucket.store.objects[last][:-8]
    if not whole:
        bucket.store.objects[bucket.file_of(steps[0])] = b"other bytes"
    return steps


def test_op_19_the_newest_whole_one_is_taken_and_the_others_named(bucket: Bucket) -> None:
    first, *rejected = _of_op_19(bucket, whole=True)

    restored = bucket.restore(attempt(2, sealed_attempt=1))

    assert restored == Restored(first, 100)
    assert list(bucket.passed_over) == [rejected[2], rejected[1], rejected[0]]
    assert "bytes, not" in bucket.passed_over[rejected[2]]
    assert "has 0 bytes, not" in bucket.passed_over[rejected[1]]
    assert bucket.passed_over[rejected[0]] == "its manifest doesn't exist"


def test_op_19_all_bad_waits_for_a_person(bucket: Bucket) -> None:
    steps = _of_op_19(bucket, whole=False)

    with pytest.raises(NoValidCheckpointError, match="all 3 checkpoints"):
        bucket.restore(attempt(2, sealed_attempt=1))

    assert set(bucket.passed_over) == set(steps)


def test_op_19_an_empty_bucket_is_a_fresh_start_only_if_nothing_was_ever_committed(
    bucket: Bucket,
) -> None:
    assert bucket.restore(attempt(1, sealed_attempt=0)) == Restored()
    assert bucket.restore(attempt(4, sealed_attempt=3)) == Restored()
    with pytest.raises(NoValidCheckpointError):
        bucket.restore(replace(attempt(4, sealed_attempt=3), pointer=manifest_key(JOB, 3, 400)))


def test_op_21_in_the_bucket_too_steps_are_numbers(bucket: Bucket) -> None:
    bucket.commit(1, 900)
    newest = bucket.commit(1, 1000)
    for odd in ("000001-000000001000-tmp.json", "000001-0000000009999.json", "handpicked.json"):
        bucket.store.objects[f"jobs/{JOB}/manifests/{odd}"] = b"{}"

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(newest, 1000)
    assert bucket.passed_over == {}


def test_a_job_finds_the_manifest_of_what_was_restored(bucket: Bucket) -> None:
    bucket.commit(1, 900)

    bucket.restore(attempt(2, sealed_attempt=1))

    said = json.loads(bucket.restored_files()["MANIFEST.json"])
    assert (said["v"], said["step"], said["attempt"], said["world_size"]) == (1, 900, 1, 1)
    assert [file["path"] for file in said["files"]] == ["model.bin", "deep/optimizer.bin"]


def test_passing_trouble_condemns_nothing(bucket: Bucket) -> None:
    newest = bucket.commit(1, 1000)
    troubles = {"manifests": 1, "manifest": 2, "fetch": 3}

    def before(operation: str, _key: str) -> None:
        if troubles.get(operation, 0):
            troubles[operation] -= 1
            raise UnknownOutcomeError("503 Slow Down")

    bucket.store.before = before

    assert bucket.restore(attempt(2, sealed_attempt=1)) == Restored(newest, 1000)
    assert bucket.passed_over == {}
    assert troubles == {"manifests": 0, "manifest": 0, "fetch": 0}


def test_a_restore_can_be_called_off_in_the_middle_of_trouble(bucket: Bucket) -> None:
    bucket.commit(1, 1000)
    stop = [False]

    def before(operation: str, _key: str) -> None:
        stop[0] = operation == "fetch"
        if stop[0]:
            raise UnknownOutcomeError("503 Slow Down")

    bucket.store.before = before

    with pytest.raises(AbortedError):
        bucket.restorer(lambda: stop[0]).restore(attempt(2, sealed_attempt=1), bucket.target, None)
    assert bucket.restored_files() == {}


def test_a_base_that_is_sealed_already_is_restored_or_nothing(bucket: Bucket) -> None:
    older, base = bucket.commit(1, 900), bucket.commit(1, 1000)
    restorer = bucket.restorer()

    assert restorer.restore_exactly(older, bucket.target, None) == Restored(older, 900)
    assert restorer.restore_exactly(None, bucket.target, None) == Restored()
    bucket.store.objects[bucket.file_of(base)] = b""
    with pytest.raises(NoValidCheckpointError):
        restorer.restore_exactly(base, bucket.target, None)
