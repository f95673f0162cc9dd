"""SQS records at the edge: who sent one, and how one that failed is told apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# SQS attests the sender as role-id:session, and a host's session is its instance id.
SENDER = re.compile(r"[A-Z0-9]+:(?P<instance>i-[0-9a-f]{8,17})")


def attested_instance(record: Mapping[str, Any]) -> str:
    """Return the instance that SQS saw sending, or an id that no host has."""
    sender = str(record.get("attributes", {}).get("SenderId", ""))
    match = SENDER.fullmatch(sender)
    return match["instance"] if match else f"unattested:{sender[:40]}"


def failures(message_ids: Iterable[str]) -> dict[str, list[dict[str, str]]]:
    """Return the reply that keeps exactly these records on the queue."""
    return {"batchItemFailures": [{"itemIdentifier": i} for i in message_ids]}
