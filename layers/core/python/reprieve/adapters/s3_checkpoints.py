"""Checkpoints in S3."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from reprieve.adapters import sdk
from reprieve.adapters.s3_transfers import RANGE_BYTES, READ_BYTES, THREADS, Transfers
from reprieve.domain.checkpoint import (
    FileEntry,
    Manifest,
    code_key,
    log_key,
    manifest_key,
    manifest_of_mark,
    mark_key,
    own_manifests,
)
from reprieve.domain.errors import MalformedError, UnknownOutcomeError
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Ledger, MemoryLedger, never

if TYPE_CHECKING:
    import io

    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

MANIFEST_LIMIT_BYTES = 64 * 1024 * 1024

# The service's word that the object isn't there; everything else may pass.
GONE = frozenset({"NoSuchKey", "404", "NotFound"})

# What If-None-Match answers when the key is there. A 409 (two writers at once) may pass.
TAKEN = frozenset({"PreconditionFailed", "412"})


def s3_client(session: Session, *, endpoint_url: str | None = None) -> S3Client:
    """
    Return a client that sends file bytes as they are.

    Both switches are needed: with a checksum header botocore wraps the body in small
    chunks, and without one it signs the body with SHA-256; only together do they save
    half of the processor time per byte. Integrity rests on TLS and on our own manifest,
    whose digests are checked before a checkpoint is used.
    """
    config = Config(
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "max_attempts": 4},
        connect_timeout=5,
        read_timeout=20,
        max_pool_connections=2 * THREADS,
        s3={"payload_signing_enabled": False},
    )
    client: S3Client = sdk.client(session, "s3", config=config, endpoint_url=endpoint_url)
    return client


class S3Checkpoints:
    """``Checkpoints`` over one bucket."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._transfers = Transfers(client, bucket)

    def manifests(self, job: str, attempt: int) -> Sequence[str]:
        """Return the keys of one attempt's manifests, newest step first."""
        prefix = manifest_key(job, attempt, 0).rpartition("-")[0] + "-"
        return own_manifests(self._listed(prefix), attempt)

    def manifest(self, key: str) -> Manifest:
        """Read and check the manifest at *key*."""
        with _translated(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            body = answer["Body"].read(MANIFEST_LIMIT_BYTES)
        try:
            return Manifest.from_json(body, key=key)
        except MalformedError as error:
            raise BadObjectError(str(error)) from error

    def fetch(self, entry: FileEntry, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Write the file to *target*, which must be new, and check its size and digest."""
        self._download(entry.key, target, size=entry.size, sha256=entry.sha256, stopped=stopped)

    def put_file(
        self,
        key: str,
        source: Path,
        *,
        ledger: Ledger | None = None,
        stopped: Callable[[], bool] = never,
    ) -> None:
        """Store the bytes of *source* under *key*, a new name; abort cleanly when *stopped*."""
        if stopped():
            raise AbortedError(f"the upload of {key} was called off")
        with _translated(key):
            self._transfers.upload(key, source, ledger or MemoryLedger(), stopped)

    def commit(self, manifest: Manifest) -> Manifest:
        """Store the manifest if its key is new, and return the one that now stands there."""
        new = self._put_new(manifest.key, manifest.to_json())
        return manifest if new else self.manifest(manifest.key)

    def marks(self, job: str) -> Mapping[str, str]:
        """Return the manifests that were set aside, each with the reason why."""
        prefix = mark_key(manifest_key(job, 0, 0)).rpartition("/")[0] + "/"
        return {manifest_of_mark(key): self._reason(key) for key in self._listed(prefix)}

    def set_aside(self, manifest: str, reason: str, *, by: str) -> None:
        """Write it down, unless that was done before."""
        key = mark_key(manifest)
        said = {"v": 1, "manifest": manifest, "reason": reason, "by": by}
        self._put_new(key, json.dumps(said, sort_keys=True).encode())

    def fetch_code(self, sha256: str, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        """Write the zip of a job's code to *target* and check its digest."""
        self._download(code_key(sha256), target, size=None, sha256=sha256, stopped=stopped)

    def put_log(self, job: str, attempt: int, body: bytes) -> None:
        """Replace the stored log of one attempt."""
        key = log_key(job, attempt)
        with _translated(key):
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, ContentType="text/plain; charset=utf-8"
            )

    def _download(
        self,
        key: str,
        target: Path,
        *,
        size: int | None,
        sha256: str,
        stopped: Callable[[], bool],
    ) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb+", buffering=0) as file:
            try:
                with _translated(key):
                    if size is not None and size > RANGE_BYTES:
                        found = self._transfers.download(key, file, size, stopped)
                    else:
                        found = self._receive(key, file, size, stopped)
                _compare(key, found, sha256)
            except BaseException:
                target.unlink(missing_ok=True)
                raise

    def _receive(
        self, key: str, file: io.RawIOBase, size: int | None, stopped: Callable[[], bool]
    ) -> str:
        """Write one answer to *file* and return its SHA-256."""
        answer = self._client.get_object(Bucket=self._bucket, Key=key)
        stored = answer["ContentLength"]
        if size is not None and stored != size:
            answer["Body"].close()
            raise BadObjectError(f"{key} has {stored} bytes, not {size}")
        digest = hashlib.sha256()
        received = 0
        for chunk in answer["Body"].iter_chunks(READ_BYTES):
            if stopped():
                raise AbortedError(f"the download of {key} was called off")
            digest.update(chunk)
            received += file.write(chunk) or 0
        if received != stored:
            raise UnknownOutcomeError(f"{key} broke off after {received} of {stored} bytes")
        return digest.hexdigest()

    def _put_new(self, key: str, body: bytes) -> bool:
        """Store *body* unless the key is taken, and tell whether it was new."""
        with _translated(key):
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    ContentType="application/json",
                    IfNoneMatch="*",
                )
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in TAKEN:
                    raise
                return False
            return True

    def _listed(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2")
        with _translated(prefix):
            return [
                entry["Key"]
                for page in pages.paginate(Bucket=self._bucket, Prefix=prefix)
                for entry in page.get("Contents", ())
            ]

    def _reason(self, key: str) -> str:
        with _translated(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            body = answer["Body"].read(MANIFEST_LIMIT_BYTES)
        try:
            return str(json.loads(body)["reason"])
        except (ValueError, KeyError, TypeError):
            return "set aside by somebody who didn't say why"


def _compare(key: str, found: str, expected: str) -> None:
    if found != expected:
        raise BadObjectError(f"{key} has another SHA-256 than its manifest says")


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Tell a missing object from passing trouble; local errors of the disk stay what they are."""
    try:
        yield
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in GONE:
            raise BadObjectError(f"{key} doesn't exist") from error
        raise UnknownOutcomeError(f"{key}: {error}") from error
    except BotoCoreError as error:
        raise UnknownOutcomeError(f"{key}: {error}") from error
