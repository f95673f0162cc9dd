"""Files in parts: each sent once, whatever comes between; read in ranges, checked as a whole."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from reprieve.adapters import s3_checkpoints, s3_transfers
from reprieve.adapters.s3_checkpoints import S3Checkpoints
from reprieve.domain.checkpoint import FileEntry
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.ports.checkpoints import AbortedError, BadObjectError, MemoryLedger

KEY = "jobs/job-1/data/000001/save/model.bin"
BODY = bytes(range(256)) * 4  # 16 parts, 64 ranges
PARTS = 16


@dataclass
class Body:
    """What `get_object` hands out; *cut* bytes of it never come."""

    content: bytes
    cut: int = 0

    def iter_chunks(self, size: int) -> Any:
        sent = self.content[: len(self.content) - self.cut]
        return iter([sent[at : at + size] for at in range(0, len(sent), size)])

    def close(self) -> None:
        return


@dataclass
class PartBucket:
    """The client of a bucket that takes parts; *trouble* is raised by the part of that number."""

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    sent: Counter[int] = field(default_factory=Counter)
    trouble: dict[int, Exception] = field(default_factory=dict)
    cut: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create_multipart_upload(self, **_request: Any) -> dict[str, str]:
        name = f"upload-{len(self.uploads)}"
        self.uploads[name] = {}
        return {"UploadId": name}

    def upload_part(self, **request: Any) -> dict[str, str]:
        number = request["PartNumber"]
        if request["UploadId"] not in self.uploads:
            raise refusal("NoSuchUpload")
        content = b"".join(iter(lambda: bytes(request["Body"].read(16)), b""))
        with self._lock:
            self.sent[number] += 1
            if number in self.trouble:
                raise self.trouble.pop(number)
            self.uploads[request["UploadId"]][number] = content
        return {"ETag": f"tag-{number}"}

    def complete_multipart_upload(self, **request: Any) -> None:
        parts = self.uploads.pop(request["UploadId"])
        listed = [part["PartNumber"] for part in request["MultipartUpload"]["Parts"]]
        assert listed == sorted(parts)
        self.objects[request["Key"]] = b"".join(parts[number] for number in listed)

    def abort_multipart_upload(self, **request: Any) -> None:
        del self.uploads[request["UploadId"]]

    def get_object(self, **request: Any) -> dict[str, Any]:
        body = self.objects.get(request["Key"])
        if body is None:
            raise refusal("NoSuchKey")
        first, last = map(int, request["Range"].removeprefix("bytes=").split("-"))
        if first >= len(body):
            raise refusal("InvalidRange")
        span = f"bytes {first}-{last}/{len(body)}"
        return {"ContentRange": span, "Body": Body(body[first : last + 1], self.cut)}


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "operation")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_transfers, "PART_BYTES", len(BODY) // PARTS)
    monkeypatch.setattr(s3_transfers, "RANGE_BYTES", 16)
    monkeypatch.setattr(s3_checkpoints, "RANGE_BYTES", 16)


@pytest.fixture
def bucket() -> PartBucket:
    return PartBucket()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(BODY)
    return path


def over(bucket: PartBucket) -> S3Checkpoints:
    client: Any = bucket
    return S3Checkpoints(client, "bucket")


def an_entry() -> FileEntry:
    return FileEntry("model.bin", KEY, len(BODY), hashlib.sha256(BODY).hexdigest())


def test_a_file_in_parts_arrives_whole(bucket: PartBucket, source: Path) -> None:
    over(bucket).put_file(KEY, source)

    assert bucket.objects == {KEY: BODY}
    assert bucket.sent == dict.fromkeys(range(1, PARTS + 1), 1)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(refusal("SlowDown"), id="throttled"),
        pytest.param(refusal("InternalError"), id="5xx"),
        pytest.param(refusal("ExpiredToken"), id="credentials that ran out"),
        pytest.param(ConnectionClosedError(endpoint_url="s3"), id="reset in the middle of a part"),
        pytest.param(ReadTimeoutError(endpoint_url="s3"), id="no answer"),
    ],
)
def test_only_parts_that_are_missing_are_sent_again(
    bucket: PartBucket, source: Path, trouble: Exception
) -> None:
    ledger = MemoryLedger()
    bucket.trouble = {PARTS: trouble}
    with pytest.raises(UnknownOutcomeError):
        over(bucket).put_file(KEY, source, ledger=ledger)
    stored = set(ledger.parts)

    over(bucket).put_file(KEY, source, ledger=ledger)  # by another process, with the same ledger

    assert bucket.objects == {KEY: BODY}
    assert {number for number, times in bucket.sent.items() if times > 1}.isdisjoint(stored)


def test_an_upload_that_the_bucket_forgot_begins_anew(bucket: PartBucket, source: Path) -> None:
    ledger = MemoryLedger("upload-of-last-week", len(BODY) // PARTS, {1: "tag-1"})
    with pytest.raises(UnknownOutcomeError):
        over(bucket).put_file(KEY, source, ledger=ledger)
    assert ledger.parts == {}

    over(bucket).put_file(KEY, source, ledger=ledger)

    assert bucket.objects == {KEY: BODY}


def test_an_upload_called_off_between_parts_leaves_nothing_that_costs(
    bucket: PartBucket, source: Path
) -> None:
    ledger = MemoryLedger()

    with pytest.raises(AbortedError):
        over(bucket).put_file(KEY, source, ledger=ledger, stopped=lambda: bool(bucket.sent))

    assert (bucket.objects, bucket.uploads) == ({}, {})
    assert ledger.upload_id is None


def test_ranges_make_the_file(bucket: PartBucket, tmp_path: Path) -> None:
    bucket.objects[KEY] = BODY

    over(bucket).fetch(an_entry(), tmp_path / "target")

    assert (tmp_path / "target").read_bytes() == BODY


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        pytest.param(None, "doesn't exist", id="missing"),
        pytest.param(b"", "shorter than 1024", id="empty"),
        pytest.param(BODY[:-1], "1023 bytes, not 1024", id="truncated"),
        pytest.param(BODY + b"!", "1025 bytes, not 1024", id="longer"),
        pytest.param(BODY[:-1] + b"!", "another SHA-256", id="one byte flipped"),
    ],
)
def test_a_damaged_object_is_bad_and_leaves_nothing_behind(
    bucket: PartBucket, tmp_path: Path, stored: bytes | None, reason: str
) -> None:
    if stored is not None:
        bucket.objects[KEY] = stored

    with pytest.raises(BadObjectError, match=reason):
        over(bucket).fetch(an_entry(), tmp_path / "target")

    assert not (tmp_path / "target").exists()


def test_a_range_that_breaks_off_says_nothing_about_the_object(
    bucket: PartBucket, tmp_path: Path
) -> None:
    bucket.objects[KEY] = BODY
    bucket.cut = 1

    with pytest.raises(UnknownOutcomeError, match="broke off"):
        over(bucket).fetch(an_entry(), tmp_path / "target")

    assert not (tmp_path / "target").exists()


def test_a_download_can_be_called_off_between_ranges(bucket: PartBucket, tmp_path: Path) -> None:
    bucket.objects[KEY] = BODY
    asked: list[None] = []

    def stopped() -> bool:
        asked.append(None)
        return len(asked) > 1

    with pytest.raises(AbortedError):
        over(bucket).fetch(an_entry(), tmp_path / "target", stopped=stopped)

    assert not (tmp_path / "target").exists()
