"""The real handlers over the in-memory world: records in, reply and rows out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from pytest_mock import MockerFixture

from reprieve.edge.observe import count_decision
from reprieve.edge.settings import (
    HandleNoticeSettings,
    RecordReportSettings,
    ReplaceHostSettings,
    Settings,
)
from reprieve.edge.wiring import Wired
from tests.usecases.story import Story

POOLS = {
    "small": {
        "types": ["g5.xlarge", "g6.xlarge"],
        "tiers": ["spot", "on-demand"],
        "max_hosts": 2,
        "max_usd_per_hour": 5,
        "launch_template": "lt-1",
        "launch_template_version": "1",
        "work_queue_url": "https://queue/work",
    }
}
ENVIRONMENT = {
    "STACK": "Reprieve",
    "JOBS_TABLE": "jobs",
    "ORDERS_QUEUE_URL": "https://queue/orders",
    "POOLS": json.dumps(POOLS),
    "SUBNETS": json.dumps({"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}),
    "NOTICE_SECONDS": "120",
    "INTAKE_QUEUE_URL": "https://queue/intake",
    "REPORTS_QUEUE_URL": "https://queue/reports",
    "CHECKPOINTS_BUCKET": "checkpoints",
    "SSM_DOCUMENT": "Reprieve-preempt",
}


@dataclass
class Context:
    """What Lambda hands to a handler, as far as Powertools reads it."""

    function_name: str = "handle_notice"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:111122223333:function:f"
    aws_request_id: str = "request-1"
    remaining_ms: int = 55_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def story() -> Story:
    return Story()


Install = Callable[[Any, type[Settings]], Any]


@pytest.fixture
def install(mocker: MockerFixture, story: Story) -> Install:
    """Wire a handler module to the story; returns the spy that stands for its SQS client."""

    def wire(module: Any, kind: type[Settings], **environment: str) -> Any:
        sqs = mocker.Mock(spec=["change_message_visibility"])
        settings = kind.model_validate(ENVIRONMENT | environment)
        uses = replace(story.uses, told=partial(count_decision, module.metrics))
        wired = Wired(settings, uses, sqs)
        mocker.patch.object(module, "wired", return_value=wired)
        return sqs

    return wire


def records(*bodies: object, sender: str = "AROAEXAMPLE:i-0aa00000000000001") -> dict[str, Any]:
    """Return an SQS event as Lambda's poller shapes it."""
    return {
        "Records": [
            {
                "messageId": f"m{n}",
                "receiptHandle": f"handle-{n}",
                "body": body if isinstance(body, str) else json.dumps(body),
                "attributes": {"ApproximateReceiveCount": "1", "SenderId": sender},
                "eventSource": "aws:sqs",
            }
            for n, body in enumerate(bodies, start=1)
        ]
    }


__all__ = [
    "ENVIRONMENT",
    "HandleNoticeSettings",
    "RecordReportSettings",
    "ReplaceHostSettings",
    "records",
]
