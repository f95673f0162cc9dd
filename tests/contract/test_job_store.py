"""JobStore: what people read of a job, and what is live in a pool."""

from __future__ import annotations

from datetime import timedelta

from reprieve.domain.host import HostState
from reprieve.domain.job import CheckpointRef, Counters, Job, JobStatus
from reprieve.domain.lease import Lease, Outcome
from reprieve.domain.order import OrderState
from reprieve.ports.leases import Claim
from reprieve.ports.rows import PutJob
from tests.builders import (
    HOST,
    POOL,
    a_holder,
    a_host,
    a_job,
    a_key,
    a_lease,
    a_notice,
    a_spec,
    an_attempt,
    an_event,
    an_order,
    at,
)
from tests.contract.stores import Stores
from tests.stored import end, note, place, submit, tell


def submitted(stores: Stores, job_id: str = "job-1") -> tuple[Job, Lease]:
    job = a_job(job_id)
    submit(stores.rows, job, a_lease(job))
    return job, a_lease(job)


def claimed(stores: Stores) -> tuple[Job, Lease]:
    """Return a job whose first attempt is held by HOST."""
    job, lease = submitted(stores)
    stores.hosts.adopt(a_host())
    assert stores.leases.claim(lease.key, a_holder()) is Claim.WON
    held = stores.jobs.lease(lease.key)
    assert held
    return job, held


def test_a_submitted_job_and_its_first_lease_read_back_whole(stores: Stores) -> None:
    job = a_job(
        spec=a_spec(
            code="ab" * 32,
            setup=("pip", "install", "."),
            env={"LR": "0.1", "EMPTY": ""},
            secrets={"TOKEN": "arn:aws:secretsmanager:us-east-1:1:secret:x"},
            save_every=timedelta(minutes=7.5),
        ),
        checkpoint=CheckpointRef(100, "jobs/job-1/manifests/000001-000000000100.json"),
        counters=Counters(1, 2, 3, 4),
        next_try_at=at(60.000001),
    )
    lease = a_lease(job)

    submit(stores.rows, job, lease)

    assert stores.jobs.read("job-1") == job
    assert stores.jobs.lease(job.lease_key) == lease


def test_what_was_never_stored_reads_as_nothing(stores: Stores) -> None:
    assert stores.jobs.read("job-9") is None
    assert stores.jobs.lease(a_key("job-9")) is None
    assert stores.jobs.leases([a_key("job-9")]) == {}
    assert list(stores.jobs.attempts("job-9")) == []
    assert list(stores.jobs.events("job-9")) == []


def test_many_leases_are_read_at_once_and_missing_ones_left_out(stores: Stores) -> None:
    wanted = []
    for n in range(120):
        job, _ = submitted(stores, f"job-{n}")
        wanted.append(job.lease_key)

    found = stores.jobs.leases([*wanted, wanted[0], a_key("job-999")])

    assert set(found) == set(wanted)
    assert all(lease.key == key for key, lease in found.items())


def test_the_end_of_a_held_attempt_clears_it_from_its_holders_holds(stores: Stores) -> None:
    job, held = claimed(stores)

    end(stores.rows, job.to(JobStatus.CANCELLED, reason="operator"), held)

    assert stores.hosts.holds([HOST])[HOST].leases == frozenset()
    other, lease = submitted(stores, "job-2")
    assert stores.leases.claim(lease.key, a_holder()) is Claim.WON
    assert stores.hosts.holds([HOST])[HOST].leases == {other.lease_key}


def test_an_attempts_row_collects_what_is_known_and_forgets_nothing(stores: Stores) -> None:
    note(stores.rows, an_attempt(2, instance_id=HOST, usd_per_hour=0.526, started_at=at(1)))
    note(stores.rows, an_attempt(1, zone="us-east-1a"))
    note(stores.rows, an_attempt(2, outcome=Outcome.FINISHED, last_step=0))

    assert stores.jobs.attempts("job-1") == [
        an_attempt(1, zone="us-east-1a"),
        an_attempt(
            2,
            instance_id=HOST,
            usd_per_hour=0.526,
            started_at=at(1),
            outcome=Outcome.FINISHED,
            last_step=0,
        ),
    ]


def test_the_timeline_is_in_order_of_time_and_then_of_telling(stores: Stores) -> None:
    same_moment = [an_event(5, f"kind-{n}", data={"n": n}) for n in range(40)]

    tell(stores.rows, "job-1", same_moment)
    tell(stores.rows, "job-1", [an_event(1), an_event(9, "ended", data={"ok": True})])

    told = stores.jobs.events("job-1")
    assert told[0] == an_event(1)
    assert list(told[1:-1]) == same_moment
    assert told[-1] == an_event(9, "ended", data={"ok": True})


def test_only_what_is_not_over_is_listed_as_live(stores: Stores) -> None:
    running, _ = submitted(stores, "job-1")
    done, done_lease = submitted(stores, "job-2")
    stores.rows.commit([PutJob(running.to(JobStatus.RUNNING, reason="started"))])
    end(stores.rows, done.to(JobStatus.SUCCEEDED, reason="done"), done_lease)
    stores.hosts.adopt(a_host("i-1"))
    stores.hosts.adopt(a_host("i-2"))
    stores.hosts.advance("i-1", HostState.DRAINING, reason="notice", notice=a_notice())
    stores.hosts.advance("i-2", HostState.GONE, reason="terminated")
    for n, state in enumerate(OrderState, start=1):
        place(stores.rows, an_order(attempt=n, state=state))
    stores.hosts.adopt(a_host("i-3", pool="large"))

    live = stores.jobs.live(POOL)

    assert live.jobs == (("job-1", JobStatus.RUNNING),)
    assert live.hosts == (("i-1", HostState.DRAINING),)
    assert live.orders == (("job-1", 1), ("job-1", 4))


def test_a_long_list_of_live_entries_is_read_to_its_end(stores: Stores) -> None:
    long_reason = "r" * 1000
    for n in range(30):
        stores.hosts.adopt(a_host(f"i-{n:02d}", reason=long_reason))

    assert len(stores.jobs.live(POOL).hosts) == 30
