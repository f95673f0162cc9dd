"""The world around an agent, in this process: queues, a bucket, a metadata service."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reprieve.domain.checkpoint import (
    FileEntry,
    Manifest,
    code_key,
    log_key,
    mark_key,
    own_manifests,
)
from reprieve.domain.errors import MalformedError
from reprieve.ports.checkpoints import AbortedError, BadObjectError, Ledger, never
from reprieve.protocol import Report, ReportKind


def let_pass(_operation: str, _key: str) -> None:
    return


class MemoryCheckpoints:
    """``Checkpoints``; `before` sees each call by name and key, and may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.before: Callable[[str, str], None] = let_pass
        self.calls: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def manifests(self, job: str, attempt: int) -> Sequence[str]:
        self._step("manifests", f"{job}/{attempt}")
        return own_manifests(
            [key for key in list(self.objects) if key.startswith(f"jobs/{job}/manifests/")],
            attempt,
        )

    def manifest(self, key: str) -> Manifest:
        try:
            return Manifest.from_json(self._get("manifest", key), key=key)
        except MalformedError as error:
            raise BadObjectError(str(error)) from error

    def fetch(self, entry: FileEntry, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        body = self._get("fetch", entry.key)
        if len(body) != entry.size:
            raise BadObjectError(f"{entry.key} has {len(body)} bytes, not {entry.size}")
        self._write(target, body, entry.key, entry.sha256)

    def put_file(
        self,
        key: str,
        source: Path,
        *,
        ledger: Ledger | None = None,
        stopped: Callable[[], bool] = never,
    ) -> None:
        self._step("put_file", key)
        if stopped():
            raise AbortedError(key)
        self.objects[key] = source.read_bytes()

    def commit(self, manifest: Manifest) -> Manifest:
        self._step("commit", manifest.key)
        with self._lock:
            body = self.objects.setdefault(manifest.key, manifest.to_json())
        return Manifest.from_json(body, key=manifest.key)

    def marks(self, job: str) -> Mapping[str, str]:
        self._step("marks", job)
        found = {k: v for k, v in self.objects.items() if k.startswith(f"jobs/{job}/set-aside/")}
        return {
            key.replace("/set-aside/", "/manifests/"): json.loads(body)["reason"]
            for key, body in found.items()
        }

    def set_aside(self, manifest: str, reason: str, *, by: str) -> None:
        self._step("set_aside", manifest)
        body = json.dumps({"manifest": manifest, "reason": reason, "by": by}).encode()
        self.objects.setdefault(mark_key(manifest), body)

    def fetch_code(self, sha256: str, target: Path, *, stopped: Callable[[], bool] = never) -> None:
        key = code_key(sha256)
        self._write(target, self._get("fetch_code", key), key, sha256)

    def put_log(self, job: str, attempt: int, body: bytes) -> None:
        self._step("put_log", log_key(job, attempt))
        self.objects[log_key(job, attempt)] = body

    def _get(self, operation: str, key: str) -> bytes:
        self._step(operation, key)
        if key not in self.objects:
            raise BadObjectError(f"{key} doesn't exist")
        return self.objects[key]

    def _write(self, target: Path, body: bytes, key: str, sha256: str) -> None:
        if hashlib.sha256(body).hexdigest() != sha256:
            raise BadObjectError(f"{key} has another SHA-256 than its manifest says")
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(body)

    def _step(self, operation: str, key: str) -> None:
        with self._lock:
            self.calls.append((operation, key))
        self.before(operation, key)


class Queues:
    """The SQS client, as the agent uses it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._visible: list[tuple[str, str]] = []
        self._taken: dict[str, str] = {}
        self._count = 0
        self.deleted: list[str] = []
        self.returned: list[str] = []
        self.sent: list[str] = []

    def offer(self, body: str) -> None:
        """Put a message on the work queue."""
        with self._changed:
            self._count += 1
            self._visible.append((f"receipt-{self._count}", body))
            self._changed.notify_all()

    @property
    def reports(self) -> list[Report]:
        """What the agent said so far."""
        with self._changed:
            return [Report.from_json(body) for body in self.sent]

    def said(self, kind: ReportKind) -> list[Report]:
        return [report for report in self.reports if report.kind is kind]

    def receive_message(self, **_request: Any) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._visible), timeout=0.05)
            if not self._visible:
                return {}
            receipt, body = self._visible.pop(0)
            self._taken[receipt] = body
            return {"Messages": [{"Body": body, "ReceiptHandle": receipt}]}

    def delete_message(self, **request: str) -> None:
        with self._changed:
            self._taken.pop(request["ReceiptHandle"], None)
            self.deleted.append(request["ReceiptHandle"])

    def change_message_visibility(self, **request: Any) -> None:
        receipt = request["ReceiptHandle"]
        with self._changed:
            self.returned.append(receipt)
            body = self._taken.pop(receipt, None)
            if body is not None and request["VisibilityTimeout"] == 0:
                self._visible.append((receipt, body))

    def send_message(self, **request: str) -> None:
        with self._changed:
            self.sent.append(request["MessageBody"])
            self._changed.notify_all()


class MetadataService:
    """IMDSv2 on loopback. `paths` are the answers below ``latest/``; others are 404."""

    def __init__(self, instance_id: str) -> None:
        self.paths: dict[str, str] = {
            "meta-data/instance-id": instance_id,
            "meta-data/instance-type": "g5.xlarge",
            "meta-data/placement/availability-zone": "us-east-1a",
            "meta-data/instance-life-cycle": "spot",
        }
        self.status: int | None = None
        # What the next questions about a Spot action get, before `paths` count; None is silence.
        self.script: list[int | None] = []
        self._closed = threading.Event()
        self.tokens: set[str] = set()
        self.requests: list[str] = []
        self.connections = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                service.connections += 1
                super().setup()

            def do_PUT(self) -> None:
                service.requests.append(self.path)
                token = f"token-{len(service.tokens)}"
                service.tokens.add(token)
                self._say(service.status or 200, token)

            def do_GET(self) -> None:
                service.requests.append(self.path)
                name = self.path.partition("/latest/")[2]
                answer = service.answer(name, self.headers.get("X-aws-ec2-metadata-token"))
                if answer:
                    self._say(*answer)
                else:
                    self.close_connection = True

            def _say(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/imds/{instance_id}/"

    def interrupt(self, action: str = "terminate", time: str = "") -> None:
        """Announce the end of the instance."""
        self.paths["meta-data/spot/instance-action"] = json.dumps({"action": action, "time": time})

    def recommend_rebalance(self, time: str = "2026-03-04T12:00:00Z") -> None:
        self.paths["meta-data/events/recommendations/rebalance"] = json.dumps({"noticeTime": time})

    def answer(self, name: str, token: str | None) -> tuple[int, str] | None:
        """Return status and body; None after having said nothing for as long as anybody waits."""
        status: int | None = self.status
        if self.script and name == "meta-data/spot/instance-action":
            status = self.script.pop(0)
            if status is None:
                self._closed.wait(30)
                return None
        elif status is None and token not in self.tokens:
            status = 401
        if status not in (None, 200):
            return status, ""
        return (200, self.paths[name]) if name in self.paths else (404, "")

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
