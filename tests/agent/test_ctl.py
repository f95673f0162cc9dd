"""`reprieve-ctl` without its agent: what it asks the job for, by the contract alone."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from reprieve.domain.notice import NoticeKind

CTL = Path(__file__).resolve().parents[2] / "agent" / "reprieve_agent" / "bin" / "reprieve-ctl"
ASKED = 40


@pytest.fixture
def contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    monkeypatch.setenv("REPRIEVE_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("REPRIEVE_SOCKET", str(tmp_path / "agent.sock"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no systemctl
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
    main = runpy.run_path(str(CTL))["main"]
    assert main(["preempt", "--request-id", kind, "--kind", kind, "--json"]) == ASKED
    request = json.loads((contract / "request.json").read_text())
    assert (request["kind"], request["id"]) == (asked, f"{kind}:2")
