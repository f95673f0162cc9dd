"""SQS records at the edge: who sent one, and how one that failed comes back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

BASE_SECONDS = 2

logger = Logger(child=True)

# SQS attests the sender as role-id:session, and a host's session is its instance id.
SENDER = re.compile(r"[A-Z0-9]+:(?P<instance>i-[0-9a-f]{8,17})")


def attested_instance(record: Mapping[str, Any]) -> str:
    """Return the instance that SQS saw sending, or an id that no host has."""
    sender = str(record.get("attributes", {}).get("SenderId", ""))
    match = SENDER.fullmatch(sender)
    return match["instance"] if match else f"unattested:{sender[:40]}"


def come_back(
    event: Mapping[str, Any],
    failed: Collection[str],
    *,
    sqs: SQSClient,
    queue_url: str,
    within_seconds: int,
) -> dict[str, list[dict[str, str]]]:
    """
    Return the reply that keeps exactly the records named in *failed* on the queue.

    They come back after 2 s, then 4, 8 and so on to *within_seconds*: the visibility timeout
    is made for a function that died, and a passing fault is over sooner.
    """
    for record in event["Records"]:
        if record["messageId"] in failed:
            receives = int(record["attributes"]["ApproximateReceiveCount"])
            seconds = min(BASE_SECONDS**receives, within_seconds)
            try:
                sqs.change_message_visibility(
                    QueueUrl=queue_url,
                    ReceiptHandle=record["receiptHandle"],
                    VisibilityTimeout=seconds,
                )
            except (ClientError, BotoCoreError) as error:
                logger.warning(
                    "retry not hurried", message_id=record["messageId"], reason=str(error)
                )
    return {"batchItemFailures": [{"itemIdentifier": i} for i in failed]}
