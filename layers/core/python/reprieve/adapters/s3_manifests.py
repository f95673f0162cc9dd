"""Manifests in S3, for functions: without boto3 and its transfer machinery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from reprieve.adapters.outcome import code_of, no_answer_is_unknown
from reprieve.domain.checkpoint import Manifest, manifest_key, own_manifests
from reprieve.domain.errors import MalformedError, UnknownOutcomeError
from reprieve.domain.job import CheckpointRef

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LIMIT_BYTES = 64 * 1024 * 1024
GONE = "NoSuchKey"
PROBES = 3  # unreadable ones that are passed over before the look is given up


class S3Manifests:
    """
    ``Manifests``: one list call, which begins behind what is known, and rarely a read.

    A job that committed a thousand times since its last word would need a second list;
    the newest of the first thousand is then what is found now.
    """

    def __init__(self, connect: Callable[[], S3Client], bucket: str) -> None:
        self._connect = connect
        self._bucket = bucket

    def newest(self, job: str, attempt: int, *, after: int | None) -> CheckpointRef | None:
        known = manifest_key(job, attempt, after or 0)
        prefix = known.rpartition("-")[0] + "-"
        # Fixed widths make S3's order the numeric one. A commit of step 0 is after nothing.
        start = prefix if after is None else known
        for key in own_manifests(self._listed(prefix, start), attempt)[:PROBES]:
            manifest = manifest_at(key, self._connect, self._bucket)
            if manifest and (after is None or manifest.step > after):
                return CheckpointRef(manifest.step, key)
        return None

    def _listed(self, prefix: str, start: str) -> Sequence[str]:
        try:
            with no_answer_is_unknown(f"list {prefix}"):
                answer = self._connect().list_objects_v2(
                    Bucket=self._bucket, Prefix=prefix, StartAfter=start
                )
        except ClientError as error:
            raise UnknownOutcomeError(f"list {prefix}: {code_of(error)}") from error
        return [entry["Key"] for entry in answer.get("Contents", ())]


def manifest_at(key: str, connect: Callable[[], S3Client], bucket: str) -> Manifest | None:
    """Return the manifest, None if it is none: a restore will say so, and of what."""
    try:
        with no_answer_is_unknown(f"read {key}"):
            answer = connect().get_object(Bucket=bucket, Key=key)
            body = answer["Body"].read(LIMIT_BYTES)
        return Manifest.from_json(body, key=key)
    except MalformedError:
        return None
    except ClientError as error:
        if code_of(error) == GONE:
            return None
        raise UnknownOutcomeError(f"read {key}: {code_of(error)}") from error
