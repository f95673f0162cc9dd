"""
Credentials of the jobs' own role, served on loopback while a job runs.

This is the container-credentials convention, which every AWS SDK knows: two variables name
an address and a token, and a GET with that token is answered with credentials that renew
themselves. The role is assumed with the host's credentials, which no job ever sees.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer, TCPServer
from typing import TYPE_CHECKING, Any

from botocore.config import Config as ClientConfig
from botocore.exceptions import BotoCoreError, ClientError

from reprieve.adapters import sdk
from reprieve.domain.lease import LeaseKey
from reprieve_agent.files import read_json, write_json
from reprieve_agent.places import Places

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
PATH = "/credentials"
FILE = "credentials.json"  # port and token, never credentials: a restarted agent serves there again
VERSION = 1

LIFETIME_SECONDS = 3600  # the longest for a role that is assumed by a role
LEAST_LIFE = timedelta(minutes=1)
PAUSE = timedelta(seconds=5)  # between tries that fail, however often a job asks
SILENT_CLIENT_SECONDS = 2.0
REBIND_SECONDS = 1.0

LONGEST_SESSION_NAME = 64
NOT_IN_SESSION_NAME = re.compile(r"[^A-Za-z0-9_=,.@-]")

PASSING_CODES = re.compile(r"Throttl|TooManyRequests|RequestLimitExceeded|SlowDown")
CLIENT = ClientConfig(
    connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2}
)


class CallError(Exception):
    """
    An AWS call that failed; says which and with which code, and nothing of what was sent.

    *passing* tells whether another try may do better.
    """

    def __init__(self, operation: str, code: str, *, passing: bool) -> None:
        super().__init__(f"{operation}: {code}")
        self.code = code
        self.passing = passing

    @classmethod
    def of(cls, operation: str, error: ClientError | BotoCoreError) -> CallError:
        """Read what botocore raised."""
        if not isinstance(error, ClientError):  # not reached, or no credentials of our own yet
            return cls(operation, type(error).__name__, passing=True)
        code = error.response.get("Error", {}).get("Code", "Unknown")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        passing = (
            status >= HTTPStatus.INTERNAL_SERVER_ERROR or PASSING_CODES.search(code) is not None
        )
        return cls(operation, code, passing=passing)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What STS gave, and when."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    obtained: datetime
    expires: datetime

    @property
    def renew_at(self) -> datetime:
        """Half of their life: SDKs ask again when a quarter of an hour is left."""
        return self.obtained + (self.expires - self.obtained) / 2


class RoleSession:
    """The role as one job has it: assumed when somebody asks, again well before it ends."""

    def __init__(
        self,
        role_arn: str,
        name: str,
        sts: Callable[[], STSClient],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.role_arn = role_arn
        self.name = name
        self._sts = sts
        self._now = now
        self._asking = threading.Lock()
        self._held: Credentials | None = None
        self._failure = CallError("AssumeRole", "ExpiredToken", passing=True)
        self._not_before: datetime | None = None

    def credentials(self) -> Credentials:
        """Return credentials that live for a while; raise ``CallError`` if there are none."""
        with self._asking:
            at = self._now()
            if self._held is None or at >= self._held.renew_at:
                self._renew(at)
            if self._held is None or at + LEAST_LIFE >= self._held.expires:
                raise self._failure
            return self._held

    def _renew(self, at: datetime) -> None:
        """Replace what is held; if that fails, it serves on for as long as it lives."""
        if self._not_before and at < self._not_before:
            return
        try:
            self._held = self._assume(at)
            self._not_before = None
        except (ClientError, BotoCoreError) as error:
            self._failure = CallError.of("AssumeRole", error)
            self._not_before = at + PAUSE
            log.warning(
                "job role not assumed",
                extra={"role": self.role_arn, "session": self.name, "error": str(error)},
            )

    def _assume(self, at: datetime) -> Credentials:
        answer = self._sts().assume_role(
            RoleArn=self.role_arn, RoleSessionName=self.name, DurationSeconds=LIFETIME_SECONDS
        )
        given = answer["Credentials"]
        return Credentials(
            access_key_id=given["AccessKeyId"],
            secret_access_key=given["SecretAccessKey"],
            session_token=given["SessionToken"],
            obtained=at,
            expires=given["Expiration"],
        )


class CredentialServer:
    """
    Answers the processes of one attempt.

    One request at a time, each with a time limit: whatever a job does to it, the agent
    spends no more than one thread and a few sockets on it.
    """

    def __init__(self, session: RoleSession, token: str) -> None:
        self.session = session
        self.token = token
        self.port = 0
        self._starting = threading.Lock()
        self._ended = threading.Event()
        self._listening: _Listening | None = None

    def start(self, port: int = 0) -> None:
        """Listen on *port*, or on a free one; one that is taken is waited for."""
        self.port = port
        try:
            self._listen()
        except OSError as error:
            if not port:
                raise
            log.warning("port of the job's credentials is taken", extra={"error": str(error)})
            threading.Thread(target=self._listen_when_free, name="credentials", daemon=True).start()

    def end(self) -> None:
        """Stop answering."""
        with self._starting:
            self._ended.set()
            listening, self._listening = self._listening, None
        if listening:
            listening.shutdown()
            listening.server_close()

    def _listen(self) -> None:
        with self._starting:
            if self._ended.is_set():
                return
            listening = _Listening(self)
            self.port = listening.server_address[1]
            self._listening = listening
        threading.Thread(target=listening.serve_forever, name="credentials", daemon=True).start()

    def _listen_when_free(self) -> None:
        while not self._ended.wait(REBIND_SECONDS):
            try:
                self._listen()
            except OSError:
                continue
            return


class JobRole:
    """The role of a deployment's jobs, and what serves it to each attempt."""

    def __init__(self, role_arn: str, region: str) -> None:
        self._role_arn = role_arn
        self._region = region
        self._opening = threading.Lock()
        self._servers: dict[LeaseKey, CredentialServer] = {}
        self._client: STSClient | None = None

    def open(self, key: LeaseKey, places: Places) -> CredentialServer:
        """Return what serves the attempt: started now, or again where an earlier agent did."""
        with self._opening:
            server = self._servers.get(key)
            if server is None:
                server = self._serve(key, places.private / FILE)
                self._servers[key] = server
            return server

    def environment(self, key: LeaseKey, places: Places) -> dict[str, str]:
        """Return the variables by which an SDK finds the role's credentials."""
        server = self.open(key, places)
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{LOOPBACK}:{server.port}{PATH}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": server.token,
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
        }

    def close(self, key: LeaseKey) -> None:
        """Stop serving an attempt that is over."""
        with self._opening:
            server = self._servers.pop(key, None)
        if server:
            server.end()

    def _serve(self, key: LeaseKey, file: Path) -> CredentialServer:
        session = RoleSession(self._role_arn, session_name(key.job), self._sts)
        kept = read_json(file) or {}
        port, token = kept.get("port"), kept.get("token")
        if kept.get("v") == VERSION and isinstance(port, int) and isinstance(token, str):
            server = CredentialServer(session, token)
            server.start(port)
            return server
        server = CredentialServer(session, secrets.token_urlsafe(32))
        server.start()
        write_json(file, {"v": VERSION, "port": server.port, "token": server.token}, mode=0o600)
        return server

    def _sts(self) -> STSClient:
        """Return a client with the host's own credentials, made when a job first asks."""
        client = self._client
        if client is None:
            client = self._client = sdk.client(sdk.session(self._region), "sts", config=CLIENT)
        return client


