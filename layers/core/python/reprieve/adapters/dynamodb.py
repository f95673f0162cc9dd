"""
The table as the stores use it: strong reads, conditional writes, one meaning per error.

A refused condition is an answer and carries the item that stood in the way. A conflict,
a throttle or a missing answer is none: a transaction is then repeated a few times under
one request token, which DynamoDB executes once, before ``UnknownOutcomeError``.
"""

from __future__ import annotations

import math
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

from reprieve.adapters import keys
from reprieve.adapters.chunks import chunks
from reprieve.adapters.codec import Item, encode
from reprieve.adapters.keys import Key
from reprieve.adapters.outcome import ASK_AGAIN, code_of, is_unknown, no_answer_is_unknown
from reprieve.domain.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

READ_BATCH = 100  # BatchGetItem's limit
TRIES = 4  # of a transaction in conflict, or of a batch that is throttled
FIRST_PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 5.0  # after that, who waits for an answer may need the time for something else
REFUSED = "ConditionalCheckFailed"

NAME = re.compile(r"#(\w+)")


class RefusedError(Exception):
    """A condition didn't hold: that of action number *index*; *item* is the row as it is."""

    def __init__(self, item: Item | None, index: int = 0) -> None:
        super().__init__(f"action {index} refused")
        self.item, self.index = item, index


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Store a whole row. ``#name`` in a condition is an attribute, ``:name`` one of *values*."""

    verb: ClassVar[str] = "Put"
    key: Key
    item: Item
    condition: str = ""
    values: Item = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Return the part of a request that says it."""
        return {"Item": key_item(self.key) | self.item} | _terms(
            {"ConditionExpression": self.condition}, self.values
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """
    Change some attributes of a row.

    *add* raises numbers and extends sets, *delete* takes members out of sets: a set that
    becomes empty is an attribute that is gone.
    """

    verb: ClassVar[str] = "Update"
    key: Key
    assign: Item = field(default_factory=dict)
    add: Item = field(default_factory=dict)
    delete: Item = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    condition: str = ""
    values: Item = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Return the part of a request that says it."""
        parts = {
            "SET": ", ".join(f"#{name} = :{name}" for name in self.assign),
            "ADD": ", ".join(f"#{name} :{name}" for name in self.add),
            "DELETE": ", ".join(f"#{name} :{name}" for name in self.delete),
            "REMOVE": ", ".join(f"#{name}" for name in self.remove),
        }
        change = " ".join(f"{verb} {what}" for verb, what in parts.items() if what)
        return {"Key": key_item(self.key)} | _terms(
            {"UpdateExpression": change, "ConditionExpression": self.condition},
            self.assign | self.add | self.delete | self.values,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Only require something of a row, in a transaction."""

    verb: ClassVar[str] = "ConditionCheck"
    key: Key
    condition: str
    values: Item = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Return the part of a request that says it."""
        return {"Key": key_item(self.key)} | _terms(
            {"ConditionExpression": self.condition}, self.values
        )


Action = Put | Update | Check
ABSENT = "attribute_not_exists(#pk)"


class Table:
    """The jobs table. Every method raises ``UnknownOutcomeError`` when there was no answer."""

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._name = name
        self._sleep = sleep
        self._monotonic = monotonic

    def get(self, key: Key) -> Item | None:
        """Read one row, strongly."""
        with no_answer_is_unknown(f"read {_text(key)}"):
            answer: Any = self._client.get_item(
                TableName=self._name, Key=key_item(key), ConsistentRead=True
            )
        return _item_of(answer)

    def get_all(self, wanted: Iterable[Key]) -> dict[Key, Item]:
        """Read the rows that exist, strongly, a hundred in a call."""
        found, unread = self.get_most(wanted)
        if unread:
            raise UnknownOutcomeError("batch read: keys are left unprocessed")
        return found

    def get_most(self, wanted: Iterable[Key]) -> tuple[dict[Key, Item], frozenset[Key]]:
        """Read as ``get_all`` does; return also the keys that DynamoDB never got to."""
        found: dict[Key, Item] = {}
        unread: set[Key] = set()
        for chunk in chunks(list(dict.fromkeys(wanted)), READ_BATCH):
            rest: Any = {
                self._name: {"Keys": [key_item(key) for key in chunk], "ConsistentRead": True}
            }
            for attempt in range(TRIES):
                with no_answer_is_unknown("batch read"):
                    answer: Any = self._client.batch_get_item(RequestItems=rest)
                items = answer["Responses"].get(self._name, [])
                found |= {_key_of(item): item for item in items}
                rest = answer.get("UnprocessedKeys")
                if not rest:
                    break
                self._pause(attempt)
            else:
                unread |= {_key_of(item) for item in rest[self._name]["Keys"]}
        return found, frozenset(unread)

    def partition(self, pk: str, prefix: str) -> list[Item]:
        """Read the rows of one partition whose sort key starts with *prefix*, strongly."""
        return self._query(
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            ExpressionAttributeValues={":pk": {"S": pk}, ":prefix": {"S": prefix}},
            ConsistentRead=True,
        )

    def live(self, pool: str) -> list[str]:
        """Return the sort keys of one pool's part of the index; they may be a moment old."""
        items = self._query(
            IndexName=keys.LIVE_INDEX,
            KeyConditionExpression="live_pk = :pk",
            ExpressionAttributeValues={":pk": {"S": keys.live_pool(pool)}},
            ProjectionExpression="live_sk",
        )
        return [item["live_sk"]["S"] for item in items]

    def live_items(self, pool: str) -> list[Item]:
        """Return the rows of one pool's part of the index, whole; they may be a moment old."""
        return self._query(
            IndexName=keys.LIVE_INDEX,
            KeyConditionExpression="live_pk = :pk",
            ExpressionAttributeValues={":pk": {"S": keys.live_pool(pool)}},
        )

    def put(self, action: Put) -> None:
        """Store a row, or raise ``RefusedError``."""
        with no_answer_is_unknown(f"write {_text(action.key)}"), _refusal():
            self._client.put_item(TableName=self._name, **_with_old_item(action))

    def update(self, action: Update) -> Item:
        """Change a row and return it whole, or raise ``RefusedError``."""
        with no_answer_is_unknown(f"write {_text(action.key)}"), _refusal():
            answer: Any = self._client.update_item(
                TableName=self._name, ReturnValues="ALL_NEW", **_with_old_item(action)
            )
        return dict(answer["Attributes"])

    def transact(self, *actions: Action) -> None:
        """
        Do all of *actions* or none; raise ``RefusedError`` about the first that didn't hold.

        They are judged in the order given, so the action that tells most comes first: if
        it is in conflict, a later one's refusal doesn't count yet.
        """
        token = uuid.uuid4().hex
        writes: Any = [
            {action.verb: {"TableName": self._name} | _with_old_item(action)} for action in actions
        ]
        what = f"transaction on {_text(actions[0].key)}"
        until = self._monotonic() + PATIENCE_SECONDS
        for attempt in range(TRIES):
            try:
                with no_answer_is_unknown(what):
                    self._client.transact_write_items(
                        TransactItems=writes, ClientRequestToken=token
                    )
                return
            except UnknownOutcomeError:
                if attempt == TRIES - 1 or self._monotonic() >= until:
                    raise
            except ClientError as error:
                _judge(error)
            self._pause(attempt)
        raise UnknownOutcomeError(f"{what}: in conflict")

    def _query(self, **request: Any) -> list[Item]:
        items: list[Item] = []
        while True:
            with no_answer_is_unknown("query"):
                answer: Any = self._client.query(TableName=self._name, **request)
            items += answer["Items"]
            last = answer.get("LastEvaluatedKey")
            if not last:
                return items
            request["ExclusiveStartKey"] = last

    def _pause(self, attempt: int) -> None:
        self._sleep(random.uniform(0.5, 1) * FIRST_PAUSE_SECONDS * 2**attempt)


def key_item(key: Key) -> Item:
    """Return the two key attributes."""
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def values(**plain: Any) -> Item:
    """Return attribute values by name."""
    return {name: encode(value) for name, value in plain.items()}


def live(pool: str, sort_key: str | None) -> Item:
    """Return the attributes that list a row in the index; none for a row that is over."""
    return values(live_pk=keys.live_pool(pool), live_sk=sort_key) if sort_key else {}


def expires(at: datetime) -> Item:
    """Return the attribute after which DynamoDB may delete a row, some day."""
    return values(ttl=math.ceil(at.timestamp()))


@contextmanager
def _refusal() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if code_of(error) == f"{REFUSED}Exception":
            raise RefusedError(_item_of(error.response)) from error
        raise


def _judge(error: ClientError) -> None:
    """Raise what a cancelled transaction means; return if it should be tried again."""
    if code_of(error) != "TransactionCanceledException":
        raise error
    response: Any = error.response
    for index, reason in enumerate(response.get("CancellationReasons", [])):
        match reason.get("Code"):
            case None | "None":
                continue
            case code if code == REFUSED:
                raise RefusedError(_item_of(reason), index) from error
            case code if code in ASK_AGAIN:
                return
            case _:
                raise error
    if not is_unknown(error):
        raise error


def _item_of(answer: Any) -> Item | None:
    return answer.get("Item") or None


def _with_old_item(action: Action) -> dict[str, Any]:
    request = action.request()
    if action.condition:
        request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return request


def _terms(expressions: dict[str, str], named: Item) -> dict[str, Any]:
    """Return the expressions that aren't empty, with the names and values they use."""
    used: dict[str, Any] = {name: text for name, text in expressions.items() if text}
    names = NAME.findall(" ".join(expressions.values()))
    if names:
        used["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
    if named:
        used["ExpressionAttributeValues"] = {f":{name}": value for name, value in named.items()}
    return used


def _key_of(item: Item) -> Key:
    return item["pk"]["S"], item["sk"]["S"]


def _text(key: Key) -> str:
    return "/".join(key)
