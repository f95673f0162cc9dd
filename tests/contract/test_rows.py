"""What the table holds beside the records: expiry, the index, and the order of rivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from reprieve.adapters.codec import Item
from reprieve.adapters.dynamodb import Table
from reprieve.adapters.dynamodb_hosts import RIVALS, DynamoHostStore
from reprieve.adapters.keys import Key
from reprieve.domain.capacity import Cold
from reprieve.domain.errors import StaleError, UnknownOutcomeError
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.notice import NoticeKind
from reprieve.domain.order import OrderState
from reprieve.ports.rows import Chill, PutHost, Wanted
from tests.builders import (
    HOST,
    NOON,
    OTHER_HOST,
    POOL,
    SPOT_A,
    a_host,
    a_job,
    a_lease,
    a_notice,
    an_attempt,
    an_event,
    an_order,
    at,
)
from tests.contract.stores import TABLE, in_table
from tests.stored import end, note, place, submit, tell

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.e2e
DAY_SECONDS = 24 * 3600


def rows(client: DynamoDBClient) -> dict[Key, dict[str, Any]]:
    items: list[Any] = client.scan(TableName=TABLE)["Items"]
    return {(item["pk"]["S"], item["sk"]["S"]): item for item in items}


def test_rows_that_nobody_needs_any_more_expire(dynamodb: DynamoDBClient) -> None:
    stores = in_table(dynamodb, NOON)
    tell(stores.rows, "job-1", [an_event(0.5)])
    stores.rows.commit([Chill(POOL, SPOT_A, Cold(at(180), "empty"))])
    stores.hosts.adopt(a_host())
    assert "ttl" not in rows(dynamodb)[f"HOST#{HOST}", "HOST"]

    stores.hosts.advance(HOST, HostState.GONE, reason="terminated")

    noon = int(NOON.timestamp())
    expiry = {
        pk: int(item["ttl"]["N"]) for (pk, _), item in rows(dynamodb).items() if "ttl" in item
    }
    assert expiry == {
        "JOB#job-1": noon + 90 * DAY_SECONDS + 1,
        f"POOL#{POOL}": noon + 180,
        f"HOST#{HOST}": noon + 7 * DAY_SECONDS,
    }


def test_the_index_names_what_lives_and_forgets_what_is_over(dynamodb: DynamoDBClient) -> None:
    stores = in_table(dynamodb, NOON)
    job, order = a_job(), an_order()
    submit(stores.rows, job, a_lease(job))
    stores.hosts.adopt(a_host())
    place(stores.rows, order)

    def listed() -> set[str]:
        return {item["live_sk"]["S"] for item in rows(dynamodb).values() if "live_sk" in item}

    assert listed() == {"JOB#QUEUED#job-1", f"HOST#READY#{HOST}", "ORDER#job-1#000001"}
    assert {item["live_pk"]["S"] for item in rows(dynamodb).values() if "live_pk" in item} == {
        f"POOL#{POOL}"
    }

    end(stores.rows, job.to(JobStatus.FAILED, reason="crash"), a_lease())
    stores.hosts.advance(HOST, HostState.GONE, reason="terminated")
    place(stores.rows, an_order(state=OrderState.NOT_NEEDED), was=order)

    assert listed() == set()


def test_a_row_that_makes_no_sense_spoils_no_other(dynamodb: DynamoDBClient) -> None:
    stores = in_table(dynamodb, NOON)
    stores.rows.commit([PutHost(a_host(), new=True), PutHost(a_host(OTHER_HOST), new=True)])
    dynamodb.update_item(
        TableName=TABLE,
        Key={"pk": {"S": f"HOST#{HOST}"}, "sk": {"S": "HOST"}},
        UpdateExpression="SET #state = :state",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={":state": {"S": "UPSIDE-DOWN"}},
    )

    seen = stores.rows.read(Wanted(hosts=frozenset({HOST, OTHER_HOST})))

    assert seen.host(OTHER_HOST) == a_host(OTHER_HOST)
    with pytest.raises(UnknownOutcomeError, match=HOST):
        seen.host(HOST)


def test_keys_sort_by_number(dynamodb: DynamoDBClient) -> None:
    stores = in_table(dynamodb, NOON)
    job = a_job(attempt=12)
    submit(stores.rows, job, a_lease(job))
    note(stores.rows, an_attempt(12))
    stores.hosts.adopt(a_host())

    assert set(rows(dynamodb)) == {
        ("JOB#job-1", "JOB"),
        ("JOB#job-1", "ATTEMPT#0012"),
        ("LEASE#job-1", "000012#t1"),
        (f"HOST#{HOST}", "HOST"),
        (f"LEASE#HOST#{HOST}", "HOLDS"),
    }


class RacedTable(Table):
    """A table where a rival writes between our read and our write."""

    rival: Callable[[], object] | None = None

    def get(self, key: Key) -> Item | None:
        item = super().get(key)
        if self.rival:
            self.rival()
        return item


def test_a_notice_that_comes_in_between_is_not_overwritten(dynamodb: DynamoDBClient) -> None:
    calm, raced = DynamoHostStore(Table(dynamodb, TABLE)), RacedTable(dynamodb, TABLE)
    calm.adopt(a_host())

    def warn() -> None:
        raced.rival = None
        calm.advance(HOST, HostState.DRAINING, reason="interruption", notice=a_notice())

    raced.rival = warn
    after = DynamoHostStore(raced).advance(
        HOST, HostState.READY, reason="", notice=a_notice(NoticeKind.REBALANCE)
    )

    assert after == a_host(
        state=HostState.DRAINING, reason="interruption", notice=a_notice(), advised=True
    )
    assert calm.read([HOST]) == {HOST: after}


def test_a_host_that_others_never_stop_writing_is_given_up_as_stale(
    dynamodb: DynamoDBClient,
) -> None:
    calm, raced = DynamoHostStore(Table(dynamodb, TABLE)), RacedTable(dynamodb, TABLE)
    calm.adopt(a_host())
    times = iter(range(100, 0, -1))
    raced.rival = lambda: calm.advance(
        HOST, HostState.READY, reason="", notice=a_notice(reclaimed_at=at(next(times)))
    )

    with pytest.raises(StaleError):
        DynamoHostStore(raced).advance(HOST, HostState.RETIRING, reason="idle")

    assert next(times) == 100 - RIVALS
    assert calm.read([HOST])[HOST].state is HostState.READY
