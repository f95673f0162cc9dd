"""
Files to and from S3 in parts, side by side.

Parts are streamed from and to the disk, so what is in flight takes no memory to speak of.
An upload keeps its parts in a ledger: whoever repeats it, after a passing trouble or in
the next life of the process, sends only those that are missing.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from reprieve.domain.errors import UnknownOutcomeError
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Ledger

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 64 * 1024 * 1024
MOST_PARTS = 9_000  # S3 allows 10,000
RANGE_BYTES = 16 * 1024 * 1024
# What goes through Python at once: in botocore's own blocks of 16 KiB, a third of the
# processor time of an upload would be the walk from one block to the next.
BLOCK_BYTES = 128 * 1024
READ_BYTES = 1024 * 1024
THREADS = 16

NO_UPLOAD = "NoSuchUpload"
BEYOND_END = "InvalidRange"


class Transfers:
    """The bytes of files; one pool of connections for all of them."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="part")

    def upload(self, key: str, source: Path, ledger: Ledger, stopped: Callable[[], bool]) -> None:
        """Store *source* under *key*; when *stopped*, leave nothing that costs."""
        with source.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= PART_BYTES:
                body = _Slice(file.fileno(), 0, size, stopped)
                self._pool.submit(self._put, key, body).result()
                return
            try:
                self._in_parts(key, file.fileno(), size, ledger, stopped)
            except AbortedError:
                self._abort(key, ledger)
                raise
            except ClientError as error:
                if _code(error) == NO_UPLOAD:
                    ledger.forget()
                    raise UnknownOutcomeError(f"{key}: its parts are gone, once more") from error
                raise

    def download(
        self, key: str, target: io.RawIOBase, size: int, stopped: Callable[[], bool]
    ) -> str:
        """Write the *size* bytes of *key* to *target* and return their SHA-256."""
        ended = threading.Event()

        def over() -> bool:
            return ended.is_set() or stopped()

        descriptor = target.fileno()
        os.ftruncate(descriptor, size)
        ranges = [(at, min(RANGE_BYTES, size - at)) for at in range(0, size, RANGE_BYTES)]
        source = _Source(key, size, over)
        coming = [
            self._pool.submit(self._range, source, descriptor, at, length) for at, length in ranges
        ]
        digest = hashlib.sha256()
        try:
            for part, (at, length) in zip(coming, ranges, strict=True):
                part.result()
                _digest(digest, descriptor, at, length, source)
        except BaseException:
            ended.set()
            for part in coming:
                part.cancel()
            wait(coming)  # the file is closed next
            raise
        return digest.hexdigest()

    def _put(self, key: str, body: _Slice) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=cast("Any", body))
        except _CalledOff:
            raise AbortedError(f"the upload of {key} was called off") from None

    def _in_parts(
        self,
        key: str,
        descriptor: int,
        size: int,
        ledger: Ledger,
        stopped: Callable[[], bool],
    ) -> None:
        part_bytes = ledger.part_bytes or max(PART_BYTES, -(-size // MOST_PARTS))
        if ledger.upload_id is None:
            if stopped():
                raise AbortedError(f"the upload of {key} was called off")
            begun = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)
            ledger.begin(begun["UploadId"], part_bytes)
        ended = threading.Event()

        def over() -> bool:
            return ended.is_set() or stopped()

        sent = [
            self._pool.submit(
                self._part, key, ledger, number, _Slice(descriptor, at, part_bytes, over, size)
            )
            for number, at in enumerate(range(0, size, part_bytes), 1)
            if number not in ledger.parts
        ]
        try:
            for part in sent:
                part.result()
        except BaseException:
            ended.set()
            for part in sent:
                part.cancel()
            wait(sent)
            raise
        if stopped():
            raise AbortedError(f"the upload of {key} was called off")
        parts: Any = [{"PartNumber": n, "ETag": tag} for n, tag in sorted(ledger.parts.items())]
        self._client.complete_multipart_upload(
            Bucket=self._bucket,
            Key=key,
            UploadId=ledger.upload_id or "",
            MultipartUpload={"Parts": parts},
        )

    def _part(self, key: str, ledger: Ledger, number: int, body: _Slice) -> None:
        try:
            answer = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=ledger.upload_id or "",
                PartNumber=number,
                Body=cast("Any", body),
            )
        except _CalledOff:
            raise AbortedError(f"the upload of {key} was called off") from None
        ledger.sent(number, answer["ETag"])

    def _abort(self, key: str, ledger: Ledger) -> None:
        if ledger.upload_id is None:
            return
        with suppress(Exception):  # the bucket's own rule ends it within a day
            self._client.abort_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=ledger.upload_id
            )
        ledger.forget()

    def _range(self, source: _Source, descriptor: int, at: int, length: int) -> None:
        source.check()
        try:
            answer = self._client.get_object(
                Bucket=self._bucket, Key=source.key, Range=f"bytes={at}-{at + length - 1}"
            )
        except ClientError as error:
            if _code(error) == BEYOND_END:
                raise BadObjectError(f"{source.key} is shorter than {source.size} bytes") from error
            raise
        stored = int(answer["ContentRange"].rpartition("/")[2])
        if stored != source.size:
            answer["Body"].close()
            raise BadObjectError(f"{source.key} has {stored} bytes, not {source.size}")
        received = 0
        for chunk in answer["Body"].iter_chunks(READ_BYTES):
            source.check()
            received += os.pwrite(descriptor, chunk, at + received)
        if received != length:
            raise UnknownOutcomeError(f"{source.key} broke off after {received} of {length} bytes")


@dataclass(frozen=True, slots=True)
class _Source:
    """An object on its way here."""

    key: str
    size: int
    stopped: Callable[[], bool]

    def check(self) -> None:
        if self.stopped():
            raise AbortedError(f"the download of {self.key} was called off")


class _CalledOff(BaseException):
    """Ends a request from inside its body; botocore would try again after any exception."""


class _Slice(io.RawIOBase):
    """
    A stretch of an open file, as the body of a request.

    It is read by position, so that slices of one file don't disturb each other, and in
    larger blocks than asked for: whoever asks passes on what it gets, before the next read
    writes over it.
    """

    def __init__(
        self,
        descriptor: int,
        start: int,
        length: int,
        stopped: Callable[[], bool],
        end: int | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._start = start
        self._length = length if end is None else min(length, end - start)
        self._stopped = stopped
        self._at = 0
        self._block: memoryview | None = None  # not before it is sent: many wait for their turn

    def __len__(self) -> int:
        return self._length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def read(self, size: int = -1) -> Any:
        if self._stopped():
            raise _CalledOff
        left = self._length - self._at
        if left <= 0:
            return b""
        if size is None or size < 0:
            block = memoryview(bytearray(left))
        else:
            self._block = block = self._block or memoryview(bytearray(BLOCK_BYTES))
        read = os.preadv(self._descriptor, [block[:left]], self._start + self._at)
        self._at += read
        return block[:read]


def _digest(digest: Any, descriptor: int, at: int, length: int, source: _Source) -> None:
    block = memoryview(bytearray(BLOCK_BYTES))  # one for all reads: new memory costs as much
    while length:
        source.check()
        read = os.preadv(descriptor, [block[:length]], at)
        if not read:
            raise OSError("the file shrank while it was written")
        digest.update(block[:read])
        at += read
        length -= read


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
