"""What each function is given: its environment, its queue, its runtime."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reprieve.edge import settings
from tests.infra.synthesised import FUNCTIONS, Template

COMMON = {
    "POWERTOOLS_SERVICE_NAME",
    "POWERTOOLS_METRICS_NAMESPACE",
    "AWS_SDK_UA_APP_ID",
    "PYDANTIC_DISABLE_PLUGINS",
    "STACK",
    "JOBS_TABLE",
    "ORDERS_QUEUE_URL",
    "POOLS",
    "SUBNETS",
    "NOTICE_SECONDS",
}
MORE = {
    "handle_notice": {"INTAKE_QUEUE_URL", "SSM_DOCUMENT"},
    "replace_host": set(),
    "record_report": {"REPORTS_QUEUE_URL", "ATTESTED_SENDER"},
    "reconcile": {
        "CHECKPOINTS_BUCKET",
        "KEEP_CHECKPOINTS",
        "KEEP_EVERY_STEPS",
        "SSM_DOCUMENT",
    },
}
SETTINGS: dict[str, type[settings.Settings]] = {
    "handle_notice": settings.HandleNoticeSettings,
    "replace_host": settings.ReplaceHostSettings,
    "record_report": settings.RecordReportSettings,
    "reconcile": settings.ReconcileSettings,
}


def test_there_are_four_functions_and_no_custom_resource(template: Template) -> None:
    kinds = {resource["Type"] for resource in template.resources.values()}

    assert len(template.of("AWS::Lambda::Function")) == len(FUNCTIONS)
    assert not [kind for kind in kinds if kind.startswith("Custom::")]
    assert "AWS::CloudFormation::CustomResource" not in kinds


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gets_exactly_its_variables(template: Template, name: str) -> None:
    environment = template.environment(template.function(name))

    assert set(environment) == COMMON | MORE[name]
    assert environment["AWS_SDK_UA_APP_ID"] == f"reprieve-{name}"
    assert environment["POWERTOOLS_METRICS_NAMESPACE"] == "Reprieve"
    assert environment["NOTICE_SECONDS"] == "120.0"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_can_read_its_settings(
    own_network: Template, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for key, value in own_network.environment(own_network.function(name)).items():
        monkeypatch.setenv(key, value)

    read = SETTINGS[name].load()

    assert set(read.pools) == {"small", "a100-x8"}
    assert read.pools["a100-x8"].on_demand_base == 1
    assert read.subnets == {
        "eu-west-1a": "subnet-0aaaaaaaaaaaaaaaa",
        "eu-west-1b": "subnet-0bbbbbbbbbbbbbbbb",
    }


def test_the_sender_of_a_report_is_attested(template: Template) -> None:
    environment = template.environment(template.function("record_report"))

    assert environment["ATTESTED_SENDER"] == "on"


def test_a_pool_names_its_template_and_its_queue(template: Template) -> None:
    environment = template.environment(template.function("replace_host"))
    pool = json.loads(environment["POOLS"])["gpu"]
    (launch_template,) = template.of("AWS::EC2::LaunchTemplate")

    assert pool["launch_template"] == f"<{launch_template}>"
    assert pool["launch_template_version"] == f"<{launch_template}.LatestVersionNumber>"
    assert "Work" in pool["work_queue_url"]
    assert pool["max_hosts"] == 2
    assert pool["max_usd_per_hour"] == 5


def test_each_zone_has_one_subnet(template: Template) -> None:
    environment = template.environment(template.function("replace_host"))
    subnets = json.loads(environment["SUBNETS"])

    assert list(subnets) == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert len(set(subnets.values())) == 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_runs_the_built_runtime_with_both_layers(template: Template, name: str) -> None:
    function = template.function(name)

    assert function["Runtime"] == "python3.13"
    assert function["Architectures"] == ["arm64"]
    assert function["Handler"] == "handler.lambda_handler"
    assert len(function["Layers"]) == 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_logs_where_logs_end(template: Template, name: str) -> None:
    log_group = template.function(name)["LoggingConfig"]["LogGroup"]["Ref"]

    assert template.resources[log_group]["Properties"]["RetentionInDays"] == 30


@pytest.mark.parametrize(
    ("name", "queue", "batch", "window"),
    [
        ("handle_notice", "Intake", 50, 1),
        ("replace_host", "Orders", 10, None),
        ("record_report", "Reports", 10, None),
    ],
)
def test_a_function_takes_from_its_queue_and_fails_record_by_record(
    template: Template, name: str, queue: str, batch: int, window: int | None
) -> None:
    mapping: dict[str, Any] = template.mapping(name)

    assert queue in template.text(mapping["EventSourceArn"])
    assert mapping["BatchSize"] == batch
    assert mapping.get("MaximumBatchingWindowInSeconds") == window
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"]["MaximumConcurrency"] >= 2


def test_a_sweep_comes_every_minute_and_is_not_repeated(template: Template) -> None:
    (schedule,) = template.of("AWS::Scheduler::Schedule").values()
    (asynchronous,) = template.of("AWS::Lambda::EventInvokeConfig").values()
    target = schedule["Target"]

    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert asynchronous["MaximumRetryAttempts"] == 0
    assert (
        target["DeadLetterConfig"]["Arn"]
        == (asynchronous["DestinationConfig"]["OnFailure"]["Destination"])
    )
