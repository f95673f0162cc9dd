"""
SSM Run Command: one command, many hosts, one invocation each, run for real.

What SSM hides is kept: a host that isn't registered refuses the whole call, a frozen or cut-off
host leaves the invocation Pending until its delivery time is over, and a host that dies in the
middle never answers.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reprieve_cli.local.world import shapes
from reprieve_cli.local.world.documents import Document, Documents
from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.hosts import Wire
from reprieve_cli.local.world.instances import LIVE
from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from reprieve_cli.local.world.hosts import Hosts
    from reprieve_cli.local.world.timeline import Timeline

_MOST_IDS = 50
_STDOUT_LIMIT = 24_000
_STDERR_LIMIT = 8_000
_LEAST_DELIVERY_SECONDS = 30
_DEFAULT_DELIVERY_SECONDS = 3600
_POLL_SECONDS = 0.05
_CUT_MARK = "\n---Output truncated---"
TERMINAL = frozenset({"Success", "Failed", "TimedOut", "Cancelled"})

Parameters = dict[str, Any]
Answer = dict[str, Any]


@dataclass(slots=True)
class Invocation:
    instance_id: str
    status: str = "Pending"
    details: str = "Pending"
    exit_code: int = -1
    output: str = ""
    trouble: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None


@dataclass(slots=True)
class Command:
    document: Document
    parameters: dict[str, list[str]]
    delivery_seconds: float
    comment: str
    invocations: dict[str, Invocation]
    command_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    requested_at: dt.datetime = field(default_factory=now)

    @property
    def status(self) -> str:
        """Sum the invocations up as SSM does."""
        statuses = {one.status for one in self.invocations.values()}
        if statuses <= TERMINAL:
            return statuses.pop() if len(statuses) == 1 else "Failed"
        return "Pending" if statuses == {"Pending"} else "InProgress"


class Ssm:
    """The SSM calls that the world answers: documents and Run Command."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        timeline: Timeline,
        publish: Callable[[dict[str, Any]], None],
        account: str,
        region: str,
    ) -> None:
        self.documents = Documents()
        self._hosts = hosts
        self._timeline = timeline
        self._publish = publish
        self._account = account
        self._region = region
        self._commands: dict[str, Command] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[str, Callable[[Parameters], Answer]] = {
            "CreateDocument": self.documents.create,
            "UpdateDocument": self.documents.update,
            "DescribeDocument": self.documents.describe,
            "GetDocument": self.documents.fetch,
            "DeleteDocument": self.documents.delete,
            "SendCommand": self._send_command,
            "GetCommandInvocation": self._get_command_invocation,
            "ListCommandInvocations": self._list_command_invocations,
        }

    def owns(self, action: str) -> bool:
        return action in self._calls

    async def answer(self, action: str, parameters: Parameters) -> Answer:
        """Answer *action*; raise ``AwsError`` as SSM would."""
        return self._calls[action](parameters)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------ send
    def _send_command(self, parameters: Parameters) -> Answer:
        document = self.documents.get(parameters["DocumentName"])
        if parameters.get("Targets"):
            raise AwsError("InvalidTarget", "here commands name their InstanceIds")
        ids = list(dict.fromkeys(parameters.get("InstanceIds", [])))
        self._check(ids, parameters)
        bound = document.bind(parameters.get("Parameters", {}))
        command = Command(
            document,
            {name: [value] for name, value in bound.items()},
            float(parameters.get("TimeoutSeconds", _DEFAULT_DELIVERY_SECONDS)),
            parameters.get("Comment", ""),
            {found: Invocation(found) for found in ids},
        )
        self._commands[command.command_id] = command
        self._timeline.note("command", command_id=command.command_id, instance_ids=ids, **bound)
        for invocation in command.invocations.values():
            task = asyncio.create_task(self._run(command, invocation, bound))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return {"Command": self._describe(command)}

    def _check(self, ids: list[str], parameters: Parameters) -> None:
        if not ids or len(ids) > _MOST_IDS:
            raise AwsError(
                "ValidationException",
                "1 validation error detected: Value at 'instanceIds' failed to satisfy constraint: "
                f"Member must have length between 1 and {_MOST_IDS}",
            )
        seconds = parameters.get("TimeoutSeconds", _DEFAULT_DELIVERY_SECONDS)
        if seconds < _LEAST_DELIVERY_SECONDS:
            raise AwsError(
                "ValidationException",
                "1 validation error detected: Value at 'timeoutSeconds' failed to satisfy "
                f"constraint: Member must have value greater than or equal to "
                f"{_LEAST_DELIVERY_SECONDS}",
            )
        strangers = [
            found
            for found in ids
            if not self._hosts.owns(found) or not self._hosts.registered(self._hosts.get(found))
        ]
        if strangers:
            raise AwsError(
                "InvalidInstanceId",
                f"Instances [{strangers}] not in a valid state for account {self._account}",
            )

    async def _run(self, command: Command, invocation: Invocation, bound: dict[str, str]) -> None:
        if not await self._delivered(command, invocation):
            self._finish(command, invocation, "TimedOut", "DeliveryTimedOut")
            return
        script = command.document.script(bound)
        invocation.status = invocation.details = "InProgress"
        invocation.started_at = now()
        machine = self._hosts.machine(invocation.instance_id)
        exit_code, output, trouble = await machine.run_script(
            script.text, variables=script.variables, seconds=script.seconds
        )
        if self._hosts.get(invocation.instance_id).state not in LIVE:
            return  # nobody is left to report: InProgress it stays
        await self._reachable(invocation.instance_id)
        invocation.output = _limited(output, _STDOUT_LIMIT)
        invocation.trouble = _limited(trouble, _STDERR_LIMIT)
        if exit_code is None:
            self._finish(command, invocation, "TimedOut", "ExecutionTimedOut")
            return
        invocation.exit_code = exit_code
        status = "Success" if exit_code == 0 else "Failed"
        self._finish(command, invocation, status, status)

    async def _delivered(self, command: Command, invocation: Invocation) -> bool:
        deadline = time.monotonic() + command.delivery_seconds
        while time.monotonic() < deadline:
            alive = self._hosts.get(invocation.instance_id).state in LIVE
            if alive and self._answers(invocation.instance_id):
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    async def _reachable(self, instance_id: str) -> None:
        while not self._answers(instance_id):  # noqa: ASYNC110  # cuts end by the clock, too
            await asyncio.sleep(_POLL_SECONDS)

    def _answers(self, instance_id: str) -> bool:
        """Whether SSM's agent on the host can be reached."""
        cut = any(self._hosts.is_cut(instance_id, wire) for wire in (Wire.SSM, Wire.NETWORK))
        return not cut and not self._hosts.frozen(instance_id)

    def _finish(self, command: Command, invocation: Invocation, status: str, details: str) -> None:
        invocation.status, invocation.details = status, details
        invocation.ended_at = now()
        self._timeline.note(
            "command ended",
            command_id=command.command_id,
            instance_id=invocation.instance_id,
            status=details,
            exit_code=invocation.exit_code,
            stdout=invocation.output[-500:],
            stderr=invocation.trouble[-500:],
        )
        self._publish(
            shapes.command_status(
                command_id=command.command_id,
                document=command.document.name,
                instance_id=invocation.instance_id,
                status=status,
                requested=command.requested_at,
                account=self._account,
                region=self._region,
            )
        )

    # ------------------------------------------------------------------ ask
    def _get_command_invocation(self, parameters: Parameters) -> Answer:
        command = self._commands.get(parameters["CommandId"])
        invocation = command.invocations.get(parameters["InstanceId"]) if command else None
        if command is None or invocation is None:
            raise AwsError("InvocationDoesNotExist", "")
        elapsed = (invocation.ended_at or now()) - (invocation.started_at or now())
        return {
            "CommandId": command.command_id,
            "InstanceId": invocation.instance_id,
            "Comment": command.comment,
            "DocumentName": command.document.name,
            "DocumentVersion": str(command.document.version),
            "PluginName": command.document.content["mainSteps"][0]["name"],
            "ResponseCode": invocation.exit_code,
            "ExecutionStartDateTime": _optional(invocation.started_at),
            "ExecutionElapsedTime": f"PT{elapsed.total_seconds():.3f}S",
            "ExecutionEndDateTime": _optional(invocation.ended_at),
            "Status": invocation.status,
            "StatusDetails": invocation.details,
            "StandardOutputContent": invocation.output,
            "StandardErrorContent": invocation.trouble,
        }

    def _list_command_invocations(self, parameters: Parameters) -> Answer:
        wanted_command = parameters.get("CommandId")
        wanted_instance = parameters.get("InstanceId")
        return {
            "CommandInvocations": [
                {
                    "CommandId": command.command_id,
                    "InstanceId": invocation.instance_id,
                    "Comment": command.comment,
                    "DocumentName": command.document.name,
                    "RequestedDateTime": command.requested_at.timestamp(),
                    "Status": invocation.status,
                    "StatusDetails": invocation.details,
                }
                for command in self._commands.values()
                for invocation in command.invocations.values()
                if wanted_command in {None, command.command_id}
                and wanted_instance in {None, invocation.instance_id}
            ]
        }

    @staticmethod
    def _describe(command: Command) -> dict[str, Any]:
        expires = command.requested_at + dt.timedelta(seconds=command.delivery_seconds)
        return {
            "CommandId": command.command_id,
            "DocumentName": command.document.name,
            "DocumentVersion": str(command.document.version),
            "Comment": command.comment,
            "ExpiresAfter": expires.timestamp(),
            "Parameters": command.parameters,
            "InstanceIds": list(command.invocations),
            "Targets": [],
            "RequestedDateTime": command.requested_at.timestamp(),
            "Status": command.status,
            "StatusDetails": command.status,
            "TargetCount": len(command.invocations),
            "CompletedCount": 0,
            "ErrorCount": 0,
        }


def _limited(output: bytes, limit: int) -> str:
    text = output.decode(errors="replace")
    return text if len(text) <= limit else text[: limit - len(_CUT_MARK)] + _CUT_MARK


def _optional(moment: dt.datetime | None) -> str:
    return shapes.second(moment) if moment else ""
