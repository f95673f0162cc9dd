"""The bucket's contract: what the fake in memory promises, S3 keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.session import Session
from botocore.stub import Stubber

from reprieve.adapters.s3_checkpoints import S3Checkpoints, s3_client
from reprieve.domain.checkpoint import FileEntry, Manifest, code_key, data_key, log_key
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Checkpoints
from tests.agent.fakes import MemoryCheckpoints
from tests.builders import NOON

BUCKET = "checkpoints"
BODY = b"weights of a small model"


@dataclass
class Bucket:
    """A store under test, with a way to its objects behind its back."""

    store: Checkpoints
    put: Callable[[str, bytes], object]
    read: Callable[[str], bytes]


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.e2e)])
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    if request.param == "memory":
        memory = MemoryCheckpoints()
        yield Bucket(memory, memory.objects.__setitem__, memory.objects.__getitem__)
        return
    account = request.getfixturevalue("account")
    name = f"{BUCKET}-{account['aws_access_key_id']}"  # names are shared by all accounts
    client: Any = s3_client(_session(account), endpoint_url=account["endpoint_url"])
    client.create_bucket(Bucket=name)
    yield Bucket(
        S3Checkpoints(client, name),
        lambda key, body: client.put_object(Bucket=name, Key=key, Body=body),
        lambda key: bytes(client.get_object(Bucket=name, Key=key)["Body"].read()),
    )
    client.close()


def _session(account: dict[str, str]) -> Session:
    session = Session()
    session.set_config_variable("region", "us-east-1")
    session.set_credentials(account["aws_access_key_id"], "test")
    return session


def an_entry(body: bytes = BODY, path: str = "model.bin") -> FileEntry:
    key = data_key("job-1", 2, "save-1", path)
    return FileEntry(path, key, len(body), hashlib.sha256(body).hexdigest())


def a_manifest(step: int = 40, attempt: int = 2, **changes: Any) -> Manifest:
    manifest = Manifest(
        job="job-1",
        attempt=attempt,
        token="t2",
        step=step,
        parent=None,
        files=(an_entry(),),
        saved_at=NOON,
    )
    return replace(manifest, **changes)


def test_a_file_comes_back_as_it_was_sent(bucket: Bucket, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BODY)
    entry = an_entry()

    bucket.store.put_file(entry.key, source)
    bucket.store.fetch(entry, tmp_path / "deep" / "target")

    assert (tmp_path / "deep" / "target").read_bytes() == BODY


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(b"", id="empty"),
        pytest.param(BODY[:-1], id="truncated"),
        pytest.param(BODY + b"!", id="longer"),
        pytest.param(BODY.replace(b"w", b"W"), id="one byte flipped"),
        pytest.param(None, id="missing"),
    ],
)
def test_a_damaged_file_is_bad_and_leaves_nothing_behind(
    bucket: Bucket, tmp_path: Path, stored: bytes | None
) -> None:
    entry = an_entry()
    if stored is not None:
        bucket.put(entry.key, stored)

    with pytest.raises(BadObjectError):
        bucket.store.fetch(entry, tmp_path / "target")

    assert not (tmp_path / "target").exists()


def test_a_download_never_overwrites(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(an_entry().key, BODY)
    (tmp_path / "target").write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        bucket.store.fetch(an_entry(), tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == b"precious"


def test_an_upload_called_off_stores_nothing(bucket: Bucket, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BODY)

    with pytest.raises(AbortedError):
        bucket.store.put_file(an_entry().key, source, stopped=lambda: True)

    with pytest.raises(BadObjectError):
        bucket.store.fetch(an_entry(), tmp_path / "target")


def test_a_file_that_is_gone_is_the_disk_s_fault_and_not_the_bucket_s(
    bucket: Bucket, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        bucket.store.put_file(an_entry().key, tmp_path / "rotated away")


def test_a_manifest_is_committed_once(bucket: Bucket) -> None:
    first = a_manifest(parent="jobs/job-1/manifests/000001-000000000020.json")
    late = replace(first, saved_at=NOON + timedelta(seconds=9), parent=None)

    assert bucket.store.commit(first) == first
    assert bucket.store.commit(late) == first
    assert bucket.store.manifest(first.key) == first


def test_manifests_of_one_attempt_come_newest_step_first(bucket: Bucket) -> None:
    for attempt, step in ((2, 900), (2, 1000), (2, 5), (1, 7000), (20, 8000), (3, 9000)):
        bucket.store.commit(a_manifest(step, attempt))
    bucket.put("jobs/job-1/manifests/000002-notes.txt", b"not a manifest")

    listed = bucket.store.manifests("job-1", 2)

    assert [key[-17:-5] for key in listed] == ["000000001000", "000000000900", "000000000005"]


def test_an_attempt_without_a_commit_has_no_manifests(bucket: Bucket) -> None:
    assert list(bucket.store.manifests("job-1", 2)) == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(b'{"v": 1, "job": "job-1"', id="truncated"),
        pytest.param(b"[]", id="another thing"),
        pytest.param(a_manifest(41).to_json(), id="another step's"),
    ],
)
def test_a_manifest_that_cant_be_read_is_bad(bucket: Bucket, body: bytes | None) -> None:
    key = a_manifest(40).key
    if body is not None:
        bucket.put(key, body)

    with pytest.raises(BadObjectError):
        bucket.store.manifest(key)


def test_code_is_checked_against_its_name(bucket: Bucket, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"a zip").hexdigest()
    bucket.put(code_key(sha256), b"a zip")
    bucket.put(code_key("0" * 64), b"a zip")

    bucket.store.fetch_code(sha256, tmp_path / "good.zip")
    with pytest.raises(BadObjectError):
        bucket.store.fetch_code("0" * 64, tmp_path / "bad.zip")

    assert (tmp_path / "good.zip").read_bytes() == b"a zip"


def test_a_log_is_replaced_as_it_grows(bucket: Bucket) -> None:
    bucket.store.put_log("job-1", 2, b"one\n")
    bucket.store.put_log("job-1", 2, b"one\ntwo\n")

    assert bucket.read(log_key("job-1", 2)) == b"one\ntwo\n"


@pytest.mark.parametrize(
    "code", ["SlowDown", "InternalError", "AccessDenied", "NoSuchBucket", "ExpiredToken"]
)
def test_trouble_of_the_service_condemns_no_object(code: str) -> None:
    client = s3_client(_session({"aws_access_key_id": "test"}))
    with Stubber(client) as stub:
        stub.add_client_error("get_object", code, http_status_code=503)
        stub.add_client_error("put_object", code, http_status_code=503)
        store = S3Checkpoints(client, BUCKET)

        with pytest.raises(UnknownOutcomeError):
            store.manifest(a_manifest().key)
        with pytest.raises(UnknownOutcomeError):
            store.commit(a_manifest())
    client.close()


def test_file_bytes_are_sent_plain_neither_chunked_nor_signed() -> None:
    client = s3_client(_session({"aws_access_key_id": "test"}))
    sent: dict[str, str] = {}

    def look(request: Any, **_: Any) -> None:
        sent.update({name.lower(): str(value) for name, value in request.headers.items()})
        raise ClientError({"Error": {"Code": "seen"}}, "PutObject")

    client.meta.events.register("before-send.s3", look)
    with pytest.raises(ClientError, match="seen"):
        client.put_object(Bucket=BUCKET, Key="key", Body=BODY)
    client.close()

    assert sent["x-amz-content-sha256"] == "b'UNSIGNED-PAYLOAD'"
    assert sent["content-length"] == str(len(BODY))
    assert not [name for name in sent if name.startswith(("x-amz-checksum", "x-amz-trailer"))]


def test_a_manifest_is_set_aside_once_and_the_first_word_stands(bucket: Bucket) -> None:
    bad, good = a_manifest(40).key, a_manifest(60).key
    assert dict(bucket.store.marks("job-1")) == {}

    bucket.store.set_aside(bad, "model.bin has 7 bytes, not 24", by="i-0aa00000000000001")
    bucket.store.set_aside(bad, "something else", by="i-0bb00000000000001")

    assert dict(bucket.store.marks("job-1")) == {bad: "model.bin has 7 bytes, not 24"}
    assert good not in bucket.store.marks("job-1")
    assert dict(bucket.store.marks("job-2")) == {}
