"""An AWS endpoint that answers what a test tells it to, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import boto3
from botocore.config import Config

EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back: a body, or nothing at all when *drop* hangs up on the caller."""

    body: bytes = b""
    status: int = 200
    drop: bool = False


DROP = Reply(drop=True)


@dataclass(slots=True)
class Endpoint:
    """The server's script, or rule, and its record of what was asked."""

    url: str = ""
    script: deque[Reply] = field(default_factory=deque)
    answers: Callable[[dict[str, Any]], Reply] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)

    def says(self, *replies: Reply) -> None:
        self.script.extend(replies)

    def reply(self, asked: dict[str, Any]) -> Reply:
        """Return what comes next; a call that no test expected is refused."""
        if self.answers:
            return self.answers(asked)
        return self.script.popleft() if self.script else Reply(b"", 418)


@contextmanager
def serving() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = _request(body)
            endpoint.asked.append(asked)
            endpoint.agents.append(self.headers["User-Agent"])
            endpoint.operations.append(self.headers.get("X-Amz-Target", "").rpartition(".")[2])
            reply = endpoint.reply(asked)
            if reply.drop:
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client(service: Any, endpoint: Endpoint) -> Any:
    """Return a client that asks *endpoint* once: retries are tested where they are ours."""
    return boto3.client(
        service,
        endpoint_url=endpoint.url,
        config=Config(
            connect_timeout=2, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1}
        ),
    )


def json_reply(**body: Any) -> Reply:
    return Reply(json.dumps(body).encode())


def json_error(code: str, message: str = "", status: int = 400, **extra: Any) -> Reply:
    return Reply(json.dumps({"__type": code, "message": message} | extra).encode(), status)


def ec2_reply(action: str, inner: str) -> Reply:
    return Reply(
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{EC2_NAMESPACE}">'
        f"<requestId>r-1</requestId>{inner}</{action}Response>".encode()
    )


def ec2_error(code: str, message: str = "", status: int = 400) -> Reply:
    return Reply(
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{code}</Code><Message>{message}</Message>"
        f"</Error></Errors><RequestID>r-1</RequestID></Response>".encode(),
        status,
    )


def _request(body: bytes) -> dict[str, Any]:
    if body.startswith(b"{"):
        return dict(json.loads(body))
    return {name: values[0] for name, values in parse_qs(body.decode()).items()}
