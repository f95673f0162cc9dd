"""The agent killed with SIGKILL in every stage of an attempt, by itself, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve.adapters import keys
from reprieve.domain.clock import NoticeClock
from reprieve.domain.lease import Cause, LeaseKey, LeaseState, Outcome
from reprieve_agent import processes
from reprieve_agent.clock import boot_seconds
from reprieve_agent.state import Stage
from reprieve_agent.supervisor import marker
from tests.agent.harness import chain_job, soon, wait_until
from tests.agent.test_agent_process import INSTANCE, Account, AgentProcess, account, address
from tests.contract.stores import TABLE

__all__ = ["account", "address"]  # fixtures

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

PROGRAM = Path(__file__).with_name("crashing_agent.py")
NOTICE_SECONDS = 24.0
SHORT_NOTICE_SECONDS = 6.0
PATIENCE_SECONDS = 60.0
WAY_THROUGH = [
    *(Stage.CLAIMING, Stage.CLAIMED, Stage.PREPARING, Stage.SEALING, Stage.STARTING),
    *(Stage.RUNNING, "RUNNING+request", Stage.CLOSING, Stage.RELEASING),
]


class Mortal(AgentProcess):
    """An agent that starts again whenever it has killed itself."""

    def __init__(self, account: Account, folder: Path) -> None:
        super().__init__(account, folder, NOTICE_SECONDS)
        self.record = folder / "died.txt"

    def close(self) -> None:
        """End it in the middle of its poll for work: what is asked for here is over."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.metadata.close()

    @property
    def died(self) -> list[str]:
        return self.record.read_text().split() if self.record.exists() else []


@pytest.fixture
def mortal(account: Account, tmp_path: Path) -> Iterator[Mortal]:
    mortal = Mortal(account, tmp_path / "host")
    yield mortal
    mortal.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_attempt_survives_an_agent_that_dies_in_every_stage(
    account: Account, mortal: Mortal, when: str
) -> None:
    key = account.submit(chain_job(TOTAL=100_000, PAUSE=0.05))
    mortal.start(str(PROGRAM), when, str(mortal.record))
    wait_until(lambda: (account.lease(key).step or 0) >= 3, "training", PATIENCE_SECONDS)
    mortal.metadata.interrupt(time=soon(NOTICE_SECONDS))
    wait_until(lambda: account.lease(key).state is LeaseState.DONE, "released", PATIENCE_SECONDS)

    assert mortal.died == WAY_THROUGH
    lease = account.lease(key)
    assert (lease.outcome, lease.cause) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert account.manifests() == [lease.committed_manifest], "committed once"
    assert account.log(key).count("first step 1\n") == 1, "started once"
    log = mortal.log
    asked = {line["request"] for line in log if line["message"] == "asked the job"}
    assert asked == {f"interruption:{INSTANCE}:1"}, "asked for one thing only"
    assert processes.of_job(None, marker(key)) == set()


def test_a_lost_lease_is_given_up_also_by_an_agent_that_dies_over_it(
    account: Account, mortal: Mortal
) -> None:
    key = account.submit(chain_job(TOTAL=100_000, PAUSE=0.05))
    mortal.record.write_text("\n".join(stage for stage in Stage if stage is not Stage.EVICTING))
    mortal.start(str(PROGRAM), "before", str(mortal.record))
    wait_until(lambda: (account.lease(key).step or 0) >= 3, "training", PATIENCE_SECONDS)
    take_away(account, key)
    wait_until(lambda: Stage.EVICTING in mortal.died, "the loss is seen", PATIENCE_SECONDS)
    wait_until(
        lambda: not processes.of_job(None, marker(key)), "the job is ended", PATIENCE_SECONDS
    )
    wait_until(lambda: mortal.job().get("stage") == "IDLE", "the host is free", PATIENCE_SECONDS)

    assert account.manifests() == []
    assert account.lease(key).state is LeaseState.CLOSED


def test_an_agent_that_was_frozen_while_its_lease_was_taken_commits_nothing(
    account: Account, tmp_path: Path
) -> None:
    """Faults 12 and 14."""
    agent = AgentProcess(account, tmp_path / "host", SHORT_NOTICE_SECONDS)
    lease_seconds = NoticeClock.of_seconds(SHORT_NOTICE_SECONDS).lease.total_seconds()
    agent.start()
    assert agent.process
    try:
        key = account.submit(chain_job(TOTAL=100_000, PAUSE=0.05))
        wait_until(lambda: (account.lease(key).step or 0) >= 3, "training", PATIENCE_SECONDS)
        agent.process.send_signal(signal.SIGSTOP)
        frozen = boot_seconds()
        take_away(account, key)
        agent.metadata.interrupt(time=soon(SHORT_NOTICE_SECONDS))
        wait_until(lambda: boot_seconds() > frozen + lease_seconds, "long enough", PATIENCE_SECONDS)
        assert processes.of_job(None, marker(key)), "the job goes on meanwhile"
        agent.process.send_signal(signal.SIGCONT)

        wait_until(
            lambda: not processes.of_job(None, marker(key)), "the job is ended", PATIENCE_SECONDS
        )
    finally:
        agent.process.kill()
        agent.process.wait()
        agent.metadata.close()

    assert account.manifests() == []
    assert account.lease(key).state is LeaseState.CLOSED


def take_away(account: Account, key: LeaseKey) -> None:
    """Do to a lease what the functions do that count its host out."""
    account.client("dynamodb").update_item(
        TableName=TABLE,
        Key=dict(zip(("pk", "sk"), ({"S": part} for part in keys.lease(key)), strict=True)),
        UpdateExpression="SET #state = :closed",
        ExpressionAttributeNames={"#state": "state"},
        ExpressionAttributeValues={":closed": {"S": LeaseState.CLOSED.value}},
    )
