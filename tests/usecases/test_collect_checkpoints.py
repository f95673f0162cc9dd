"""What is deleted in the bucket, and above all what isn't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from reprieve.adapters.memory import Memory
from reprieve.domain.checkpoint import FileEntry, Manifest, data_key, mark_key
from reprieve.domain.job import Job
from reprieve.domain.lease import Lease, LeaseState
from reprieve.domain.retention import Retention
from reprieve.ports.stored import Listing, Object
from reprieve.usecases.collect_checkpoints import CollectCheckpoints, Collection
from tests.builders import NOON, a_held_lease, a_job

LONG_AGO = NOON - timedelta(hours=1)
GRACE = timedelta(minutes=4)


@dataclass
class Bucket:
    """``Stored``, with what lies in it."""

    manifests: dict[str, tuple[Manifest, datetime]] = field(default_factory=dict)
    data: dict[str, Object] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def commit(
        self,
        attempt: int,
        step: int,
        parent: str | None = None,
        *,
        files: dict[str, str] | None = None,
        at: datetime = LONG_AGO,
    ) -> str:
        """Add a checkpoint; *files* maps a path to the save that its bytes are of."""
        entries = []
        for path, save in (files or {"model.bin": f"s{step}"}).items():
            key = save if "/" in save else data_key("job-1", attempt, save, path)
            self.data.setdefault(key, Object(7, at))
            entries.append(FileEntry(path, key, 7, "0" * 64))
        manifest = Manifest("job-1", attempt, f"t{attempt}", step, parent, tuple(entries), NOON)
        self.manifests[manifest.key] = manifest, at
        return manifest.key

    def steps(self) -> list[tuple[int, int]]:
        return sorted((m.attempt, m.step) for m, _ in self.manifests.values())

    def saves(self) -> set[str]:
        return {key.split("/")[4] for key in self.data}

    def listing(self, job: str) -> Listing:
        assert job == "job-1"
        manifests = {key: Object(1, at) for key, (_, at) in self.manifests.items()}
        return Listing(manifests, dict(self.data), frozenset(self.marks))

    def manifest(self, key: str) -> Manifest | None:
        return self.manifests[key][0] if key in self.manifests else None

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.calls.append(key.split("/")[2])
            self.manifests.pop(key, None)
            self.data.pop(key, None)
            self.marks.discard(key.replace("/set-aside/", "/manifests/"))


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def collect(
    bucket: Bucket,
    lease: Lease | None = None,
    *,
    job: Job | None = None,
    keep: int = 3,
    every: int = 0,
) -> Collection:
    memory = Memory(lambda: NOON)
    job = job or a_job()
    held = lease or training(job, bucket)
    memory.job_rows[job.id] = job
    memory.lease_rows[held.key] = held
    use = CollectCheckpoints(memory.rows, bucket, Retention(keep, every), GRACE, lambda: NOON)
    return use(job.id)


def training(job: Job, bucket: Bucket, **changes: Any) -> Lease:
    """Return a lease that is held, sealed and has committed."""
    newest = max(bucket.manifests, default=None)
    held = a_held_lease(job, sealed_attempt=job.attempt, committed_manifest=newest)
    return replace(held, **changes)


def second_attempt() -> Job:
    return a_job(attempt=2, token="t2")


def test_the_newest_three_stay_and_the_manifests_go_before_their_bytes(bucket: Bucket) -> None:
    for step in (10, 20, 30, 40, 50):
        bucket.commit(1, step)

    found = collect(bucket)

    assert bucket.steps() == [(1, 30), (1, 40), (1, 50)]
    assert bucket.saves() == {"s30", "s40", "s50"}
    assert bucket.calls == ["manifests", "manifests", "data", "data"]
    assert (len(found.manifests), found.bytes) == (2, 14)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"sealed_attempt": 0}, id="not sealed: it is still choosing"),
        pytest.param({"committed_manifest": None}, id="sealed, and nothing committed yet"),
        pytest.param({"state": LeaseState.FREE, "holder": None}, id="nobody holds it"),
        pytest.param({"state": LeaseState.DONE}, id="released"),
        pytest.param({"state": LeaseState.CLOSED}, id="closed"),
    ],
)
def test_nothing_goes_while_anybody_could_choose_it(
    bucket: Bucket, changes: dict[str, Any]
) -> None:
    for step in (10, 20, 30, 40, 50):
        bucket.commit(1, step)

    assert not collect(bucket, training(a_job(), bucket, **changes))

    assert bucket.calls == []


@pytest.mark.parametrize("damage", ["missing", "cut", "set aside", "unreadable"])
def test_nothing_goes_unless_the_newest_is_all_there(bucket: Bucket, damage: str) -> None:
    """OP-20: what would be superseded is all there is, if what supersedes it is bad."""
    bucket.commit(1, 100)
    bucket.commit(1, 200)
    newest = bucket.commit(1, 300)
    (file,) = bucket.manifests[newest][0].files
    match damage:
        case "missing":
            del bucket.data[file.key]
        case "cut":
            bucket.data[file.key] = Object(6, LONG_AGO)
        case "set aside":
            bucket.marks.add(newest)
        case _:
            bucket.manifest = lambda key: None  # type: ignore[method-assign]

    assert not collect(bucket, keep=1)
    assert bucket.calls == []


def test_op_20_of_one_kept_the_newest_remains_once_it_is_durable(bucket: Bucket) -> None:
    bucket.commit(1, 100)
    bucket.data[data_key("job-1", 1, "failed", "model.bin")] = Object(3, LONG_AGO)  # of step 200

    assert not collect(bucket, keep=1)
    assert bucket.steps() == [(1, 100)]

    bucket.commit(1, 300, at=NOON)  # a moment ago: who read the older one may be using it
    assert not collect(bucket, keep=1)
    bucket.commit(1, 300)
    bucket.manifests = {k: (m, LONG_AGO) for k, (m, _) in bucket.manifests.items()}
    collect(bucket, keep=1)

    assert bucket.steps() == [(1, 300)]


def test_the_base_stays_and_what_came_before_it_goes(bucket: Bucket) -> None:
    for step in (10, 20, 30):
        bucket.commit(1, step)
    base = bucket.commit(1, 40)
    for step in (50, 60, 70):
        bucket.commit(2, step, parent=base)
    job = second_attempt()

    collect(bucket, training(job, bucket, base=base), job=job)

    assert bucket.steps() == [(1, 40), (2, 50), (2, 60), (2, 70)]


def test_the_newest_of_the_lineage_are_counted_over_attempts(bucket: Bucket) -> None:
    for step in (10, 20, 30):
        bucket.commit(1, step)
    base = bucket.commit(1, 40)
    bucket.commit(2, 50, parent=base)
    job = second_attempt()

    collect(bucket, training(job, bucket, base=base), job=job)

    assert bucket.steps() == [(1, 30), (1, 40), (2, 50)]


def test_commits_outside_the_lineage_go_and_count_for_nothing(bucket: Bucket) -> None:
    base = bucket.commit(1, 40)
    bucket.commit(1, 900)  # by a host that thawed after the next attempt had sealed
    bucket.commit(2, 50, parent=base)
    job = second_attempt()

    collect(bucket, training(job, bucket, base=base), job=job, keep=2)

    assert bucket.steps() == [(1, 40), (2, 50)]


def test_a_lineage_that_cant_be_followed_to_its_beginning_keeps_what_it_may_need(
    bucket: Bucket,
) -> None:
    bucket.commit(1, 20)
    base = bucket.commit(2, 40, parent="jobs/job-1/manifests/000001-000000000030.json")
    bucket.commit(3, 50, parent=base)
    job = a_job(attempt=3, token="t3")
    bucket.manifests.pop("jobs/job-1/manifests/000001-000000000030.json", None)

    collect(bucket, training(job, bucket, base=base), job=job, keep=5)

    assert (1, 20) in bucket.steps()


def test_bytes_that_a_kept_one_names_stay_whoever_sent_them(bucket: Bucket) -> None:
    shared = data_key("job-1", 1, "s10", "frozen.bin")
    for step in (10, 20, 30, 40, 50):
        bucket.commit(1, step, files={"lora.bin": f"s{step}", "frozen.bin": shared})

    collect(bucket)

    assert shared in bucket.data
    assert bucket.saves() == {"s10", "s30", "s40", "s50"}
    assert data_key("job-1", 1, "s10", "lora.bin") not in bucket.data


def test_a_save_that_is_being_sent_isnt_touched_and_one_that_never_ended_is(
    bucket: Bucket,
) -> None:
    base = bucket.commit(1, 40)
    abandoned = data_key("job-1", 1, "abandoned", "model.bin")
    under_way = data_key("job-1", 2, "under way", "model.bin")
    late = data_key("job-1", 1, "late", "model.bin")
    bucket.data |= {abandoned: Object(9, LONG_AGO), under_way: Object(9, LONG_AGO)}
    bucket.data[late] = Object(9, NOON)
    bucket.commit(2, 50, parent=base)
    job = second_attempt()

    collect(bucket, training(job, bucket, base=base), job=job)

    assert abandoned not in bucket.data
    assert {under_way, late} <= bucket.data.keys()


def test_of_every_so_many_steps_the_first_stays_for_good(bucket: Bucket) -> None:
    for step in (5, 95, 105, 195, 205, 295, 305, 395, 405):
        bucket.commit(1, step)

    collect(bucket, every=100)
    assert bucket.steps() == [(1, s) for s in (5, 105, 205, 305, 395, 405)]
    bucket.commit(1, 415)
    collect(bucket, every=100)

    assert bucket.steps() == [(1, s) for s in (5, 105, 205, 305, 395, 405, 415)]


def test_what_was_set_aside_counts_for_nothing_and_goes_with_its_mark(bucket: Bucket) -> None:
    for step in (10, 20, 30, 40, 50):
        bucket.commit(1, step)
    bad = bucket.commit(1, 45)
    bucket.marks.add(bad)

    found = collect(bucket)

    assert bucket.steps() == [(1, 30), (1, 40), (1, 50)]
    assert found.marks == (mark_key(bad),)


def test_what_was_set_aside_stays_while_there_are_too_few_others(bucket: Bucket) -> None:
    bad = bucket.commit(1, 10)
    bucket.commit(1, 20)
    bucket.marks.add(bad)

    assert not collect(bucket)

    assert bucket.steps() == [(1, 10), (1, 20)]
