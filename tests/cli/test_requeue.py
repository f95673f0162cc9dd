"""``requeue``: a person's word sends a job on, and says what became of it."""

from __future__ import annotations

from dataclasses import replace

from reprieve.domain.job import JobStatus
from reprieve.domain.lease import LeaseState
from tests.builders import a_held_lease, a_host, a_job, a_lease
from tests.cli.conftest import Cli
from tests.stored import end, submit


def submitted(cli: Cli) -> None:
    job = a_job()
    submit(cli.memory.rows, job, a_lease(job))


def test_a_running_job_is_taken_off_its_host(cli: Cli) -> None:
    submitted(cli)
    job = cli.memory.job_rows["job-1"]
    cli.memory.hosts.adopt(a_host())
    cli.memory.lease_rows[job.lease_key] = a_held_lease(job)
    assert cli("requeue", "job-1") == 0
    assert cli.last_line == "job-1 QUEUED, attempt 2"
    assert cli.memory.lease_rows[job.lease_key].state is LeaseState.CLOSED


def test_a_job_that_needed_you_is_queued_again(cli: Cli) -> None:
    submitted(cli)
    job, lease = cli.memory.job_rows["job-1"], a_lease()
    parked = replace(job, status=JobStatus.PARKED, needs_you=True)
    end(cli.memory.rows, parked, lease)
    assert cli("requeue", "job-1", "--json") == 0
    assert cli.document == {"id": "job-1", "status": "QUEUED", "attempt": 2}
    assert [ticket.attempt for _, ticket in cli.memory.mail.tickets] == [2]


def test_a_job_that_is_over_stays_over(cli: Cli) -> None:
    submitted(cli)
    cli("cancel", "job-1")
    assert cli("requeue", "job-1") == 1
    assert "is over: CANCELLED" in cli.err
