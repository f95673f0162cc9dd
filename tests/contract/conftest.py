"""Each port's contract, in memory and on a table: the fake must pass what the real one does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import boto3
import pytest

from tests.builders import NOON
from tests.contract.stores import Stores, create_table, emulator, in_memory, in_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

accounts = count(100_000_000_001)


@pytest.fixture(scope="session")
def cloud() -> Iterator[str]:
    with emulator() as address:
        yield address


@pytest.fixture
def account(cloud: str) -> dict[str, str]:
    """Return how to make a client of an account that no other test has."""
    return {
        "endpoint_url": cloud,
        "region_name": "us-east-1",
        "aws_access_key_id": str(next(accounts)),
        "aws_secret_access_key": "test",
    }


@pytest.fixture
def dynamodb(account: dict[str, str]) -> Iterator[DynamoDBClient]:
    """Yield a client of an account that has our table and nothing else."""
    client = boto3.client("dynamodb", **account)  # type: ignore[call-overload]
    create_table(client)
    yield client
    client.close()


@pytest.fixture(params=["memory", pytest.param("dynamodb", marks=pytest.mark.e2e)])
def stores(request: pytest.FixtureRequest) -> Stores:
    if request.param == "memory":
        return in_memory(NOON)
    return in_table(request.getfixturevalue("dynamodb"), NOON)
