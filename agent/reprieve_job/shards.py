"""
A batch over many items: every one is done, and doing one twice changes nothing.

::

    outputs = FolderOutputs(job, Path("out"), made_by=("classify.py 3", "threshold 0.5"))
    for item in work_through(job, ListedItems(names, outputs), outputs):
        outputs.write(item, infer(item))
    job.done(len(names))

An output is named by what made it: the item, the code and the parameters. So a second attempt
finds the first one's output, and another version's never. With a queue and a bucket instead of a
list and a folder (``QueuedItems``, ``BucketOutputs``) several jobs share the batch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reprieve_job.contract import REQUEUE
from reprieve_job.links import link_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    from reprieve_job.job import Job

    class Items(Protocol):
        """Where items come from."""

        def claim(self, most: int) -> Sequence[Claim]:
            """Take up to *most* items that nobody else works on; none means that all is done."""

        def finish(self, claim: Claim) -> None:
            """Say that the item's output is there."""

        def give_back(self, claims: Sequence[Claim]) -> None:
            """Let somebody else take these now, not when their time runs out."""

    class Outputs(Protocol):
        """Where outputs go."""

        def write(self, item: str, content: bytes) -> None:
            """Keep the output of *item*; one that is there already stays as it is."""

        def save(self, folder: Path) -> None:
            """Put what a resumed job needs into a checkpoint's *folder*: one file at least."""


class Claim(NamedTuple):
    """One item that is ours, and what the queue knows it by."""

    item: str
    receipt: str = ""


def work_through(job: Job, items: Items, outputs: Outputs, *, at_once: int = 10) -> Iterator[str]:
    """
    Give one item after the other; each counts as done when the next one is asked for.

    A request is answered between two items, with a checkpoint. If it is to leave, the items that
    were claimed and not begun are given back and ``SystemExit(75)`` is raised. They are given back
    as well, with the one in work, when the loop ends early or with an error.
    """
    done = job.resume_step or 0
    while claims := deque(items.claim(at_once)):
        try:
            while claims:
                yield claims[0].item
                items.finish(claims.popleft())
                done += 1
                job.step(done)
                if job.should_save():
                    with job.checkpoint(done) as folder:
                        outputs.save(folder)
                if job.should_exit():
                    raise SystemExit(REQUEUE)
        finally:
            items.give_back(claims)


def output_name(item: str, made_by: Iterable[str]) -> str:
    """Return a name that only this item, this code and these parameters have."""
    return hashlib.sha256(json.dumps([item, *made_by]).encode()).hexdigest()


class ListedItems:
    """A list that one job works through; what has an output is done."""

    def __init__(self, items: Iterable[str], outputs: FolderOutputs) -> None:
        """Leave out the items that *outputs* has."""
        self._waiting = deque(item for item in items if item not in outputs)

    def claim(self, most: int) -> Sequence[Claim]:
        """Take the next ones."""
        return [Claim(self._waiting.popleft()) for _ in range(min(most, len(self._waiting)))]

    def finish(self, claim: Claim) -> None:
        """Nothing: its output says so."""

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Put them first again."""
        self._waiting.extendleft(claim.item for claim in reversed(claims))


class FolderOutputs:
    """Outputs in a folder that travels in the checkpoints: thousands of files, not millions."""

    def __init__(self, job: Job, folder: Path, *, made_by: Sequence[str]) -> None:
        """Write to *folder*, where the outputs of earlier attempts appear at once."""
        self._folder = folder
        self._made_by = made_by
        folder.mkdir(parents=True, exist_ok=True)
        if job.resume_dir is not None:
            link_tree(job.resume_dir / "outputs", folder)

    def path(self, item: str) -> Path:
        """Return where the output of *item* is, or will be."""
        return self._folder / output_name(item, self._made_by)

    def __contains__(self, item: str) -> bool:
        """Tell whether *item* is done."""
        return self.path(item).exists()

    def write(self, item: str, content: bytes) -> None:
        """Keep the output of *item*: whole, or not at all."""
        path = self.path(item)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_bytes(content)
        draft.rename(path)

    def save(self, folder: Path) -> None:
        """Link every output into a checkpoint."""
        (folder / "outputs").mkdir()
        link_tree(self._folder, folder / "outputs")


class QueuedItems:
    """Items that are messages of an SQS queue; *client* is boto3's, from the job's environment."""

    def __init__(self, client: Any, queue_url: str, *, seconds: int = 600) -> None:
        """Claim messages for *seconds*: longer than all that are claimed at once take."""
        self._client, self._url, self._seconds = client, queue_url, seconds

    def claim(self, most: int) -> Sequence[Claim]:
        """Take messages, at most ten."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(most, 10),
            VisibilityTimeout=self._seconds,
            WaitTimeSeconds=20,
        )
        return [Claim(m["Body"], m["ReceiptHandle"]) for m in answer.get("Messages", ())]

    def finish(self, claim: Claim) -> None:
        """Delete the message."""
        self._client.delete_message(QueueUrl=self._url, ReceiptHandle=claim.receipt)

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Make the messages visible again."""
        for claim in claims:
            self._client.change_message_visibility(
                QueueUrl=self._url, ReceiptHandle=claim.receipt, VisibilityTimeout=0
            )


class BucketOutputs:
    """Outputs that are objects in S3; *client* is boto3's, from the job's environment."""

    def __init__(self, client: Any, bucket: str, prefix: str, *, made_by: Sequence[str]) -> None:
        """Write below *prefix*."""
        self._client, self._bucket, self._prefix = client, bucket, prefix
        self._made_by = made_by

    def write(self, item: str, content: bytes) -> None:
        """Put the object unless it is there."""
        key = f"{self._prefix}/{output_name(item, self._made_by)}"
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, IfNoneMatch="*")
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise

    def save(self, folder: Path) -> None:
        """Say where the outputs are: they are safe already."""
        (folder / "outputs.txt").write_text(f"s3://{self._bucket}/{self._prefix}\n", "utf-8")
