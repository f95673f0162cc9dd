"""One session, and only the clients that are used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reprieve.adapters.aws import Clients, connect
from tests.builders import a_plan
from tests.contract.scripted import Endpoint, ec2_error, serving


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        yield endpoint


def test_the_slow_clients_are_made_when_they_are_first_used(endpoint: Endpoint) -> None:
    clients = Clients("us-east-1")

    adapters = connect(
        clients,
        table="Jobs",
        stack="Reprieve",
        zones=["us-east-1a"],
        orders_queue_url=endpoint.url,
        work_queues={},
        ssm_document="Reprieve-preempt",
    )

    assert set(vars(clients)) == {"_session", "dynamodb", "sqs"}
    endpoint.says(ec2_error("InvalidParameter"))
    adapters.fleet.launch(a_plan())
    assert set(vars(clients)) == {"_session", "dynamodb", "sqs", "ec2"}
    for name in ("dynamodb", "sqs", "ec2"):
        getattr(clients, name).close()


@pytest.mark.parametrize("service", ["dynamodb", "sqs", "ssm", "ec2"])
def test_no_client_waits_long_or_retries_without_end(endpoint: Endpoint, service: str) -> None:
    client = getattr(Clients("us-east-1"), service)

    config = client.meta.config
    assert config.connect_timeout <= 2
    assert config.read_timeout <= 20
    assert config.retries == {"mode": "standard", "total_max_attempts": pytest.approx(2, abs=1)}
    assert client.meta.endpoint_url == endpoint.url
    client.close()


def test_the_caller_names_itself_to_aws(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", "reprieve-agent")
    ec2 = Clients("us-east-1").ec2
    endpoint.says(ec2_error("InvalidParameter"))

    with pytest.raises(Exception, match="InvalidParameter"):
        ec2.describe_instances()

    assert "app/reprieve-agent" in endpoint.agents[0]
    ec2.close()
