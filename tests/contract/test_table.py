"""Table: what each of DynamoDB's answers means, and what is repeated until there is one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from botocore.exceptions import ClientError

from reprieve.adapters.codec import to_item
from reprieve.adapters.dynamodb import TRIES, Put, RefusedError, Table, Update, values
from reprieve.adapters.dynamodb_leases import DynamoHostLeases
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.lease import Cause, Outcome, Phase
from reprieve.ports.leases import Claim, Progress
from tests.builders import HOST, a_holder, a_key, a_lease
from tests.contract.scripted import DROP, Endpoint, Reply, client, json_error, json_reply, serving

KEY = ("JOB#1", "JOB")
ROW = {"pk": {"S": "JOB#1"}, "sk": {"S": "JOB"}}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def table(endpoint: Endpoint, pauses: list[float]) -> Iterator[Table]:
    dynamodb = client("dynamodb", endpoint)
    yield Table(dynamodb, "Jobs", sleep=pauses.append)
    dynamodb.close()


def cancelled(*codes: str | None, item: dict[str, Any] | None = None) -> Reply:
    reasons = [
        {"Code": code or "None"} | ({"Item": item} if code and item else {}) for code in codes
    ]
    return json_error(
        "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Transaction cancelled",
        CancellationReasons=reasons,
    )


def put() -> Put:
    return Put(key=KEY, item=values(n=1))


CONFLICT, REFUSED, THROTTLED = "TransactionConflict", "ConditionalCheckFailed", "ThrottlingError"

UNKNOWN = {
    "dropped": DROP,
    "throttled": json_error("ThrottlingException"),
    "over-capacity": json_error("ProvisionedThroughputExceededException"),
    "internal": json_error("InternalServerError", status=500),
    "in-conflict": json_error("TransactionConflictException"),
    "bad-gateway": Reply(b"<html>bad gateway</html>", 502),
    "unavailable": Reply(b"", 503),
}


@pytest.mark.parametrize("reply", UNKNOWN.values(), ids=UNKNOWN)
def test_a_write_without_an_answer_is_unknown(
    table: Table, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(reply, reply, reply)

    with pytest.raises(UnknownOutcomeError):
        table.put(put())
    with pytest.raises(UnknownOutcomeError):
        table.update(Update(key=KEY, add=values(beat=1)))
    with pytest.raises(UnknownOutcomeError):
        table.get(KEY)


def test_a_denied_write_is_a_defect_and_stays_one(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(json_error("AccessDeniedException"), json_error("AccessDeniedException"))

    with pytest.raises(ClientError, match="AccessDenied"):
        table.put(put())
    with pytest.raises(ClientError, match="AccessDenied"):
        table.transact(put())


def test_a_refused_write_shows_the_row_that_stood_in_the_way(
    table: Table, endpoint: Endpoint
) -> None:
    endpoint.says(json_error("ConditionalCheckFailedException", Item=ROW))

    with pytest.raises(RefusedError) as refused:
        table.put(put())

    assert refused.value.item == ROW


def test_a_transaction_in_conflict_is_repeated_under_the_same_token(
    table: Table, endpoint: Endpoint, pauses: list[float]
) -> None:
    endpoint.says(cancelled(CONFLICT, None), DROP, cancelled(None, THROTTLED), json_reply())

    table.transact(put(), put())

    assert len({asked["ClientRequestToken"] for asked in endpoint.asked}) == 1
    assert len(endpoint.asked) == 4
    assert len(pauses) == 3
    assert all(0 < pause < 1 for pause in pauses)


def test_every_transaction_has_a_token_of_its_own(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(json_reply(), json_reply())

    table.transact(put())
    table.transact(put())

    assert len({asked["ClientRequestToken"] for asked in endpoint.asked}) == 2


@pytest.mark.parametrize(
    "reply",
    [cancelled(CONFLICT), DROP, json_error("InternalServerError")],
    ids=["in-conflict", "dropped", "internal"],
)
def test_a_transaction_that_never_gets_an_answer_is_unknown(
    table: Table, endpoint: Endpoint, reply: Reply
) -> None:
    endpoint.says(*[reply] * TRIES)

    with pytest.raises(UnknownOutcomeError):
        table.transact(put())

    assert len(endpoint.asked) == TRIES


def test_a_table_that_is_slow_to_fail_is_asked_only_once(endpoint: Endpoint) -> None:
    dynamodb = client("dynamodb", endpoint)
    times = iter([0.0, 6.0])
    endpoint.says(DROP, json_reply())

    with pytest.raises(UnknownOutcomeError):
        Table(dynamodb, "Jobs", monotonic=lambda: next(times)).transact(put())

    assert len(endpoint.asked) == 1
    dynamodb.close()


def test_the_first_action_that_did_not_hold_is_the_answer(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(cancelled(None, REFUSED, CONFLICT, item=ROW))

    with pytest.raises(RefusedError) as refused:
        table.transact(put(), put(), put())

    assert (refused.value.index, refused.value.item) == (1, ROW)
    assert len(endpoint.asked) == 1


def test_a_refusal_behind_a_conflict_does_not_count_yet(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(cancelled(CONFLICT, REFUSED), json_reply())

    table.transact(put(), put())

    assert len(endpoint.asked) == 2


def test_a_transaction_cancelled_for_a_defect_stays_one(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(cancelled("ValidationError", REFUSED))

    with pytest.raises(ClientError, match="TransactionCanceled"):
        table.transact(put(), put())


def test_a_claim_in_conflict_with_its_host_row_is_asked_again(
    table: Table, endpoint: Endpoint
) -> None:
    endpoint.says(cancelled(None, None, CONFLICT), cancelled(None, None, REFUSED))

    assert DynamoHostLeases(table).claim(a_key(), a_holder()) is Claim.NOT_READY
    assert len(endpoint.asked) == 2


def test_keys_left_unprocessed_are_asked_for_again(
    table: Table, endpoint: Endpoint, pauses: list[float]
) -> None:
    other = {"pk": {"S": "JOB#2"}, "sk": {"S": "JOB"}}
    rest = {"Jobs": {"Keys": [other], "ConsistentRead": True}}
    endpoint.says(
        json_reply(Responses={"Jobs": [ROW]}, UnprocessedKeys=rest),
        json_reply(Responses={"Jobs": [other]}, UnprocessedKeys={}),
    )

    found = table.get_all([KEY, ("JOB#2", "JOB"), KEY])

    assert found == {KEY: ROW, ("JOB#2", "JOB"): other}
    assert endpoint.asked[0]["RequestItems"]["Jobs"] == {
        "Keys": [ROW, other],
        "ConsistentRead": True,
    }
    assert endpoint.asked[1]["RequestItems"] == rest
    assert len(pauses) == 1


def test_keys_that_stay_unprocessed_are_unknown_and_not_absent(
    table: Table, endpoint: Endpoint
) -> None:
    rest = {"Jobs": {"Keys": [ROW], "ConsistentRead": True}}
    endpoint.says(*[json_reply(Responses={"Jobs": []}, UnprocessedKeys=rest)] * TRIES)

    with pytest.raises(UnknownOutcomeError):
        table.get_all([KEY])


def test_a_query_is_followed_to_its_last_page(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(
        json_reply(Items=[{"live_sk": {"S": "HOST#READY#i-1"}}], LastEvaluatedKey=ROW),
        json_reply(Items=[{"live_sk": {"S": "HOST#READY#i-2"}}]),
    )

    assert table.live("small") == ["HOST#READY#i-1", "HOST#READY#i-2"]

    assert "ConsistentRead" not in endpoint.asked[0]
    assert endpoint.asked[1]["ExclusiveStartKey"] == ROW


def test_reads_of_rows_are_strong(table: Table, endpoint: Endpoint) -> None:
    endpoint.says(json_reply(Item=ROW), json_reply(Items=[]))

    table.get(KEY)
    table.partition("JOB#1", "EVENT#")

    assert [asked["ConsistentRead"] for asked in endpoint.asked] == [True, True]


def test_a_host_only_updates_and_checks_and_only_lease_and_host_rows(
    table: Table, endpoint: Endpoint
) -> None:
    leases, key, me = DynamoHostLeases(table), a_key(), a_holder()
    row = to_item(a_lease())
    holds = {"instance_id": {"S": HOST}, "beat": {"N": "1"}}
    endpoint.says(
        json_reply(),
        json_reply(Attributes=row),
        json_reply(Attributes=row),
        json_reply(),
        json_reply(Attributes=holds),
        json_reply(Attributes=holds),
    )

    leases.claim(key, me)
    leases.renew(key, me, Progress(Phase.RUNNING))
    leases.seal(key, me, None)
    leases.release(
        key,
        me,
        outcome=Outcome.FINISHED,
        cause=Cause.DONE,
        exit_code=0,
        progress=Progress(Phase.RUNNING),
    )
    leases.idle(HOST)
    leases.drop_hold(HOST, key)

    for operation, asked in zip(endpoint.operations, endpoint.asked, strict=True):
        writes = (
            [("Update", asked)]
            if operation == "UpdateItem"
            else [*chain.from_iterable(action.items() for action in asked["TransactItems"])]
        )
        for verb, write in writes:
            pk = write["Key"]["pk"]["S"]
            assert (verb, pk.split("#")[0]) in {("Update", "LEASE"), ("ConditionCheck", "HOST")}
