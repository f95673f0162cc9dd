"""The queues that functions write to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reprieve.adapters.outcome import no_answer_is_unknown
from reprieve.domain.errors import MalformedError
from reprieve.protocol import OrderMessage, Ticket

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class SqsMail:
    """``Mail``; *work_queues* maps a pool to the URL of its work queue."""

    def __init__(
        self, client: SQSClient, *, orders_queue_url: str, work_queues: Mapping[str, str]
    ) -> None:
        self._client = client
        self._orders_queue_url = orders_queue_url
        self._work_queues = work_queues

    def ticket(self, pool: str, ticket: Ticket) -> None:
        if pool not in self._work_queues:
            raise MalformedError(f"pool {pool} has no work queue: is it still configured?")
        with no_answer_is_unknown(f"ticket for {ticket.key}"):
            self._client.send_message(
                QueueUrl=self._work_queues[pool], MessageBody=ticket.to_json()
            )

    def order(self, message: OrderMessage) -> None:
        with no_answer_is_unknown(f"order for {message.job}#{message.attempt}"):
            self._client.send_message(
                QueueUrl=self._orders_queue_url, MessageBody=message.to_json()
            )
