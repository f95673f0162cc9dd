"""``drain``: a person empties a host by the path that EC2's notices take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import HostState
from reprieve.domain.job import JobStatus
from reprieve.domain.lease import Cause, Holder, Outcome, Phase
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.edge.events import announced
from reprieve.ports.leases import Progress
from reprieve.usecases.wiring import Deployment, Ports, UseCases
from reprieve_cli.commands import drain
from tests.builders import HOST, POOL, a_host, a_job, a_lease, an_instance, at
from tests.cli.conftest import Cli, a_pool
from tests.stored import submit

CLOCK = NoticeClock()


def functions(cli: Cli) -> UseCases:
    """Return the deployed functions, over the same memory."""
    memory = cli.memory
    ports = Ports(
        rows=memory.rows,
        jobs=memory.jobs,
        hosts=memory.hosts,
        orders=memory.orders,
        watch=memory.watch,
        fleet=memory.fleet,
        signals=memory.signals,
        mail=memory.mail,
    )
    deployment = Deployment("Reprieve", {POOL: a_pool()}, {"us-east-1a": "subnet-a"}, CLOCK)
    return UseCases(ports, deployment, lambda: at(600))


@pytest.fixture
def busy(cli: Cli) -> Cli:
    """Have a host run a job, and its functions take what is announced."""
    memory = cli.memory
    memory.hosts.adopt(a_host())
    memory.fleet.instances[HOST] = an_instance()
    job, lease = a_job(), a_lease()
    submit(memory.rows, job, lease)
    memory.leases.claim(lease.key, Holder(HOST, "boot"))
    memory.leases.seal(lease.key, Holder(HOST, "boot"), None)
    memory.leases.renew(lease.key, Holder(HOST, "boot"), Progress(Phase.RUNNING, step=5))
    functions(cli).settle(job.id)

    def deliver(event: Mapping[str, Any]) -> None:
        cli.announced.append(event)
        functions(cli).handle_notice(announced(event, CLOCK).notices)

    answering(cli, deliver)
    return cli


def answering(cli: Cli, announce: Callable[[Mapping[str, Any]], None]) -> None:
    cli.find_cloud = lambda: replace(cli.cloud, announce=announce)


def test_the_host_is_asked_for_a_checkpoint_and_a_replacement_is_ordered(busy: Cli) -> None:
    assert busy("drain", HOST) == 0

    assert busy.last_line.startswith(f"{HOST} DRAINING: job-1 by ")
    assert [(n.kind, n.channel) for n in busy.memory.signals.sent] == [
        (NoticeKind.DRAIN, Channel.OPERATOR)
    ]
    assert [(m.job, m.attempt) for m in busy.memory.mail.orders] == [("job-1", 2)]


def test_the_event_names_its_account_and_region_or_it_would_be_foreign(busy: Cli) -> None:
    busy("drain", HOST)

    (event,) = busy.announced
    assert (event["account"], event["region"]) == ("123456789012", "us-east-1")
    assert event["detail"] == {"instance-id": HOST}


def test_a_script_gets_one_document(busy: Cli) -> None:
    assert busy("drain", HOST, "--json") == 0

    assert busy.document["state"] == "DRAINING"
    assert busy.document["notice"]["kind"] == "drain"
    assert busy.document["jobs"] == [{"id": "job-1", "status": "DRAINING", "attempt": 1}]


def test_saying_it_twice_changes_nothing(busy: Cli) -> None:
    busy("drain", HOST)

    assert busy("drain", HOST) == 0
    assert list(busy.memory.order_rows) == [("job-1", 2)]


def test_waiting_ends_when_the_job_has_left_and_the_host_was_told_to_go(
    busy: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = a_lease()

    def hand_over(_seconds: float) -> None:
        """Let the host release, and the sweep come, while the command sleeps."""
        if busy.memory.holds_rows[HOST].leases:
            busy.memory.leases.release(
                lease.key,
                Holder(HOST, "boot"),
                outcome=Outcome.INTERRUPTED,
                cause=Cause.NOTICE,
                exit_code=75,
                progress=Progress(Phase.RUNNING),
            )
            functions(busy).settle(lease.key.job)
        else:
            functions(busy).reconcile()

    monkeypatch.setattr("reprieve_cli.commands.drain.time.sleep", hand_over)
    busy.memory.leases.idle(HOST)

    assert busy("drain", HOST, "--wait") == 0

    assert busy.last_line == f"{HOST} RETIRING: job-1 QUEUED, attempt 2"
    assert busy.memory.fleet.terminated == [HOST]


def test_waiting_for_a_host_that_never_lets_go_ends_too(
    busy: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "EMPTY_SECONDS", 0.0)

    assert busy("drain", HOST, "--wait") == 1
    assert f"{HOST} is DRAINING and holds job-1" in busy.err


def test_nobody_acts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "HEARD_SECONDS", 0.0)
    cli.memory.hosts.adopt(a_host())

    assert cli("drain", HOST) == 1
    assert "docs/operations.md#intake-age" in cli.err


def test_a_host_that_is_idle_has_nothing_to_hand_over(busy: Cli) -> None:
    other = "i-0dd00000000000001"
    busy.memory.hosts.adopt(replace(a_host(), instance_id=other))

    assert busy("drain", other) == 0
    assert busy.last_line == f"{other} DRAINING: nothing to hand over"


@pytest.mark.parametrize("state", [HostState.RETIRING, HostState.GONE])
def test_a_host_that_leaves_already_is_no(cli: Cli, state: HostState) -> None:
    cli.memory.hosts.adopt(replace(a_host(), state=state, reason="no work"))

    assert cli("drain", HOST) == 1
    assert f"{HOST} is {state} already: no work" in cli.err
    assert not cli.announced


def test_a_host_that_is_not_ours_is_bad_input(cli: Cli) -> None:
    assert cli("drain", "i-0ff00000000000099") == 2
    assert "no host i-0ff00000000000099 in stack Reprieve" in cli.err
    assert not cli.announced


# What `hosts` says of them ------------------------------------------------------------------


def test_hosts_shows_what_was_announced_and_when_it_is_due(busy: Cli) -> None:
    busy("drain", HOST)
    busy("hosts")

    assert "DRAINING" in busy.out
    assert "job-1 (drain, due " in " ".join(busy.out.split())
    busy("hosts", "--json")
    (host,) = busy.document["hosts"]
    assert host["notice"]["reclaimed_at"] == at(720).isoformat()


def test_hosts_says_when_nobody_can_tell(busy: Cli) -> None:
    for nth in range(4):
        busy.memory.watch.observe(
            POOL,
            {HOST: "job-1#1#token 3"},
            now=at(60 * nth),
            min_gap=timedelta(seconds=30),
            max_gap=timedelta(seconds=120),
        )

    busy("hosts")
    assert "cannot tell: not heard for 3 sweeps" in " ".join(busy.out.split())
    busy("hosts", "--json")
    (host,) = busy.document["hosts"]
    assert (host["cannot_tell"], host["unheard_sweeps"]) == (True, 3)


def test_a_notice_of_ec2_is_not_made_less_urgent(busy: Cli) -> None:
    notice = Notice(NoticeKind.INTERRUPTION, HOST, at(600), Channel.EVENT, at(720))
    functions(busy).handle_notice([notice])

    assert busy("drain", HOST) == 0
    assert "DRAINING (interruption)" in busy.last_line
    assert busy.memory.jobs.read("job-1").status is JobStatus.DRAINING  # type: ignore[union-attr]
