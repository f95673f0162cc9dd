"""Whatever a host is told, by ticket, by command or on its socket: an answer, and no traceback."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.constructs.fleet import PREEMPT_DOCUMENT
from reprieve.adapters.codec import from_item, to_item
from reprieve.adapters.memory import Memory
from reprieve.domain.clock import NoticeClock
from reprieve.domain.lease import LeaseKey
from reprieve.domain.notice import NoticeKind
from reprieve.ports.leases import Claim
from reprieve.protocol import Ticket
from reprieve_agent import events as on
from reprieve_agent.clock import Now
from reprieve_agent.listener import LINE_BYTES, Listener, Verdict
from reprieve_agent.machine import Machine
from reprieve_agent.periods import Periods
from reprieve_agent.state import State, Tenure
from reprieve_agent.work import WorkQueue
from tests.builders import HOST, NOON, a_holder, a_host
from tests.fuzz.strategies import FUZZ, JSON, bodies, spelt_out, spoilt

pytestmark = pytest.mark.deep

CTL = Path(__file__).resolve().parents[2] / "agent" / "reprieve_agent" / "bin" / "reprieve-ctl"
PERIODS = Periods.of(NoticeClock())
SHARED = settings(FUZZ, suppress_health_check=[HealthCheck.function_scoped_fixture])
PREEMPT = {
    "op": "preempt",
    "request_id": "interruption",
    "kind": "interruption",
    "noticed_at": "2026-03-04T12:00:00.000+00:00",
    "deadline": "2026-03-04T12:02:00.000+00:00",
    "wait": "0",
}


# Tickets


class OneMessage:
    """A work queue with one message, which then ends."""

    def __init__(self, body: str) -> None:
        self.waiting = [body]
        self.deleted: list[str] = []
        self.ended: Callable[[], None] = lambda: None

    def receive_message(self, **_asked: object) -> dict[str, Any]:
        if not self.waiting:
            self.ended()
            return {}
        return {"Messages": [{"Body": self.waiting.pop(), "ReceiptHandle": "r1"}]}

    def delete_message(self, **asked: str) -> None:
        self.deleted.append(asked["ReceiptHandle"])


@FUZZ
@given(body=bodies(json.loads(Ticket("job-1", 1, "t1").to_json())))
def test_no_ticket_escapes_and_a_malformed_one_is_left_to_its_dead_letter_queue(body: str) -> None:
    came: list[on.Event] = []
    sqs: Any = OneMessage(spelt_out(body))

    def take(event: on.Event) -> None:
        came.append(event)
        work.end()

    work = WorkQueue(sqs, "work", take, NoticeClock().notice)
    sqs.ended = work.end
    work.want(tickets=True)
    work.run()

    assert sqs.waiting == []
    assert sqs.deleted == []  # only a lease that was won takes a ticket off the queue
    for event in came:
        assert isinstance(event, on.TicketCame)
        _claim_changes_nothing(event.key)


def _claim_changes_nothing(key: LeaseKey) -> None:
    memory = Memory()
    memory.hosts.adopt(a_host())
    rows = (dict(memory.lease_rows), dict(memory.holds_rows))
    assert memory.leases.claim(key, a_holder()) is Claim.MISSING
    assert rows == (memory.lease_rows, memory.holds_rows)


# The socket


class Standstill:
    """An agent that decides at once, with its real machine, and keeps its state as on disk."""

    def __init__(self) -> None:
        self.state = State(boot_id="b", idle_since=0.0)
        self.machine = Machine(HOST, PERIODS)

    def attempt(self, _key: LeaseKey) -> tuple[Tenure | None, bool]:
        return None, False

    def wait_for(self, _condition: Callable[[], bool], _seconds: float) -> None:
        return

    def put_and_wait(self, event: on.Event, _seconds: float) -> bool:
        now = Now(wall=NOON, boot=1000.0)
        self.state, _ = self.machine.step(State(boot_id="b", idle_since=0.0), event, now)
        assert from_item(State, to_item(self.state)) == self.state
        return True


@pytest.fixture(scope="module")
def agent_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("agent") / "agent.sock"
    agent: Any = Standstill()
    listener = Listener(path, HOST, agent, agent)
    listener.start()
    yield path
    listener.end()


def ask(path: Path, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(10)
        caller.connect(str(path))
        caller.sendall(line)
        caller.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while chunk := caller.recv(65536):
                received += chunk
        except ConnectionResetError:  # it hung up on a line longer than it reads
            assert len(line) > LINE_BYTES
            return {"result": "refused", "exit": Verdict.USAGE}
    answer: dict[str, Any] = json.loads(received)
    return answer


@SHARED
@given(body=bodies(PREEMPT, {"op": "status"}))
def test_every_request_on_the_socket_is_answered(body: str, agent_socket: Path) -> None:
    answer = ask(agent_socket, spelt_out(body).encode("utf-8", "surrogatepass") + b"\n")
    assert answer["exit"] in {0, *Verdict}
    assert answer["result"] != "failed", "what the caller did wrong is told, not thrown"


@pytest.mark.parametrize("deep", [b"[" * 10_000, b'{"op":' * 2_000])
def test_nesting_without_end_is_refused(deep: bytes, agent_socket: Path) -> None:
    assert ask(agent_socket, deep + b"\n")["exit"] == Verdict.USAGE


@pytest.mark.parametrize("name", ["noticed_at", "deadline"])
@pytest.mark.parametrize(
    "when", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-13-01T00:00:00Z"]
)
def test_a_time_of_another_age_is_as_good_as_none(name: str, when: str, agent_socket: Path) -> None:
    answer = ask(agent_socket, json.dumps(PREEMPT | {name: when}).encode() + b"\n")
    assert answer["result"] == "no job"


@SHARED
@given(line=st.binary(max_size=200))
def test_every_line_of_bytes_is_answered(line: bytes, agent_socket: Path) -> None:
    assert ask(agent_socket, line)["result"] == "refused"


@SHARED
@given(request=spoilt(PREEMPT))
def test_a_request_for_another_host_is_refused(request: dict[str, Any], agent_socket: Path) -> None:
    foreign = request | {"op": "preempt", "request_id": "interruption:i-0ff00000000000099"}
    assert ask(agent_socket, json.dumps(foreign).encode() + b"\n")["exit"] == Verdict.USAGE


# What SSM passes on


@pytest.fixture(scope="module")
def ctl() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("reprieve_ctl_fuzzed", str(CTL))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


PATTERNS: dict[str, str] = {
    name: parameter["allowedPattern"] for name, parameter in PREEMPT_DOCUMENT["parameters"].items()
}


def allowed(name: str) -> st.SearchStrategy[str]:
    """Return what the service lets through."""
    return st.from_regex(re.compile(PATTERNS[name], re.ASCII), fullmatch=True).filter(
        lambda value: "\n" not in value
    )


PARAMETERS = st.fixed_dictionaries(
    {
        "--request-id": st.sampled_from(list(NoticeKind)) | allowed("RequestId"),
        "--kind": st.sampled_from(list(NoticeKind)) | allowed("Kind"),
        "--noticed-at": allowed("NoticedAt"),
        "--deadline": allowed("Deadline"),
        "--wait": st.sampled_from(["0", "inf", "nan", "-1", "1e400"]),
    }
)


@SHARED
@given(parameters=PARAMETERS)
def test_what_the_document_lets_through_is_answered_by_an_exit_code(
    parameters: dict[str, str], ctl: ModuleType, agent_socket: Path
) -> None:
    request_id, kind = parameters["--request-id"], parameters["--kind"]
    words = ["preempt", *(word for pair in parameters.items() for word in pair), "--json"]
    code = ctl.main(words, {b"REPRIEVE_SOCKET": os.fsencode(agent_socket)})
    assert code in {*Verdict}
    known = kind in set(NoticeKind)
    assert (code == Verdict.USAGE) == (not known or request_id not in {kind, f"{kind}:{HOST}"})


@SHARED
@given(words=st.lists(JSON.map(str) | st.sampled_from(["--kind", "--wait", "inf", "nan", "-1"])))
def test_every_command_line_ends_with_an_exit_code(
    words: list[str], ctl: ModuleType, agent_socket: Path
) -> None:
    environ = {b"REPRIEVE_SOCKET": os.fsencode(agent_socket)}
    for known in ([], ["preempt"], ["preempt", "--request-id", "rebalance", "--kind"]):
        code = ctl.main([*known, *words], environ)
        assert code in {*Verdict}


@pytest.mark.parametrize(
    "hostile",
    ["$(touch owned)", "`touch owned`", "; touch owned", '" ; touch owned #', "\n touch owned\n"],
)
def test_no_parameter_is_ever_part_of_the_script(hostile: str, tmp_path: Path) -> None:
    """Should a value ever pass the service's pattern, it is still only a word to our command."""
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "reprieve-ctl"
    stub.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    stub.chmod(0o755)
    (step,) = PREEMPT_DOCUMENT["mainSteps"]
    script = "\n".join(step["inputs"]["runCommand"]).replace("/opt/reprieve/bin", str(stub.parent))
    parameters = dict.fromkeys(("RequestId", "Kind", "NoticedAt", "Deadline"), hostile)
    ran = subprocess.run(
        ["/bin/sh", "-c", script],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={f"SSM_{name}": value for name, value in parameters.items()}
        | {"PATH": "/usr/bin:/bin"},
    )
    words = ran.stdout.split("\0")
    assert words.count(hostile) == len(parameters)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", sorted(PATTERNS))
@pytest.mark.parametrize(
    "value", ["$(id)", "a b", "a;b", "a'b", 'a"b', "a\nb", "\u00e9", "x" * 300]
)
def test_the_service_stops_what_is_no_name_and_no_time(name: str, value: str) -> None:
    assert not re.fullmatch(PATTERNS[name], value)
