"""A stack in memory with two busy hosts, behind the real handlers, for one example of a fuzz."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

from functions.handle_notice import handler as handle_notice
from functions.record_report import handler as record_report
from functions.replace_host import handler as replace_host
from reprieve.edge.observe import count_decision
from reprieve.edge.settings import (
    HandleNoticeSettings,
    RecordReportSettings,
    ReplaceHostSettings,
    Settings,
)
from reprieve.edge.wiring import Wired
from reprieve.protocol import Report, ReportKind
from reprieve.usecases.wiring import UseCases
from tests.functions.conftest import ENVIRONMENT, Context, records
from tests.fuzz.strategies import spelt_out
from tests.usecases.story import Host, Story, a_pool

HANDLERS: tuple[tuple[Any, type[Settings]], ...] = (
    (handle_notice, HandleNoticeSettings),
    (record_report, RecordReportSettings),
    (replace_host, ReplaceHostSettings),
)
ROWS = ("job_rows", "lease_rows", "attempt_rows", "event_rows", "host_rows", "holds_rows")
ORDERS = ("order_rows", "try_rows", "cold_rows")


@dataclass
class Stage:
    """Two hosts, each with a running job; *taken* and *spare* are what tests speak of."""

    story: Story
    taken: Host
    spare: Host

    def send(self, module: Any, *bodies: object, sender: str | None = None) -> list[str]:
        """Hand a batch to the real handler; return which records come back."""
        spelt = [spelt_out(body) if isinstance(body, str) else body for body in bodies]
        event = records(*spelt, sender=f"AROAEXAMPLE:{sender or self.taken.instance_id}")
        reply = module.lambda_handler(event, Context())
        assert set(reply) == {"batchItemFailures"}
        return [item["itemIdentifier"] for item in reply["batchItemFailures"]]

    def rows(self) -> dict[str, Any]:
        """Return everything that is stored, and everything that was asked of EC2 or sent."""
        memory = self.story.memory
        stored = {name: copy.copy(getattr(memory, name)) for name in ROWS + ORDERS}
        stored["event_rows"] = {job: dict(lines) for job, lines in memory.event_rows.items()}
        return stored | {
            "instances": dict(memory.fleet.instances),
            "signals": list(memory.signals.sent),
            "tickets": list(memory.mail.tickets),
            "orders": list(memory.mail.orders),
        }

    def warning(self, host: Host) -> dict[str, Any]:
        """Return EC2's warning for *host*, fresh."""
        return {
            "version": "0",
            "id": "11111111-2222-3333-4444-000000000001",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "source": "aws.ec2",
            "account": "111122223333",
            "time": self.story.time.isoformat(),
            "region": "us-east-1",
            "resources": [f"arn:aws:ec2:us-east-1a:instance/{host.instance_id}"],
            "detail": {"instance-id": host.instance_id, "instance-action": "terminate"},
        }

    def report(self, said: ReportKind, host: Host, /, **data: Any) -> dict[str, Any]:
        """Return what *host* says about its job."""
        report = Report(said, host.instance_id, self.story.time, 3, host.key, data)
        body: dict[str, Any] = json.loads(report.to_json())
        return body


@contextmanager
def on_stage() -> Iterator[Stage]:
    """Set it up, with every handler wired to it."""
    story = Story(pool=a_pool(max_hosts=4, max_usd_per_hour=1000.0))
    for _ in range(2):
        story.submit()
    launched = [i.instance_id for filled in story.fill_orders() for i in filled.launched]
    hosts = [Host(story, instance_id) for instance_id in launched]
    for host in hosts:
        host.idle()
        host.run()
    with wired_to(story.uses):
        yield Stage(story, hosts[0], hosts[1])


@contextmanager
def wired_to(uses: UseCases) -> Iterator[None]:
    """Let the handlers work with *uses*."""
    patches = []
    for module, kind in HANDLERS:
        told = replace(uses, told=partial(count_decision, module.metrics))
        settings: Any = kind.model_validate(ENVIRONMENT)
        wired = Wired(settings, told, mock.Mock(spec=["change_message_visibility"]))
        patches.append(mock.patch.object(module, "wired", return_value=wired))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()
