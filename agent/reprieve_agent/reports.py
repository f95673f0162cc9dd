"""Reports to the functions. They may be lost, doubled or late: the lease is the fact."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from reprieve.domain.lease import LeaseKey
from reprieve.protocol import Report, ReportKind, Scalar
from reprieve_agent.clock import boot_seconds, now

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

log = logging.getLogger(__name__)

MOST_WAITING = 1000
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0


class Reports:
    """A queue of our own before SQS, so that no decision waits for the network."""

    def __init__(self, client: SQSClient, url: str, instance_id: str) -> None:
        self._client = client
        self._url = url
        self._instance_id = instance_id
        self._waiting: deque[Report] = deque(maxlen=MOST_WAITING)
        self._sending = False
        self._changed = threading.Condition()
        self._ended = False
        self._seq = 0

    def start(self) -> None:
        """Send in a thread of its own."""
        threading.Thread(target=self.run, name="reports", daemon=True).start()

    def send(self, kind: ReportKind, key: LeaseKey | None, data: dict[str, Scalar]) -> None:
        """Queue a report; it carries the moment it was said."""
        with self._changed:
            self._seq += 1
            report = Report(kind, self._instance_id, now().wall, self._seq, key, data)
            self._waiting.append(report)
            self._changed.notify_all()
        facts = {name: value for name, value in data.items() if value is not None}
        log.info(
            "reported",
            extra={"kind": kind.value, "lease": str(key) if key else None, "facts": facts},
        )

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent, or *seconds* have passed."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._sending, timeout=seconds
            )

    def end(self) -> None:
        """Stop sending."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def run(self) -> None:
        """Send until ended, the oldest first."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._ended)
                if self._ended:
                    return
                report = self._waiting.popleft()
                self._sending = True
            sent = self._send(report)
            with self._changed:
                self._sending = False
                if not sent and len(self._waiting) < MOST_WAITING:
                    self._waiting.appendleft(report)
                self._changed.notify_all()
                if sent:
                    pause = FIRST_PAUSE_SECONDS
                    continue
                resumed = boot_seconds() + pause
                while not self._ended and boot_seconds() < resumed:
                    self._changed.wait(resumed - boot_seconds())
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _send(self, report: Report) -> bool:
        try:
            self._client.send_message(QueueUrl=self._url, MessageBody=report.to_json())
        except Exception as error:  # noqa: BLE001 - kept, and sent when the queue is back
            log.warning("report not sent", extra={"kind": report.kind, "error": repr(error)})
            return False
        return True
