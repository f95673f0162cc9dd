"""An AWS account with a role for jobs: STS, Secrets Manager and SSM, over real HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

ROLE = "arn:aws:iam::123456789012:role/training-data"
HOST_KEY, HOST_SECRET = "AKIAHOSTHOSTHOSTHOST", "the-secret-key-of-the-host"
SECRET = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hf-AbCdEf"
PARAMETER = "arn:aws:ssm:us-east-1:123456789012:parameter/team/wandb"
SECRET_VALUE, PARAMETER_VALUE = "hunter2-of-the-secret", "correct-horse-of-the-parameter"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was asked, and who asked where."""

    operation: str
    access_key: str
    region: str
    session_token: str
    asked: dict[str, Any]


@dataclass(slots=True)
class RoleAccount:
    """
    The account. Each session of the role has keys of its own, numbered from 1.

    ``refusals`` maps an operation to codes and statuses, used up from the left.
    """

    url: str = ""
    lifetime: timedelta = timedelta(hours=1)
    now: datetime | None = None
    values: dict[str, Any] = field(
        default_factory=lambda: {
            SECRET: {"SecretString": SECRET_VALUE},
            PARAMETER: PARAMETER_VALUE,
        }
    )
    refusals: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def called(self, operation: str) -> list[Call]:
        return [call for call in self.calls if call.operation == operation]

    def answer(self, call: Call) -> tuple[int, str]:
        self.calls.append(call)
        refusals = self.refusals.get(call.operation)
        if refusals:
            code, status = refusals.pop(0)
            return status, _refusal(call.operation, code)
        if call.operation == "AssumeRole":
            return 200, self._assumed()
        name = call.asked.get("SecretId") or call.asked.get("Name")
        if name not in self.values:
            return 400, _refusal(call.operation, "ResourceNotFoundException")
        value = self.values[name]
        if call.operation == "GetSecretValue":
            return 200, json.dumps({"ARN": name, "Name": name, **value})
        return 200, json.dumps({"Parameter": {"Name": name, "ARN": name, "Value": value}})

    def _assumed(self) -> str:
        number = len(self.called("AssumeRole"))
        expires = (self.now or datetime.now(UTC)) + self.lifetime
        return (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleResult><Credentials>"
            f"<AccessKeyId>ASIAJOB{number}</AccessKeyId>"
            f"<SecretAccessKey>role-secret-{number}</SecretAccessKey>"
            f"<SessionToken>role-session-{number}</SessionToken>"
            f"<Expiration>{expires:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )


@contextmanager
def role_account() -> Iterator[RoleAccount]:
    account = RoleAccount()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, text = account.answer(_call(dict(self.headers), body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    account.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield account
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _call(headers: dict[str, str], body: str) -> Call:
    scope = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", headers["Authorization"])
    assert scope
    asked: dict[str, Any] = (
        json.loads(body)
        if body.startswith("{")
        else {name: values[0] for name, values in parse_qs(body).items()}
    )
    return Call(
        operation=asked.get("Action") or headers["X-Amz-Target"].rpartition(".")[2],
        access_key=scope[1],
        region=scope[2],
        session_token=headers.get("X-Amz-Security-Token", ""),
        asked=asked,
    )


def _refusal(operation: str, code: str) -> str:
    if operation == "AssumeRole":
        error = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        return f"<ErrorResponse>{error}</ErrorResponse>"
    return json.dumps({"__type": code, "message": "no"})
