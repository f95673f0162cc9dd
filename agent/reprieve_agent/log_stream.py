"""
The job's output in CloudWatch Logs: one stream an attempt, each line an event.

What was sent is known by a place in the file, which is written down after every call. An agent
that dies between the two sends those lines again: none is ever missing, some may come twice.
"""

from __future__ import annotations

import io
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reprieve.domain.lease import LeaseKey
from reprieve_agent.files import read_json, write_json

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import InputLogEventTypeDef

log = logging.getLogger(__name__)

# A call takes 1 MiB and 10,000 events, each counted with 26 bytes more than it has.
CALL_BYTES = 1_000_000
CALL_EVENTS = 10_000
EVENT_OVERHEAD_BYTES = 26
READ_BYTES = 256 * 1024  # not more: a byte that is no UTF-8 becomes three
FORBIDDEN = re.compile(r"[:*]")


class LogGroup:
    """The stack's group for jobs. Its client is made for the first job: an idle host needs none."""

    def __init__(self, name: str, connect: Callable[[], CloudWatchLogsClient]) -> None:
        self._name = name
        self._connect = connect
        self._client: CloudWatchLogsClient | None = None
        self._connecting = threading.Lock()

    def put(self, stream: str, events: list[InputLogEventTypeDef]) -> None:
        """Add *events*, and the stream if there is none."""
        client = self._connected()
        try:
            self._put(client, stream, events)
        except client.exceptions.ResourceNotFoundException:
            try:
                client.create_log_stream(logGroupName=self._name, logStreamName=stream)
            except client.exceptions.ResourceAlreadyExistsException:
                log.info("log stream made by another call", extra={"stream": stream})
            self._put(client, stream, events)

    def _put(
        self, client: CloudWatchLogsClient, stream: str, events: list[InputLogEventTypeDef]
    ) -> None:
        client.put_log_events(logGroupName=self._name, logStreamName=stream, logEvents=events)

    def _connected(self) -> CloudWatchLogsClient:
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client


@dataclass(slots=True)
class LogStream:
    """One attempt's output, followed from its file."""

    key: LeaseKey
    path: Path
    sent_file: Path  # how far it got
    group: LogGroup
    _sent: int | None = None
    _sending: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The stream's name, as people look for it."""
        return f"{FORBIDDEN.sub('_', self.key.job)}/{self.key.attempt:06d}"

    def send(self, *, last: bool = False) -> None:
        """
        Send what is new; a failure is made good by the next call.

        A line without its end waits for it, unless nothing more will come: *last*.
        """
        with self._sending:
            try:
                while self._send_some(last=last):
                    pass
            except Exception as error:  # noqa: BLE001 - the job's copy in the bucket is whole
                log.warning("job log not streamed", extra={"error": repr(error)})

    def _send_some(self, *, last: bool) -> bool:
        if self._sent is None:
            self._sent = int((read_json(self.sent_file) or {}).get("sent", 0))
        try:
            with self.path.open("rb") as file:
                file.seek(self._sent)
                body = file.read(READ_BYTES)
        except FileNotFoundError:
            return False
        at = int(time.time() * 1000)
        events: list[InputLogEventTypeDef] = []
        consumed = size = 0
        for taken, text in _lines(_whole_lines(body, last=last)):
            size += len(text.encode()) + EVENT_OVERHEAD_BYTES
            if len(events) == CALL_EVENTS or size > CALL_BYTES:
                break
            events.append({"timestamp": at, "message": text})
            consumed += taken
        if not events:
            return False
        self.group.put(self.name, events)
        self._sent += consumed
        write_json(self.sent_file, {"sent": self._sent})
        return True


def _whole_lines(body: bytes, *, last: bool) -> bytes:
    """Return what may be sent: up to the last line's end, or all when that can't be waited for."""
    ends = body.rfind(b"\n") + 1
    full = len(body) == READ_BYTES
    return body if (last and not full) or (full and not ends) else body[:ends]


def _lines(body: bytes) -> Iterator[tuple[int, str]]:
    """Yield each line, and how many bytes it takes up in the file."""
    for line in io.BytesIO(body):
        # An event has at least one character.
        yield len(line), line.rstrip(b"\r\n").decode("utf-8", "replace") or " "
