"""The bucket as the CLI needs it: code goes up once; manifests and logs are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_s3 import S3Client


CHUNK_BYTES = 1024 * 1024


class Objects(Protocol):
    """One bucket."""

    def uri(self, key: str) -> str:
        """Return how people name *key*."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size in bytes of every object below *prefix*, in key order."""

    def read(self, key: str, *, start: int = 0) -> bytes | None:
        """Return the bytes from *start* on (none if there are no more); None: no such object."""

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Return the object piece by piece, or None: no such object."""

    def put_new(self, key: str, file: Path) -> bool:
        """Upload *file* unless the key exists; tell whether it was uploaded."""


@dataclass(frozen=True, slots=True)
class S3Objects:
    """One bucket on S3."""

    client: S3Client
    bucket: str

    def uri(self, key: str) -> str:
        """Return ``s3://bucket/key``."""
        return f"s3://{self.bucket}/{key}"

    def sizes(self, prefix: str) -> dict[str, int]:
        """List all pages."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix
        )
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}

    def read(self, key: str, *, start: int = 0) -> bytes | None:
        """Read the object from *start* on."""
        try:
            if start:
                answer = self.client.get_object(
                    Bucket=self.bucket, Key=key, Range=f"bytes={start}-"
                )
            else:
                answer = self.client.get_object(Bucket=self.bucket, Key=key)
        except self.client.exceptions.ClientError as error:
            status = _status(error)
            if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return b""
            if status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return answer["Body"].read()

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Read the object a mebibyte at a time."""
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=key)
        except self.client.exceptions.ClientError as error:
            if _status(error) == HTTPStatus.NOT_FOUND:
                return None
            raise
        return iter(answer["Body"].iter_chunks(CHUNK_BYTES))

    def put_new(self, key: str, file: Path) -> bool:
        """Ask first, because the answer is small and the file may not be; then put if new."""
        if self._exists(key):
            return False
        try:
            with file.open("rb") as body:
                self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
        except self.client.exceptions.ClientError as error:
            if _status(error) == HTTPStatus.PRECONDITION_FAILED:  # someone was faster
                return False
            raise
        return True

    def _exists(self, key: str) -> bool:
        try:
            self.client.head_object(Bucket=self.bucket, Key=key)
        except self.client.exceptions.ClientError as error:
            # Without leave to list, S3 answers 403 for what isn't there.
            if _status(error) in {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN}:
                return False
            raise
        return True


def _status(error: ClientError) -> int:
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)


def missing(objects: Objects, files: Iterable[tuple[str, int]]) -> list[str]:
    """Return the keys among *files* (key, size) that the bucket lacks or holds in another size."""
    found: dict[str, int] = {}
    listed: set[str] = set()
    bad = []
    for key, size in files:
        prefix = key.rpartition("/")[0] + "/"
        if prefix not in listed:
            listed.add(prefix)
            found |= objects.sizes(prefix)
        if found.get(key) != size:
            bad.append(key)
    return bad
