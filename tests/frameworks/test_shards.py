"""A batch over many items, interrupted: all are done, none twice, and unfinished ones come back."""

import hashlib
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reprieve_job
from reprieve_job.shards import BucketOutputs, QueuedItems, output_name, work_through
from tests.examples.tiny_agent import (
    EXAMPLES,
    Processes,
    TinyAgent,
    eventually,
    running,
)

ITEMS = 120
COMPUTED = re.compile(r"computed (\S+)")


@pytest.fixture
def processes() -> Iterator[Processes]:
    with running() as started:
        yield started


def test_every_item_is_computed_once_however_often_the_batch_is_interrupted(
    processes: Processes, tmp_path: Path
) -> None:
    agent = TinyAgent(tmp_path, processes)
    computed: list[str] = []
    saved: list[int] = []
    for _ in range(2):
        if saved:
            (tmp_path / "out").rename(tmp_path / f"lost-{agent.attempt}")
        process = agent.start(EXAMPLES / "batch_shards.py", "--item-seconds", "0.1")
        eventually(partial(agent.read, "progress.json"))
        agent.request()
        output, errors = process.communicate(timeout=60)
        assert process.returncode == reprieve_job.REQUEUE, errors
        computed += COMPUTED.findall(output)
        saved.append(int(agent.ack("saved")["step"]))
        agent = agent.successor()
    (tmp_path / "out").rename(tmp_path / "lost")
    process = agent.start(EXAMPLES / "batch_shards.py")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    computed += COMPUTED.findall(output)

    assert 0 < saved[0] < saved[1] < ITEMS
    assert computed == [f"document-{number:04d}" for number in range(ITEMS)]
    assert agent.read("done.json") == {"v": 1, "step": ITEMS}
    for path in (tmp_path / "out").iterdir():
        assert len(path.read_bytes()) == hashlib.sha256().digest_size
    assert len(list((tmp_path / "out").iterdir())) == ITEMS
    assert len(list((agent.checkpoints / f"step-{ITEMS}" / "outputs").iterdir())) == ITEMS


class Queue:
    """As much of SQS as a batch uses."""

    def __init__(self, bodies: list[str]) -> None:
        self.visible = {str(number): body for number, body in enumerate(bodies)}
        self.claimed: dict[str, str] = {}

    def receive_message(self, **options: Any) -> dict[str, Any]:
        taken = list(self.visible.items())[: options["MaxNumberOfMessages"]]
        for receipt, body in taken:
            self.claimed[receipt] = self.visible.pop(receipt) and body
        return {"Messages": [{"Body": b, "ReceiptHandle": r} for r, b in taken]} if taken else {}

    def delete_message(self, **options: Any) -> None:
        del self.claimed[options["ReceiptHandle"]]

    def change_message_visibility(self, **options: Any) -> None:
        assert options["VisibilityTimeout"] == 0
        receipt = options["ReceiptHandle"]
        self.visible[receipt] = self.claimed.pop(receipt)


class RefusedError(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.response = {"Error": {"Code": "PreconditionFailed"}}


class Bucket:
    """As much of S3 as a batch uses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.exceptions = SimpleNamespace(ClientError=RefusedError)

    def put_object(self, **options: Any) -> None:
        assert options["IfNoneMatch"] == "*"
        if options["Key"] in self.objects:
            raise RefusedError
        self.objects[options["Key"]] = options["Body"]


@pytest.fixture
def host(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TinyAgent]:
    """Return a host whose job is this process."""
    agent = TinyAgent(tmp_path, processes)
    for name, value in agent.environment().items():
        if name.startswith("REPRIEVE_"):
            monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGUSR1)
    yield agent
    signal.signal(signal.SIGUSR1, before)


def test_items_that_were_claimed_and_not_begun_go_back_to_the_queue_at_once(
    host: TinyAgent,
) -> None:
    queue, bucket = Queue([f"item-{number}" for number in range(25)]), Bucket()
    outputs = BucketOutputs(bucket, "bucket", "out", made_by=("v1",))
    job = reprieve_job.connect()
    begun = []

    def work() -> None:
        for item in work_through(job, QueuedItems(queue, "url"), outputs):
            begun.append(item)
            outputs.write(item, b"result")
            if len(begun) == 3:
                host.request()

    with pytest.raises(SystemExit) as left:
        work()

    assert left.value.code == reprieve_job.REQUEUE
    assert begun == ["item-0", "item-1", "item-2"]
    assert queue.claimed == {}
    assert len(queue.visible) == 22
    assert host.saved_steps() == [3]


def test_an_item_that_fails_goes_back_with_the_others(host: TinyAgent) -> None:
    queue = Queue(["good", "bad", "later"])
    outputs = BucketOutputs(Bucket(), "bucket", "out", made_by=())
    job = reprieve_job.connect()

    def work() -> None:
        for item in work_through(job, QueuedItems(queue, "url"), outputs):
            if item == "bad":
                raise ValueError(item)

    with pytest.raises(ValueError, match="bad"):
        work()
    assert sorted(queue.visible.values()) == ["bad", "later"]


def test_the_first_output_of_an_item_stays() -> None:
    bucket = Bucket()
    outputs = BucketOutputs(bucket, "bucket", "out", made_by=("v1",))
    outputs.write("item", b"first")
    outputs.write("item", b"second")
    assert list(bucket.objects.values()) == [b"first"]


def test_other_code_or_parameters_have_other_outputs() -> None:
    names = {output_name("item", made_by) for made_by in [(), ("v1",), ("v2",), ("v1", "p")]}
    assert len(names) == 4
