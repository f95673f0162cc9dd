"""Mail: a ticket lies on its pool's queue, an order on the orders queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
import pytest

from reprieve.adapters.memory import Memory
from reprieve.adapters.sqs import SqsMail
from reprieve.domain.errors import MalformedError, UnknownOutcomeError
from reprieve.ports.cloud import Mail
from reprieve.protocol import OrderMessage, Ticket
from tests.contract.scripted import DROP, client, serving

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

TICKET = Ticket("job-1", 2, "t2")
ORDER = OrderMessage("job-1", 3, "interruption of i-1")


@dataclass(frozen=True, slots=True)
class Post:
    """A mail under test, and a look into its queues."""

    mail: Mail
    tickets: Callable[[str], list[Ticket]]
    orders: Callable[[], list[OrderMessage]]


def in_memory() -> Post:
    mail = Memory().mail
    return Post(
        mail,
        lambda pool: [ticket for name, ticket in mail.tickets if name == pool],
        lambda: mail.orders,
    )


def on_sqs(sqs: SQSClient) -> Post:
    urls = {name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("orders", "a", "b")}

    def bodies(queue: str) -> list[str]:
        answer = sqs.receive_message(QueueUrl=urls[queue], MaxNumberOfMessages=10)
        return [message["Body"] for message in answer.get("Messages", [])]

    return Post(
        SqsMail(sqs, orders_queue_url=urls["orders"], work_queues={"a": urls["a"], "b": urls["b"]}),
        lambda pool: [Ticket.from_json(body) for body in bodies(pool)],
        lambda: [OrderMessage.from_json(body) for body in bodies("orders")],
    )


@pytest.fixture(params=["memory", pytest.param("sqs", marks=pytest.mark.e2e)])
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    if request.param == "memory":
        yield in_memory()
        return
    sqs = boto3.client("sqs", **request.getfixturevalue("account"))
    yield on_sqs(sqs)
    sqs.close()


def test_a_ticket_lies_on_the_queue_of_its_pool_alone(post: Post) -> None:
    post.mail.ticket("a", TICKET)

    assert post.tickets("a") == [TICKET]
    assert post.tickets("b") == []
    assert post.orders() == []


def test_an_order_lies_on_the_orders_queue(post: Post) -> None:
    post.mail.order(ORDER)

    assert post.orders() == [ORDER]
    assert post.tickets("a") == []


def test_a_pool_that_is_not_configured_any_more_is_named() -> None:
    with serving() as endpoint:
        sqs = client("sqs", endpoint)
        mail = SqsMail(sqs, orders_queue_url=endpoint.url, work_queues={})

        with pytest.raises(MalformedError, match="pool old"):
            mail.ticket("old", TICKET)
        sqs.close()


def test_a_message_without_an_answer_is_unknown() -> None:
    with serving() as endpoint:
        sqs = client("sqs", endpoint)
        mail = SqsMail(sqs, orders_queue_url=endpoint.url, work_queues={"a": endpoint.url})
        endpoint.says(DROP, DROP)

        with pytest.raises(UnknownOutcomeError):
            mail.ticket("a", TICKET)
        with pytest.raises(UnknownOutcomeError):
            mail.order(ORDER)
        sqs.close()
