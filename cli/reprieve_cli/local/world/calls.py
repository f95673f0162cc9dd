"""
The call log: who called what, on which resources, under which tags and table keys.

It is what policies are compared with where the emulator can't judge them (EC2, SSM, leading
keys), and what drills count. Metadata requests are not in it.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from reprieve_cli.local.world.timeline import Journal, now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reprieve_cli.local.world.wire import Call

_LARGEST_KEPT = 16_384  # bytes of parameters; larger ones are left out
_CODE = re.compile(rb"<Code>([^<]+)</Code>")
_EQUALS = re.compile(r"(#?\w+)\s*=\s*(:\w+)")
_PARTITION, _SORT = "pk", "sk"  # the jobs table's key

Item = dict[str, Any]


class CallLog(Journal):
    """Numbers calls as they end, so that a reader who follows the numbers misses none."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, tuple[Item, float]] = {}

    def begin(self, call: Call, *, instance_id: str | None, facts: Item) -> Item:
        """Take *call* down as it arrives; ``finish`` logs it with how it ended."""
        entry: Item = {
            "began_at": now().isoformat(),
            "service": call.service,
            "action": call.action,
            "caller": call.caller,
            "instance_id": instance_id,
            "resources": resources(call),
            "tags": request_tags(call),
            "keys": table_keys(call),
            "parameters": _kept(call.parameters),
            **facts,
            "fault": None,
            "status": None,
            "error": None,
            "ms": None,
        }
        self._open[id(entry)] = (entry, time.monotonic())
        return entry

    def finish(self, entry: Item, *, status: int | None, error: str | None = None) -> None:
        """Log the call with its answer; None means that the caller got none. Once is enough."""
        _, began = self._open.pop(id(entry), (entry, None))
        if began is None:  # it had its effect; that the answer was lost is the fault
            return
        entry["status"], entry["error"] = status, error
        entry["ms"] = round((time.monotonic() - began) * 1000, 1)
        self.add(entry)

    def in_flight(self) -> list[Item]:
        """Return the calls that nobody has answered yet."""
        return [entry for entry, _ in self._open.values()]


def error_code(headers: Mapping[str, str], body: bytes) -> str:
    """Read the code out of an error answer, whatever the protocol."""
    found = _CODE.search(body)
    if found:
        return found[1].decode()
    name = headers.get("x-amzn-errortype") or headers.get("x-amzn-query-error") or ""
    if not name:
        try:
            name = str(json.loads(body).get("__type", ""))
        except (ValueError, AttributeError):
            return "?"
    return name.rpartition("#")[2].partition(":")[0].partition(";")[0] or "?"


def _kept(parameters: Item) -> Item | None:
    text = json.dumps(parameters, default=str)
    if len(text) > _LARGEST_KEPT:
        return None
    kept: Item = json.loads(text)
    return kept


# ---------------------------------------------------------------------- resources
def resources(call: Call) -> list[str]:
    """Name what *call* is about, as short as a reader needs it."""
    given = call.parameters
    match call.service:
        case "dynamodb":
            return sorted({key["table"] for key in table_keys(call)} or _one(given, "TableName"))
        case "sqs":
            return [_last(name) for name in _one(given, "QueueUrl") or _one(given, "QueueName")]
        case "s3":
            return ["/".join([*_one(given, "Bucket"), *_one(given, "Key")])]
        case "lambda":
            return _one(given, "FunctionName")
        case "ssm":
            names = _one(given, "DocumentName") or _one(given, "Name")
            return [*names, *given.get("InstanceIds", [])]
        case "ec2":
            return _ec2_resources(given)
        case "sns":
            return _one(given, "TopicArn")
        case "events":
            return _one(given, "Name") or _one(given, "Rule")
        case "logs":
            return _one(given, "logGroupName")
        case _:
            return []


def _ec2_resources(given: Item) -> list[str]:
    templates = [
        configuration.get("LaunchTemplateSpecification", {}).get("LaunchTemplateId", "?")
        for configuration in given.get("LaunchTemplateConfigs", [])
    ]
    return [*templates, *given.get("InstanceIds", []), *given.get("Resources", [])]


def _one(given: Item, name: str) -> list[str]:
    value = given.get(name)
    return [str(value)] if value else []


def _last(name: str) -> str:
    return name.rpartition("/")[2]


# ---------------------------------------------------------------------- tags
def request_tags(call: Call) -> dict[str, dict[str, str]]:
    """Return the tags the request sets, by resource type; ``*`` for CreateTags."""
    if call.service != "ec2":
        return {}
    tags = {
        one["ResourceType"]: {tag["Key"]: tag.get("Value", "") for tag in one.get("Tags", [])}
        for one in call.parameters.get("TagSpecifications", [])
    }
    if call.action == "CreateTags":
        tags["*"] = {tag["Key"]: tag.get("Value", "") for tag in call.parameters.get("Tags", [])}
    return tags


# ---------------------------------------------------------------------- table keys
def table_keys(call: Call) -> list[Item]:
    """Return {op, table, pk, sk} for each item a DynamoDB call names."""
    if call.service != "dynamodb":
        return []
    given = call.parameters
    match call.action:
        case "GetItem" | "UpdateItem" | "DeleteItem" | "PutItem":
            return [_key(call.action, given)]
        case "Query":
            return [_query_key(given)]
        case "TransactWriteItems" | "TransactGetItems":
            return [
                _key(op, action)
                for item in given.get("TransactItems", [])
                for op, action in item.items()
            ]
        case "BatchGetItem":
            return [
                _key("Get", {"TableName": table, "Key": key})
                for table, request in given.get("RequestItems", {}).items()
                for key in request.get("Keys", [])
            ]
        case "BatchWriteItem":
            return [
                _key(op.removesuffix("Request"), {"TableName": table, **request})
                for table, requests in given.get("RequestItems", {}).items()
                for entry in requests
                for op, request in entry.items()
            ]
        case _:
            return []


def _key(op: str, given: Item) -> Item:
    attributes = given.get("Key") or given.get("Item") or {}
    return {
        "op": op,
        "table": _last(given.get("TableName", "?")),
        "pk": _plain(attributes.get(_PARTITION)),
        "sk": _plain(attributes.get(_SORT)),
    }


def _query_key(given: Item) -> Item:
    names = given.get("ExpressionAttributeNames", {})
    values = given.get("ExpressionAttributeValues", {})
    equal = {
        names.get(name, name): _plain(values.get(value))
        for name, value in _EQUALS.findall(given.get("KeyConditionExpression", ""))
    }
    index = given.get("IndexName")
    partition = next(iter(equal.values()), None) if index else equal.get(_PARTITION)
    return {
        "op": "Query",
        "table": _last(given.get("TableName", "?")),
        "index": index,
        "pk": partition,
        "sk": equal.get(_SORT),
    }


def _plain(attribute: Item | None) -> str | None:
    return str(next(iter(attribute.values()))) if attribute else None
