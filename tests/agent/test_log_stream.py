"""A job's output on its way to CloudWatch Logs, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.lease import LeaseState
from reprieve.domain.spec import JobSpec
from reprieve_agent import log_stream
from reprieve_agent.log_stream import LogGroup, LogStream
from reprieve_agent.logs import LogPusher
from tests.agent.fakes import MemoryCheckpoints
from tests.agent.harness import Cloud, HostUnderTest, wait_until
from tests.builders import a_key

KEY = a_key()


class MissingError(Exception):
    """There is no such stream."""


class ExistsError(Exception):
    """There is such a stream."""


class Exceptions:
    ResourceNotFoundException = MissingError
    ResourceAlreadyExistsException = ExistsError


class Logs:
    """The Logs client, as the agent uses it; *failures* are raised one a call."""

    exceptions = Exceptions

    def __init__(self) -> None:
        self.streams: dict[str, list[str]] = {}
        self.calls: list[str] = []
        self.failures: list[Exception] = []

    def create_log_stream(self, **request: str) -> None:
        self.calls.append("create")
        if request["logStreamName"] in self.streams:
            raise ExistsError
        self.streams[request["logStreamName"]] = []

    def put_log_events(self, **request: Any) -> None:
        self.calls.append("put")
        if self.failures:
            raise self.failures.pop(0)
        if request["logStreamName"] not in self.streams:
            raise MissingError
        events = request["logEvents"]
        sizes = [len(event["message"].encode()) for event in events]
        assert all(sizes)
        assert len(events) <= 10_000
        assert sum(sizes) + 26 * len(events) <= 1_048_576
        self.streams[request["logStreamName"]] += [event["message"] for event in events]


@pytest.fixture
def logs() -> Logs:
    return Logs()


def stream_of(folder: Path, logs: Logs) -> LogStream:
    client: Any = logs
    group = LogGroup("jobs", lambda: client)
    return LogStream(KEY, folder / "job.log", folder / "sent.json", group)


def write(folder: Path, text: bytes) -> None:
    with (folder / "job.log").open("ab") as file:
        file.write(text)


def test_each_line_is_sent_once_and_an_unfinished_one_waits(tmp_path: Path, logs: Logs) -> None:
    stream = stream_of(tmp_path, logs)
    stream.send()
    write(tmp_path, b"one\n\ntw")
    stream.send()
    write(tmp_path, b"o\nthree")
    stream.send()
    stream.send()

    assert logs.streams["job-1/000001"] == ["one", " ", "two"]
    assert logs.calls == ["put", "create", "put", "put"]


def test_the_last_line_is_never_lost_also_without_an_end(tmp_path: Path, logs: Logs) -> None:
    stream = stream_of(tmp_path, logs)
    write(tmp_path, b"one\nlast words")

    stream.send(last=True)

    assert logs.streams["job-1/000001"] == ["one", "last words"]


def test_what_failed_is_sent_by_the_next_call(tmp_path: Path, logs: Logs) -> None:
    stream = stream_of(tmp_path, logs)
    logs.failures = [ConnectionError("reset"), TimeoutError()]
    write(tmp_path, b"one\n")

    for _ in range(3):
        stream.send()

    assert logs.streams["job-1/000001"] == ["one"]


def test_a_new_agent_goes_on_where_the_last_one_stopped(tmp_path: Path, logs: Logs) -> None:
    write(tmp_path, b"one\n")
    stream_of(tmp_path, logs).send()
    write(tmp_path, b"two\n")

    stream_of(tmp_path, logs).send()

    assert logs.streams["job-1/000001"] == ["one", "two"]


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(3, 50))
def test_whatever_a_job_writes_arrives_within_the_limits(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], read_bytes: int
) -> None:
    folder, logs = tmp_path_factory.mktemp("log"), Logs()
    stream = stream_of(folder, logs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_stream, "READ_BYTES", read_bytes)
        for piece in pieces:
            write(folder, piece)
            stream.send()
        stream.send(last=True)

    sent = "".join(logs.streams.get("job-1/000001", []))
    whole = b"".join(pieces)
    letters = [c for c in whole.decode("ascii", "ignore") if c.isalnum()]
    assert [c for c in sent if c.isascii() and c.isalnum()] == letters


# Nothing it writes reaches the file before its buffer is flushed, which Python does at the exit.
BUFFERED = """
import os, sys, time
os.write(1, b"at once\\n")
out = os.fdopen(1, "w", buffering=1 << 20)
out.write("held back\\nthe last word")
time.sleep(0.3)
"""


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "behind a shell"])
def test_the_last_words_of_a_job_that_buffers_are_never_lost(
    tmp_path: Path, logs: Logs, *, wrapped: bool
) -> None:
    (tmp_path / "job.py").write_text(BUFFERED)
    command = f"python {tmp_path / 'job.py'}"
    sent = ["at once", "held back", "the last word"]
    cloud, client = Cloud(), cast("Any", logs)
    host = HostUnderTest(cloud, tmp_path / "host")
    host.log_group = LogGroup("jobs", lambda: client)
    host.start()
    try:
        argv = ("sh", "-c", f"{command}; true") if wrapped else tuple(command.split())
        key = cloud.submit(JobSpec(argv))
        cloud.ring(key)
        wait_until(lambda: cloud.lease(key).state is LeaseState.DONE, "finished")
        wait_until(lambda: cloud.log(key) == "\n".join(sent), "copied")
        wait_until(lambda: logs.streams.get("job-1/000001") == sent, "streamed")
    finally:
        host.close()


def test_much_output_needs_few_calls(tmp_path: Path, logs: Logs) -> None:
    write(tmp_path, b"a line of some forty characters, as jobs do\n" * 30_000)  # 1.3 MB

    stream_of(tmp_path, logs).send()

    assert len(logs.streams["job-1/000001"]) == 30_000
    assert logs.calls.count("put") < 10


def test_the_stream_gets_its_lines_less_often_than_the_bucket_and_the_last_at_once(
    tmp_path: Path, logs: Logs
) -> None:
    store = MemoryCheckpoints()
    pusher = LogPusher(KEY, tmp_path / "job.log", store, 60, stream_of(tmp_path, logs))
    for n in range(5):
        write(tmp_path, b"line %d\n" % n)
        pusher.push(last=n == 4)

    assert [op for op, _ in store.calls] == ["put_log"] * 5
    assert logs.calls == ["put", "create", "put", "put", "put"]
    assert logs.streams["job-1/000001"] == [f"line {n}" for n in range(5)]


def test_the_bucket_gets_its_copy_also_while_the_stream_cant_be_reached(
    tmp_path: Path, logs: Logs
) -> None:
    store = MemoryCheckpoints()
    logs.failures = [PermissionError("denied")]
    write(tmp_path, b"one\n")

    LogPusher(KEY, tmp_path / "job.log", store, 60, stream_of(tmp_path, logs)).push(last=True)

    assert store.objects["jobs/job-1/logs/000001.log"] == b"one\n"
    assert logs.streams == {}
