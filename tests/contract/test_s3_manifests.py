"""Manifests over S3: one list that begins behind what is known, and no word taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.config import Config

from reprieve.adapters.s3_manifests import S3Manifests
from reprieve.adapters.s3_stored import S3Stored
from reprieve.domain.checkpoint import Manifest, data_key, manifest_key, mark_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.job import CheckpointRef
from tests.builders import NOON

pytestmark = pytest.mark.e2e

JOB = "train-1"


@dataclass
class Bucket:
    """A bucket that no other test has."""

    s3: Any
    name: str

    def commit(self, attempt: int, step: int) -> str:
        manifest = Manifest(JOB, attempt, "token", step, parent=None, files=(), saved_at=NOON)
        self.put(manifest.key, manifest.to_json())
        return manifest.key

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket=self.name, Key=key, Body=body)


@pytest.fixture
def bucket(account: dict[str, str]) -> Iterator[Bucket]:
    config = Config(s3={"addressing_style": "path"})
    client: Any = boto3.client("s3", **account, config=config)  # type: ignore[call-overload]
    bucket = Bucket(client, f"manifests-{account['aws_access_key_id']}")
    client.create_bucket(Bucket=bucket.name)
    yield bucket
    client.close()


@pytest.fixture
def manifests(bucket: Bucket) -> S3Manifests:
    return S3Manifests(lambda: bucket.s3, bucket.name)


def test_the_newest_commit_beyond_what_is_known_is_found(
    bucket: Bucket, manifests: S3Manifests
) -> None:
    for step in (900, 1000, 30):
        bucket.commit(2, step)

    assert manifests.newest(JOB, 2, after=900) == CheckpointRef(1000, manifest_key(JOB, 2, 1000))


def test_nothing_beyond_what_is_known_is_nothing(bucket: Bucket, manifests: S3Manifests) -> None:
    bucket.commit(2, 30)

    assert manifests.newest(JOB, 2, after=30) is None
    assert manifests.newest(JOB, 3, after=30) is None


def test_when_nothing_is_known_also_a_commit_of_step_0_is_news(
    bucket: Bucket, manifests: S3Manifests
) -> None:
    key = bucket.commit(1, 0)

    assert manifests.newest(JOB, 1, after=None) == CheckpointRef(0, key)


def test_other_attempts_and_other_names_are_not_looked_at(
    bucket: Bucket, manifests: S3Manifests
) -> None:
    bucket.commit(3, 50)
    bucket.put(f"jobs/{JOB}/manifests/000002-handpicked.json", b"{}")

    assert manifests.newest(JOB, 2, after=None) is None


def test_one_that_cannot_be_read_gives_way_to_the_one_before(
    bucket: Bucket, manifests: S3Manifests
) -> None:
    key = bucket.commit(2, 40)
    bucket.put(manifest_key(JOB, 2, 41), b"not a manifest")

    assert manifests.newest(JOB, 2, after=30) == CheckpointRef(40, key)


def test_a_bucket_that_refuses_is_no_empty_bucket(bucket: Bucket) -> None:
    elsewhere = S3Manifests(lambda: bucket.s3, "no-such-bucket")

    with pytest.raises(UnknownOutcomeError, match="NoSuchBucket"):
        elsewhere.newest(JOB, 1, after=None)


def test_all_of_a_job_is_listed_and_what_is_deleted_is_gone(bucket: Bucket) -> None:
    kept, gone = bucket.commit(2, 900), bucket.commit(2, 800)
    data = data_key(JOB, 2, "save", "model.bin")
    bucket.put(data, b"weights")
    bucket.put(mark_key(gone), b"{}")
    bucket.put(data_key("train-10", 2, "save", "model.bin"), b"another job's")
    stored = S3Stored(lambda: bucket.s3, bucket.name)

    found = stored.listing(JOB)
    assert set(found.manifests) == {kept, gone}
    assert {key: one.size for key, one in found.data.items()} == {data: 7}
    assert found.marks == {gone}

    stored.delete([gone, mark_key(gone), "jobs/train-1/data/000001/never/was.bin"])

    again = stored.listing(JOB)
    assert (set(again.manifests), set(again.data), again.marks) == ({kept}, {data}, frozenset())
    assert stored.manifest(gone) is None
