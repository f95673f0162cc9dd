"""
The front door: every request of every caller comes in here.

A call is named, logged, perhaps tampered with (``faults``), then answered by the world or
passed to ministack. ``/imds/<instance>/`` are the metadata services, ``/_world/`` the control
API.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

import aiohttp
from aiohttp import web

from reprieve_cli.local.world import callers, models, query, wire
from reprieve_cli.local.world.calls import CallLog, error_code
from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.faults import IMDS as IMDS_SERVICE
from reprieve_cli.local.world.hosts import Wire
from reprieve_cli.local.world.proxy import Answer, Proxy, send_half

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from reprieve_cli.local.world.commands import Ssm
    from reprieve_cli.local.world.ec2 import Ec2
    from reprieve_cli.local.world.faults import Effect, Faults
    from reprieve_cli.local.world.hosts import Hosts
    from reprieve_cli.local.world.imds import Metadata

CONTROL = "/_world/"
IMDS = "/imds/"
_FIRST_ERROR = 400
_SERVER_ERROR = 500
_BROKEN_OFF = "drop during"
_CUT_POLL_SECONDS = 0.1
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ConnectionCutError(Exception):
    """The caller gets no answer."""


# A whole answer of ours, or ministack's, whose body may still have to be streamed.
Outcome = web.Response | Answer


class Server:
    def __init__(
        self,
        *,
        hosts: Hosts,
        ec2: Ec2,
        ssm: Ssm,
        metadata: Metadata,
        proxy: Proxy,
        faults: Faults,
        calls: CallLog,
        requests: CallLog,
        control: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        put_back: Callable[[str, bytes], Awaitable[None]],
    ) -> None:
        self._hosts = hosts
        self._ec2 = ec2
        self._ssm = ssm
        self._metadata = metadata
        self._proxy = proxy
        self._faults = faults
        self._calls = calls
        self._requests = requests
        self._control = control
        self._put_back = put_back
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            # The SDK waits a second for this before it sends a body to S3 all the same.
            request.transport.write(_CONTINUE)
        try:
            if request.path.startswith(CONTROL):
                return await self._control(request)
            if request.path.startswith(IMDS):
                return await self._serve_metadata(request)
            return await self._serve_call(request)
        except ConnectionCutError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    # ------------------------------------------------------------------ metadata
    async def _serve_metadata(self, request: web.BaseRequest) -> web.StreamResponse:
        instance_id, _, path = request.path.removeprefix(IMDS).partition("/")
        if self._hosts.is_cut(instance_id, Wire.METADATA):
            await self._black_hole(instance_id, Wire.METADATA)
        key = path.strip("/").removeprefix("latest/").removeprefix("meta-data/")
        call = wire.Call(IMDS_SERVICE, key)
        entry = self._requests.begin(call, instance_id=instance_id, facts={})
        effect = self._faults.take(call, instance_id)
        try:
            answer = await self._tamper_metadata(request, entry, effect)
        except ConnectionCutError:
            self._requests.finish(entry, status=None)
            raise
        if answer is None:
            headers = request.headers
            answer = await self._metadata.answer(request.method, path, headers, instance_id)
        self._requests.finish(entry, status=answer.status)
        return answer

    async def _tamper_metadata(
        self, request: web.BaseRequest, entry: dict[str, Any], effect: Effect | None
    ) -> web.Response | None:
        """Return what is answered instead; None where the metadata service itself answers."""
        if effect is None:
            return None
        entry["fault"] = str(effect)
        await asyncio.sleep(effect.delay_seconds)
        if effect.kill:
            callers.kill(callers.find(_port(request)))
        if effect.drop or effect.kill:
            raise ConnectionCutError
        if effect.error:
            status = effect.error.status or _SERVER_ERROR
            return web.Response(status=status, text=effect.error.message)
        if effect.reply is not None:
            text = effect.reply if isinstance(effect.reply, str) else json.dumps(effect.reply)
            return web.Response(text=text)
        return None

    # ------------------------------------------------------------------ AWS calls
    async def _serve_call(self, request: web.BaseRequest) -> web.StreamResponse:
        head = wire.Head(request.method, request.raw_path, request.headers)
        service, access_key = wire.service_of(head)
        instance_id = self._hosts.behind(access_key)
        if instance_id and self._hosts.is_cut(instance_id, Wire.NETWORK):
            await self._black_hole(instance_id, Wire.NETWORK)
        body = await request.read() if wire.reads_body(service) else None
        call = wire.understand(head, body or b"")
        entry = self._calls.begin(
            call, instance_id=instance_id, facts={"resource_tags": self._tags_of(call)}
        )
        outcome = await self._outcome(request, call, body, entry)
        if instance_id and self._hosts.is_cut(instance_id, Wire.NETWORK):
            await self._abandon(call, outcome)  # cut off meanwhile: the answer gets lost
            await self._black_hole(instance_id, Wire.NETWORK)
        if entry["fault"] == _BROKEN_OFF:
            await self._break_off(request, outcome)
        if isinstance(outcome, web.Response):
            return outcome
        return await self._proxy.respond(request, outcome)

    async def _break_off(self, request: web.BaseRequest, outcome: Outcome) -> NoReturn:
        """Let half of the answer arrive."""
        if isinstance(outcome, web.Response):
            await send_half(request, outcome.headers, outcome.body, status=outcome.status)
        else:
            await self._proxy.respond_in_part(request, outcome)
        raise ConnectionCutError

    async def _outcome(
        self, request: web.BaseRequest, call: wire.Call, body: bytes | None, entry: dict[str, Any]
    ) -> Outcome:
        """Carry *call* out; once its body is here, it is done even if the caller hangs up."""
        work = asyncio.create_task(self._carry_out(request, call, body, entry))
        if body is None:
            return await work
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._background(self._finish_for_nobody(call, work))
            raise

    async def _finish_for_nobody(self, call: wire.Call, work: asyncio.Task[Outcome]) -> None:
        with contextlib.suppress(ConnectionCutError):
            await self._abandon(call, await work)

    async def _abandon(self, call: wire.Call, outcome: Outcome) -> None:
        """Drop an answer that nobody hears; messages in it are for others to receive."""
        if isinstance(outcome, web.Response):
            return
        if (call.service, call.action) == ("sqs", "ReceiveMessage"):
            await self._put_back(call.parameters.get("QueueUrl", ""), outcome.body or b"{}")
        outcome.response.close()

    async def _carry_out(
        self, request: web.BaseRequest, call: wire.Call, body: bytes | None, entry: dict[str, Any]
    ) -> Outcome:
        try:
            effect = self._faults.take(call, entry["instance_id"])
            if effect is None:
                return await self._answer(request, call, body, entry)
            return await self._tamper(request, call, body, entry, effect)
        except (ConnectionCutError, asyncio.CancelledError, ConnectionError):
            self._calls.finish(entry, status=None)
            raise
        except aiohttp.ClientError as error:  # ministack is gone or going
            self._calls.finish(entry, status=502, error=type(error).__name__)
            return web.Response(status=502, text=str(error))

    async def _tamper(
        self,
        request: web.BaseRequest,
        call: wire.Call,
        body: bytes | None,
        entry: dict[str, Any],
        effect: Effect,
    ) -> Outcome:
        entry["fault"] = str(effect)
        if effect.kill:
            entry["killed"] = callers.find(_port(request))
        await asyncio.sleep(effect.delay_seconds)
        _strike(effect, "before", entry)
        if effect.error is not None:
            return self._refuse(call, effect.error.of(call, effect.key), entry)
        if effect.reply is not None:
            return self._reply(call, effect.reply, entry)
        if effect.duplicate and body is None:
            body = await request.read()
        outcome = await self._answer(request, call, body, entry)
        for _ in range(effect.duplicate):
            again = self._calls.begin(call, instance_id=entry["instance_id"], facts={})
            again["fault"] = "duplicate"
            await self._abandon(call, await self._answer(request, call, body, again))
        try:
            _strike(effect, "after", entry)
        except ConnectionCutError:
            if not isinstance(outcome, web.Response):
                outcome.response.close()
            raise
        return outcome

    async def _answer(
        self, request: web.BaseRequest, call: wire.Call, body: bytes | None, entry: dict[str, Any]
    ) -> Outcome:
        own = self._own(call)
        if own is not None:
            return await self._answer_here(call, own, entry)
        answer = await self._proxy.ask(request, body)
        error = None
        if answer.status >= _FIRST_ERROR:
            error = error_code(answer.response.headers, answer.body or b"")
        self._calls.finish(entry, status=answer.status, error=error)
        return answer

    def _own(self, call: wire.Call) -> Awaitable[dict[str, Any]] | None:
        """Return the world's own answer to *call*, if it is one that the world gives."""
        if call.service == "ec2" and self._ec2.owns(call.action, call.parameters):
            return self._ec2.answer(call.action, call.parameters)
        if call.service == "ssm" and self._ssm.owns(call.action):
            return self._ssm.answer(call.action, call.parameters)
        return None

    async def _answer_here(
        self, call: wire.Call, own: Awaitable[dict[str, Any]], entry: dict[str, Any]
    ) -> web.Response:
        try:
            result = await own
        except AwsError as error:
            return self._refuse(call, error, entry)
        return self._reply(call, result, entry)

    def _refuse(self, call: wire.Call, error: AwsError, entry: dict[str, Any]) -> web.Response:
        request_id = str(uuid.uuid4())
        body, kind = wire.error_body(call, error, request_id=request_id)
        headers = {"Content-Type": kind, "x-amzn-RequestId": request_id}
        if call.protocol in {"json", "rest-json", "cbor"}:
            headers["x-amzn-ErrorType"] = error.code
        if call.protocol == "cbor":
            headers["smithy-protocol"] = "rpc-v2-cbor"
        self._calls.finish(entry, status=error.status, error=error.code)
        return web.Response(status=error.status, headers=headers, body=body)

    def _reply(
        self, call: wire.Call, result: dict[str, Any], entry: dict[str, Any]
    ) -> web.Response:
        request_id = str(uuid.uuid4())
        operation = models.operation("ec2", call.action) if call.protocol == "ec2" else None
        if operation is not None:
            body = query.response(operation, result, request_id=request_id)
            kind = "text/xml;charset=UTF-8"
        else:
            body = json.dumps(result).encode()
            kind = f"application/x-amz-json-{call.json_version}"
        self._calls.finish(entry, status=200)
        headers = {"Content-Type": kind, "x-amzn-RequestId": request_id}
        return web.Response(headers=headers, body=body)

    def _tags_of(self, call: wire.Call) -> dict[str, dict[str, str]]:
        """Collect the tags of the hosts that *call* names, as its policy would see them."""
        ids = call.parameters.get("InstanceIds") or []
        return {
            found: dict(self._hosts.get(found).tags) for found in ids if self._hosts.owns(found)
        }

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _black_hole(self, instance_id: str, wire_cut: Wire) -> None:
        """Let the caller wait, as a cut network does, until the cut is mended."""
        while self._hosts.is_cut(instance_id, wire_cut):  # noqa: ASYNC110  # ends by the clock
            await asyncio.sleep(_CUT_POLL_SECONDS)
        raise ConnectionCutError


def _strike(effect: Effect, moment: str, entry: dict[str, Any]) -> None:
    """Kill the caller, or cut it off, if *effect* does so at this *moment*."""
    if effect.kill == moment:
        callers.kill(entry["killed"])
    if moment in {effect.kill, effect.drop}:
        raise ConnectionCutError


def _port(request: web.BaseRequest) -> int:
    """Return the caller's own port."""
    name = request.transport.get_extra_info("peername") if request.transport else None
    return int(name[1]) if name else 0
