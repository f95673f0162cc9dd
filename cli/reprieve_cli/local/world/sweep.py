"""The schedule, on the scaled clock: invoke a deployed function every so many seconds."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from reprieve_cli.local.world import shapes

if TYPE_CHECKING:
    from reprieve_cli.local.world.timeline import Timeline
    from reprieve_cli.local.world.upstream import Upstream


class Sweep:
    """One run at a time: a run that takes longer than the period delays the next."""

    def __init__(self, upstream: Upstream, timeline: Timeline, *, account: str) -> None:
        self._upstream = upstream
        self._timeline = timeline
        self._account = account
        self._task: asyncio.Task[None] | None = None

    def set(self, *, function: str, seconds: float) -> None:
        """Invoke *function* every *seconds* from now on; 0 stops."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if seconds > 0:
            self._task = asyncio.create_task(self._run(function, seconds))

    async def _run(self, function: str, seconds: float) -> None:
        while True:
            await asyncio.gather(self._invoke(function), asyncio.sleep(seconds))

    async def _invoke(self, function: str) -> None:
        event = shapes.event(
            "Scheduled Event",
            {},
            source="aws.events",
            account=self._account,
            region=self._upstream.address.region,
            resources=[],
        )
        try:
            answer = await self._upstream.call(
                "lambda", "invoke", FunctionName=function, Payload=json.dumps(event)
            )
            payload = await asyncio.to_thread(answer["Payload"].read)
        except (BotoCoreError, ClientError) as error:
            self._timeline.note("sweep failed", function=function, reason=str(error))
            return
        if "FunctionError" in answer:
            reason = payload.decode(errors="replace")[:500]
            self._timeline.note("sweep failed", function=function, reason=reason)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
