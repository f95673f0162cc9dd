"""
Queues, where ministack keeps what a caller who hung up was handed.

SQS notices a closed connection; ministack goes on with the long poll and hands the next message
to nobody, which would hide it until its visibility timeout.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from reprieve_cli.local.world.upstream import Upstream


class Queues:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def put_back(self, queue_url: str, answer: bytes) -> None:
        """Make the messages in *answer*, ReceiveMessage's body, visible again."""
        for message in _messages(answer):
            try:
                await self._upstream.call(
                    "sqs",
                    "change_message_visibility",
                    QueueUrl=queue_url,
                    ReceiptHandle=message["ReceiptHandle"],
                    VisibilityTimeout=0,
                )
            except (BotoCoreError, ClientError):  # it is gone, or its queue is
                continue


def _messages(answer: bytes) -> list[dict[str, str]]:
    try:
        messages: list[dict[str, str]] = json.loads(answer).get("Messages") or []
    except (ValueError, AttributeError):
        return []
    return messages
