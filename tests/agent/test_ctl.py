"""`reprieve-ctl`: what it asks the agent, and without one the job, by the contract alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.notice import NoticeKind
from reprieve_agent.listener import Verdict

CTL = Path(__file__).resolve().parents[2] / "agent" / "reprieve_agent" / "bin" / "reprieve-ctl"
ASKED = 40
FORBIDDEN = {168, 194}  # to SSM they mean: go on, and reboot
SSM_KEEPS_BYTES = 2000


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """Return the folder of a job that an agent left behind."""
    contract, checkpoints = tmp_path / "contract", tmp_path / "checkpoints"
    contract.mkdir()
    checkpoints.mkdir()
    job: dict[str, Any] = {
        "id": "job-1",
        "attempt": 2,
        "contract_dir": str(contract),
        "checkpoints_dir": str(checkpoints),
        "committed_step": 40,
        "request_id": None,
    }
    (tmp_path / "job.json").write_text(json.dumps({"v": 1, "job": job}))
    return contract


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (NoticeKind.INTERRUPTION, "checkpoint_exit"),
        (NoticeKind.RESERVATION, "checkpoint_exit"),
        (NoticeKind.REBALANCE, "checkpoint"),
        (NoticeKind.MAINTENANCE, "checkpoint"),
    ],
)
def test_a_job_is_asked_to_leave_only_if_its_host_goes_now(
    kind: NoticeKind, asked: str, contract: Path
) -> None:
    done = ctl(contract.parent, "preempt", "--request-id", kind, "--kind", kind, "--json")
    assert done.returncode == ASKED
    request = json.loads((contract / "request.json").read_text())
    assert (request["kind"], request["id"]) == (asked, f"{kind}:2")


def test_without_an_agent_the_answer_stays_short_and_names_what_was_done(contract: Path) -> None:
    (contract.parent / "checkpoints" / "step-60").mkdir()
    (contract.parent / "checkpoints" / "step-60" / "MANIFEST.json").write_text("{}")

    done = ctl(contract.parent, "preempt", "--request-id", "interruption", "--kind", "interruption")

    assert len(done.stdout) < SSM_KEEPS_BYTES
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["job"], said["attempt"], said["woken"]) == ("job-1", 2, 0)
    assert (said["saved_step"], said["committed_step"]) == (60, 40)


class Answering:
    """A stand-in for the agent, which answers every caller the same."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.heard: list[bytes] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        caller, _ = self._listener.accept()
        with caller:
            self.heard.append(caller.recv(65536))
            caller.sendall(self._answer)

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


@pytest.mark.parametrize("code", sorted(Verdict))
def test_the_exit_code_is_the_agents_verdict(code: Verdict, tmp_path: Path) -> None:
    answer = {"v": 1, "result": 'named "exit": 99', "exit": code, "step": 12}
    agent = Answering(tmp_path / "agent.sock", json.dumps(answer).encode() + b"\n")

    done = ctl(tmp_path, "preempt", "--request-id", "x", "--kind", "interruption", "--wait", "1")

    agent.close()
    assert done.returncode == code
    assert json.loads(done.stdout) == answer
    assert done.returncode not in FORBIDDEN


def test_what_it_passes_on_arrives_as_it_was_given(tmp_path: Path) -> None:
    agent = Answering(tmp_path / "agent.sock", b'{"v": 1, "exit": 2}\n')
    odd = 'a"b\\c\n\u00e9\U0001f600'

    ctl(tmp_path, "preempt", "--request-id", odd, "--kind", "rebalance", "--deadline", "soon")

    agent.close()
    assert json.loads(agent.heard[0]) == {
        "op": "preempt",
        "request_id": odd,
        "kind": "rebalance",
        "deadline": "soon",
        "wait": "0.0",
    }


def test_an_answer_too_long_for_ssm_is_cut_to_its_verdict(tmp_path: Path) -> None:
    answer = {"v": 1, "result": "fallback", "exit": 10, "detail": "x" * 3000}
    agent = Answering(tmp_path / "agent.sock", json.dumps(answer).encode() + b"\n")

    done = ctl(tmp_path, "preempt", "--request-id", "x", "--kind", "interruption")

    agent.close()
    assert (done.returncode, len(done.stdout) < SSM_KEEPS_BYTES) == (10, True)
    assert json.loads(done.stdout) == {"result": "fallback", "exit": 10, "cut": True}


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"[]\n"])
def test_an_agent_that_talks_nonsense_is_as_good_as_down(answer: bytes, contract: Path) -> None:
    agent = Answering(contract.parent / "agent.sock", answer)

    done = ctl(contract.parent, "preempt", "--request-id", "x", "--kind", "interruption")

    agent.close()
    assert done.returncode == ASKED
    assert (contract / "request.json").exists()


def test_it_is_found_by_way_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "reprieve-ctl"
    link.symlink_to(CTL)

    done = ctl(tmp_path, "status", program=link)

    assert done.returncode == ASKED
    assert json.loads(done.stdout)["result"] == "agent down"


def ctl(folder: Path, *words: str, program: Path = CTL) -> subprocess.CompletedProcess[str]:
    """Run it as SSM does, in a world where nothing else can be called."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(program), *words],
        env={
            "REPRIEVE_STATE_DIR": str(folder),
            "REPRIEVE_SOCKET": str(folder / "agent.sock"),
            "PATH": str(folder),  # no systemctl
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
