"""Tickets from the pool's work queue, received only while the host wants work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from reprieve.domain.errors import MalformedError
from reprieve.domain.needs import Needs
from reprieve.protocol import Ticket
from reprieve_agent import events as on
from reprieve_agent.events import Event

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 20
PAUSE_SECONDS = 1.0


class WorkQueue:
    """One ticket at a time: the next is asked for when the last one is decided."""

    def __init__(
        self,
        client: SQSClient,
        url: str,
        emit: Callable[[Event], None],
        notice: timedelta,
        *,
        holds: Callable[[Needs], bool] = lambda _: True,
    ) -> None:
        self._client = client
        self._url = url
        self._emit = emit
        self._holds = holds
        # Long enough for another host to take the ticket meanwhile, one renewal.
        self._aside = max(1, int(notice / timedelta(seconds=8)))
        # SQS takes whole seconds. Short enough that a message which SQS hands to a host just
        # as that one leaves is rare, long enough to cost next to nothing.
        self._wait = max(1, min(LONG_POLL_SECONDS, int(notice / timedelta(seconds=4))))
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Receive in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="work", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """
        Stop after the poll under way, and wait for it.

        A host that hangs up in the middle may be given a message that then nobody sees
        until it becomes visible again.
        """
        self._ended.set()
        self._wanted.set()
        if self._thread:
            self._thread.join(self._wait + PAUSE_SECONDS)

    def want(self, *, tickets: bool) -> None:
        """Receive, or don't."""
        if tickets:
            self._wanted.set()
        else:
            self._wanted.clear()

    def run(self) -> None:
        """Receive until ended."""
        while not self._ended.is_set():
            self._wanted.wait()
            if self._ended.is_set():
                return
            try:
                self._receive()
            except Exception as error:  # noqa: BLE001 - the queue will be back
                log.warning("work queue can't be read", extra={"error": repr(error)})
                self._ended.wait(PAUSE_SECONDS)

    def delete(self, receipt: str) -> None:
        """Take the ticket off the queue. A failure is harmless: the lease decides."""
        try:
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt)
        except Exception as error:  # noqa: BLE001 - it will come again and be refused
            log.warning("ticket not deleted", extra={"error": repr(error)})

    def give_back(self, receipt: str, *, seconds: int = 0) -> None:
        """Let another host have the ticket, now or in so many seconds."""
        try:
            self._client.change_message_visibility(
                QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=seconds
            )
        except Exception as error:  # noqa: BLE001 - it shows up again by itself, later
            log.warning("ticket not given back", extra={"error": repr(error)})

    def _receive(self) -> None:
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=1, WaitTimeSeconds=self._wait
        )
        for message in answer.get("Messages", []):
            try:
                ticket = Ticket.from_json(message["Body"])
            except MalformedError as error:
                # Left where it is: its dead-letter queue has an alarm.
                log.error("ticket can't be read", extra={"error": str(error)})  # noqa: TRY400
                continue
            if self._ended.is_set():
                self.give_back(message["ReceiptHandle"])
                continue
            if not self._holds(ticket.needs):
                log.info("ticket left to another host", extra={"needs": str(ticket.needs)})
                self.give_back(message["ReceiptHandle"], seconds=self._aside)
                continue
            self._wanted.clear()
            self._emit(on.TicketCame(ticket.key, message["ReceiptHandle"]))
