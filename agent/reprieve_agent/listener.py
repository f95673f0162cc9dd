"""
The local socket behind ``reprieve-ctl``: a notice by SSM, and questions about the state.

One line of JSON in, one out. The kernel says who is calling. A preempt joins whatever
request stands already and answers when its outcome is known, or when the caller's
patience ends; the work goes on either way.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

from reprieve.domain.lease import LeaseKey
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve_agent import events as on
from reprieve_agent.metadata import moment
from reprieve_agent.runtime import Agent, Inbox
from reprieve_agent.state import Mark, Tenure

log = logging.getLogger(__name__)

SOCKET_MODE = 0o660
LINE_BYTES = 16 * 1024
CALLER_SECONDS = 10.0
DECIDE_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 300.0
LONGEST_TEXT = 200
PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Verdict(IntEnum):
    """Exit codes of ``reprieve-ctl preempt``."""

    COMMITTED = 0
    USAGE = 2
    FALLBACK = 10
    NO_JOB = 11
    SAVING = 20
    NOTHING_DURABLE = 30


class BadRequestError(Exception):
    """The caller's mistake; the message is the answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One preempt, with what was committed before its notice."""

    key: LeaseKey
    before: int | None


class Listener:
    """Listens on ``agent.sock`` in the run directory."""

    def __init__(self, path: Path, instance_id: str, agent: Agent, inbox: Inbox) -> None:
        self._path = path
        self._instance_id = instance_id
        self._agent = agent
        self._inbox = inbox
        self._asked: dict[str, Asked] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def start(self) -> None:
        """Bind the socket and accept in a thread of its own."""
        self._listener = _listen(self._path)
        threading.Thread(
            target=self._accept, args=(self._listener,), name="ctl", daemon=True
        ).start()

    def end(self) -> None:
        """Stop listening."""
        if self._listener:
            self._path.unlink(missing_ok=True)
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return  # closed: the agent ends
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with caller:
            caller.settimeout(CALLER_SECONDS)
            try:
                answer = self._answer(caller)
            except BadRequestError as error:
                answer = {"result": "refused", "exit": Verdict.USAGE, "error": str(error)}
            except OSError:
                return
            except Exception:
                log.exception("ctl request failed")
                answer = {"result": "failed", "exit": Verdict.NOTHING_DURABLE, "error": "see log"}
            with suppress(OSError):
                caller.sendall(json.dumps({"v": 1} | answer).encode() + b"\n")

    def _answer(self, caller: socket.socket) -> dict[str, Any]:
        uid, gid = _peer(caller)
        if not _allowed(uid, gid, self._path):
            log.warning("ctl caller refused", extra={"uid": uid})
            raise BadRequestError("only root and the agent's group may ask")
        try:
            said = json.loads(_line(caller))
            operation = said["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadRequestError("a request is one line of JSON with an `op`") from None
        if operation == "status":
            return self._status()
        if operation == "preempt":
            return self._preempt(said)
        if operation == "stop":
            return self._stop()
        raise BadRequestError(f"unknown operation {operation!r}")

    def _preempt(self, said: dict[str, Any]) -> dict[str, Any]:
        notice = self._notice(said)
        asked = self._join(notice)
        if not self._inbox.put_and_wait(on.NoticeSeen(notice), DECIDE_SECONDS):
            raise BadRequestError("the agent doesn't decide; see its log")
        if asked is None:
            return {"result": "no job", "exit": Verdict.NO_JOB, "request": notice.request_id}
        patience = min(_seconds(said.get("wait")), LONGEST_WAIT_SECONDS)
        self._agent.wait_for(lambda: self._verdict(asked) is not Verdict.SAVING, patience)
        return self._said(notice, asked)

    def _stop(self) -> dict[str, Any]:
        """Hand over as for SIGTERM: the job's unit is stopped first when the host shuts down."""
        if not self._inbox.put_and_wait(on.StopAsked(), DECIDE_SECONDS):
            raise BadRequestError("the agent doesn't decide; see its log")
        return {"result": "stopping", "exit": 0}

    def _notice(self, said: dict[str, Any]) -> Notice:
        try:
            kind = NoticeKind(said.get("kind", ""))
        except ValueError:
            raise BadRequestError(f"unknown kind {said.get('kind')!r}") from None
        notice = Notice(
            kind=kind,
            instance_id=self._instance_id,
            noticed_at=moment(said.get("noticed_at")) or datetime.now(UTC),
            channel=Channel.SSM,
            reclaimed_at=moment(said.get("deadline")),
        )
        # One SSM command serves many hosts, so there the request is named by its kind alone.
        if said.get("request_id") not in (kind.value, notice.request_id):
            raise BadRequestError(f"request {said.get('request_id')!r} isn't for this host")
        return notice

    def _join(self, notice: Notice) -> Asked | None:
        """Tie the caller to the attempt; a second call about it measures from the first."""
        tenure = self._agent.state.tenure
        with self._lock:
            if tenure is None:
                # The job that this notice ended may be gone already: its outcome is the answer.
                return self._asked.get(notice.request_id)
            known = self._asked.get(notice.request_id)
            if known is None or known.key != tenure.key:
                known = Asked(tenure.key, tenure.committed_step)
                self._asked[notice.request_id] = known
            return known

    def _verdict(self, asked: Asked) -> Verdict:
        tenure, over = self._agent.attempt(asked.key)
        if tenure is None:
            return Verdict.NO_JOB
        newer = tenure.committed_step is not None and tenure.committed_step != asked.before
        if _answered(tenure) or (newer and (over or tenure.request is None)):
            return Verdict.COMMITTED
        if not over and (tenure.request or tenure.ending is None):
            return Verdict.SAVING
        durable = tenure.committed_step if tenure.committed_step is not None else tenure.base_step
        return Verdict.NOTHING_DURABLE if durable is None else Verdict.FALLBACK

    def _said(self, notice: Notice, asked: Asked) -> dict[str, Any]:
        tenure, over = self._agent.attempt(asked.key)
        verdict = self._verdict(asked)
        answer: dict[str, Any] = {
            "result": verdict.name.lower().replace("_", " "),
            "exit": verdict,
            "request": notice.request_id,
            "job": asked.key.job,
            "attempt": asked.key.attempt,
            "released": over,
        }
        if tenure:
            answer |= {
                "step": tenure.step,
                "committed_step": tenure.committed_step,
                "manifest": tenure.committed_manifest,
                "bytes": tenure.upload_bytes,
            }
        if tenure and tenure.request:
            request = tenure.request
            answer |= {f"{mark}_s": round(at - request.since, 3) for mark, at in request.marks}
        if tenure and tenure.ending:
            answer["outcome"] = tenure.ending.outcome.value
            answer["detail"] = tenure.ending.detail[:LONGEST_TEXT]
        return answer

    def _status(self) -> dict[str, Any]:
        state = self._agent.state
        tenure = state.tenure
        answer: dict[str, Any] = {
            "result": "ok",
            "exit": 0,
            "instance_id": self._instance_id,
            "boot_id": state.boot_id,
            "adopted": state.adopted,
            "notice": state.standing.notice.kind.value if state.standing else None,
            "stage": tenure.stage.value if tenure else "IDLE",
        }
        if tenure:
            answer |= {
                "job": tenure.key.job,
                "attempt": tenure.key.attempt,
                "step": tenure.step,
                "committed_step": tenure.committed_step,
                "request": tenure.request.id if tenure.request else None,
                "pid": tenure.process.pid if tenure.process else None,
            }
        return answer


def _answered(tenure: Tenure) -> bool:
    request = tenure.request
    return request is not None and any(mark == Mark.COMMITTED for mark, _ in request.marks)


def _listen(path: Path) -> socket.socket:
    """Bind by way of the open folder: a socket's own path may have 107 bytes only."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    umask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(umask)
        os.close(folder)
    listener.listen(16)
    return listener


def _peer(caller: socket.socket) -> tuple[int, int]:
    packed = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    _pid, uid, gid = PEER_CREDENTIALS.unpack(packed)
    return uid, gid


def _allowed(uid: int, gid: int, path: Path) -> bool:
    return uid in {0, os.geteuid()} or gid == path.stat().st_gid


def _line(caller: socket.socket) -> bytes:
    received = b""
    while b"\n" not in received and len(received) < LINE_BYTES:
        chunk = caller.recv(LINE_BYTES)
        if not chunk:
            break
        received += chunk
    return received.partition(b"\n")[0]


def _seconds(value: object) -> float:
    """Read a patience; what isn't one means none."""
    try:
        seconds = float(str(value))
    except ValueError:
        return 0.0
    return max(seconds, 0.0)
