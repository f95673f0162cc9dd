"""One session over our models: it leads to the same endpoints, and to botocore for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from reprieve.adapters import sdk

REGIONS = ("us-east-1", "eu-south-2", "cn-north-1", "us-gov-west-1", "eusc-de-east-1", "xx-new-1")
A_CALL: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamodb": ("get_item", {"TableName": "Jobs", "Key": {"pk": {"S": "x"}}}),
    "ec2": ("describe_instances", {}),
    "s3": ("get_object", {"Bucket": "checkpoints", "Key": "x"}),
    "secretsmanager": ("get_secret_value", {"SecretId": "x"}),
    "sqs": ("send_message", {"QueueUrl": "https://sqs.example/1/q", "MessageBody": "x"}),
    "ssm": ("send_command", {"DocumentName": "Reprieve-preempt"}),
    "sts": ("assume_role", {"RoleArn": "arn:aws:iam::111122223333:role/r", "RoleSessionName": "x"}),
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_ENDPOINT_URL", "AWS_DATA_PATH", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def full() -> Session:
    """Return a session as botocore makes it; reading its models takes a while."""
    return Session()


@pytest.mark.parametrize("service", A_CALL)
@pytest.mark.parametrize(
    "variant",
    [{}, {"use_fips_endpoint": True}, {"use_dualstack_endpoint": True}],
    ids=["plain", "fips", "dualstack"],
)
def test_a_call_goes_where_it_goes_with_the_full_models(
    full: Session, service: str, variant: dict[str, bool]
) -> None:
    ours = sdk.session()

    for region in REGIONS:
        assert _destination(ours, service, region, variant) == _destination(
            full, service, region, variant
        ), region


def test_a_service_without_a_model_of_ours_is_botocores() -> None:
    client = sdk.session("us-east-1").create_client("kms")

    assert "Decrypt" in client.meta.service_model.operation_names
    client.close()


def test_our_models_are_used_for_our_services_alone() -> None:
    session = sdk.session("us-east-1")
    client = session.create_client("ec2")

    assert len(client.meta.service_model.operation_names) < 10
    assert session.get_available_services() == Session().get_available_services()
    client.close()


def test_an_older_version_of_a_service_is_botocores() -> None:
    loader = sdk.TrimmedLoader()

    older = loader.load_service_model("ec2", "service-2", "2016-09-15")

    assert older["metadata"]["apiVersion"] == "2016-09-15"
    assert "DescribeVolumes" in older["operations"]


def test_models_that_the_user_names_come_before_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loader = sdk.TrimmedLoader()
    model = loader.load_service_model("sqs", "service-2")
    own = tmp_path / "own" / "sqs" / "2012-11-05"
    own.mkdir(parents=True)
    (own / "service-2.json").write_text(json.dumps(model | {"operations": {}}))
    monkeypatch.setenv("MODELS", str(tmp_path))
    monkeypatch.setenv("AWS_DATA_PATH", f"{tmp_path / 'empty'}:$MODELS/own")

    session = sdk.session("us-east-1")

    assert session.get_service_model("sqs").operation_names == []
    assert session.get_service_model("ssm").operation_names == ["GetParameter", "SendCommand"]


def test_the_region_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")

    assert sdk.session("us-east-2").get_config_variable("region") == "us-east-2"
    assert sdk.session().get_config_variable("region") == "eu-west-1"


def _destination(
    session: Session, service: str, region: str, variant: dict[str, bool]
) -> tuple[str, ...]:
    """Return where a call would be sent and whom it is signed for, or why it can't be."""
    operation, arguments = A_CALL[service]
    config = Config(**variant)  # type: ignore[arg-type]
    try:
        client: Any = session.create_client(service, region, config=config)
        url = urlsplit(client.generate_presigned_url(operation, Params=arguments))
    except BotoCoreError as error:
        return type(error).__name__, str(error)
    client.close()
    scope = parse_qs(url.query).get("X-Amz-Credential", parse_qs(url.query).get("AWSAccessKeyId"))
    assert scope is not None
    return url.scheme, url.netloc, url.path, scope[0].split("/", 2)[-1]
