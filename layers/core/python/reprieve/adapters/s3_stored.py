"""All that one job has in the bucket, for collection by functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from reprieve.adapters.outcome import code_of, no_answer_is_unknown
from reprieve.adapters.s3_manifests import manifest_at
from reprieve.domain.checkpoint import Manifest, manifest_of_mark
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.ports.stored import Listing, Object

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

AT_ONCE = 1000  # what one call deletes at most


class S3Stored:
    """``Stored`` over one bucket."""

    def __init__(self, connect: Callable[[], S3Client], bucket: str) -> None:
        self._connect = connect
        self._bucket = bucket

    def listing(self, job: str) -> Listing:
        """Walk over the job's three folders, page by page."""
        marks = (manifest_of_mark(key) for key, _ in self._listed(f"jobs/{job}/set-aside/"))
        return Listing(
            manifests=dict(self._listed(f"jobs/{job}/manifests/")),
            data=dict(self._listed(f"jobs/{job}/data/")),
            marks=frozenset(marks),
        )

    def manifest(self, key: str) -> Manifest | None:
        """Read one."""
        return manifest_at(key, self._connect, self._bucket)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete a thousand in a call."""
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            try:
                with no_answer_is_unknown("delete checkpoints"):
                    answer = self._connect().delete_objects(
                        Bucket=self._bucket,
                        Delete={"Objects": [{"Key": key} for key in some], "Quiet": True},
                    )
            except ClientError as error:
                raise UnknownOutcomeError(f"delete checkpoints: {code_of(error)}") from error
            refused = answer.get("Errors", [])
            if refused:
                first = refused[0]
                raise UnknownOutcomeError(
                    f"{len(refused)} objects not deleted, {first.get('Key')}: {first.get('Code')}"
                )

    def _listed(self, prefix: str) -> Iterator[tuple[str, Object]]:
        start = ""
        while True:
            try:
                with no_answer_is_unknown(f"list {prefix}"):
                    answer = self._connect().list_objects_v2(
                        Bucket=self._bucket, Prefix=prefix, StartAfter=start
                    )
            except ClientError as error:
                raise UnknownOutcomeError(f"list {prefix}: {code_of(error)}") from error
            found = answer.get("Contents", [])
            for entry in found:
                yield entry["Key"], Object(entry["Size"], entry["LastModified"])
            if not answer.get("IsTruncated") or not found:
                return
            start = found[-1]["Key"]
