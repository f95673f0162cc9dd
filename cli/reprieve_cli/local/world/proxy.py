"""
Pass a request to ministack as it came: Host, path, headers and bytes.

Signatures cover them, and ministack reads the service off them, so nothing may change. Bodies
stream in both directions.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from reprieve_cli.local.world.upstream import Address

# They belong to one connection, not to the message.
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
)
_CHUNK = 256 * 1024
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_FIRST_ERROR = 400


class Answer:
    """What ministack said: either read whole (small, or an error) or still to be streamed."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes | None) -> None:
        self.response = response
        self.body = body

    @property
    def status(self) -> int:
        return self.response.status


class Proxy:
    def __init__(self, address: Address) -> None:
        self._base = address.url
        secure = None
        if address.ca_bundle:
            secure = ssl.create_default_context(cafile=str(address.ca_bundle))
        connector = aiohttp.TCPConnector(limit=0, ssl=secure or True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=_NO_TIMEOUT,
            auto_decompress=False,
            skip_auto_headers=_AUTOMATIC,
        )

    async def ask(self, request: web.BaseRequest, body: bytes | None) -> Answer:
        """Send *request* with *body* (None: the request's own stream) and read what is small."""
        headers = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in _HOP_BY_HOP
        )
        data: bytes | AsyncIterator[bytes] | None = body
        if body is None and request.body_exists:
            data = request.content.iter_chunked(_CHUNK)
        response = await self._session.request(
            request.method,
            URL(self._base + request.raw_path, encoded=True),
            headers=headers,
            data=data,
            allow_redirects=False,
        )
        length = response.content_length
        whole = response.status >= _FIRST_ERROR or (length is not None and length <= _CHUNK)
        try:
            return Answer(response, await response.read() if whole else None)
        except BaseException:
            response.close()
            raise

    async def respond(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        """Hand *answer* to the caller."""
        headers = CIMultiDict(
            (name, value)
            for name, value in answer.response.headers.items()
            if name.lower() not in _HOP_BY_HOP
        )
        if answer.body is not None and request.method != "HEAD":
            headers.pop("Content-Length", None)
            return web.Response(status=answer.status, headers=headers, body=answer.body)
        streamed = web.StreamResponse(status=answer.status, headers=headers)
        await streamed.prepare(request)
        async with answer.response:
            async for chunk in answer.response.content.iter_chunked(_CHUNK):
                await streamed.write(chunk)
        await streamed.write_eof()
        return streamed

    async def respond_in_part(self, request: web.BaseRequest, answer: Answer) -> None:
        """Hand the first half of *answer* to the caller, as if the connection broke then."""
        body = answer.body
        if body is None:
            length = answer.response.content_length or 2 * _CHUNK
            body = await answer.response.content.read(length // 2) * 2
        answer.response.close()
        await send_half(request, answer.response.headers, body, status=answer.status)

    async def close(self) -> None:
        await self._session.close()


async def send_half(
    request: web.BaseRequest, headers: Mapping[str, str], body: Any, *, status: int
) -> None:
    """Begin an answer with *body* and stop in the middle of it."""
    kept = CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP
    )
    whole = bytes(body or b"")
    kept["Content-Length"] = str(len(whole) or 1)
    begun = web.StreamResponse(status=status, headers=kept)
    await begun.prepare(request)
    await begun.write(whole[: len(whole) // 2])