def session_name(job: str) -> str:
    """Return the name under which CloudTrail shows what a job did: its own, as far as STS lets."""
    return NOT_IN_SESSION_NAME.sub("-", job)[:LONGEST_SESSION_NAME].ljust(2, "-")


class _Listening(TCPServer):
    # Not http.server.HTTPServer: that one asks DNS for its own name first.
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, served: CredentialServer) -> None:
        self.served = served
        super().__init__((LOOPBACK, served.port), _Answering)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        error = sys.exception()
        if not isinstance(error, OSError):  # those are clients that went away
            log.error("credentials not served", exc_info=error)


class _Answering(BaseHTTPRequestHandler):
    server: BaseServer
    timeout = SILENT_CLIENT_SECONDS
    server_version, sys_version = "reprieve-agent", ""

    def do_GET(self) -> None:
        assert isinstance(self.server, _Listening)  # noqa: S101 - only that one makes us
        served = self.server.served
        given = self.headers.get("Authorization", "")
        if self.path != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, "NotFound", f"only {PATH} is here")
        elif not hmac.compare_digest(given.encode(), served.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "AccessDenied", "wrong or no Authorization")
        else:
            self._give(served.session)

    def _give(self, session: RoleSession) -> None:
        try:
            credentials = session.credentials()
        except CallError as error:
            message = f"the job role {session.role_arn} can't be had: {error}"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, error.code, message)
            return
        expires = credentials.expires.astimezone(UTC)
        self._say(
            HTTPStatus.OK,
            {
                "AccessKeyId": credentials.access_key_id,
                "SecretAccessKey": credentials.secret_access_key,
                "Token": credentials.session_token,
                "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "RoleArn": session.role_arn,
            },
        )

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        self._say(status, {"code": code, "message": message})

    def _say(self, status: HTTPStatus, content: Mapping[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet: the agent's log is for what matters."""
