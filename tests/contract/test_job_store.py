"""JobStore: one writer at a time per job, and an attempt that ends ends everywhere or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve.domain.errors import StaleError
from reprieve.domain.host import HostState
from reprieve.domain.job import CheckpointRef, Counters, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState, Outcome, Phase
from reprieve.domain.order import OrderState
from reprieve.ports.leases import Claim, Progress
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


def submitted(stores: Stores, job_id: str = "job-1") -> tuple[Job, Lease]:
    job = a_job(job_id)
    stores.jobs.submit(job, a_lease(job))
    return job, a_lease(job)


def claimed(stores: Stores) -> tuple[Job, Lease]:
    """Return a job whose first attempt is held by HOST."""
    job, lease = submitted(stores)
    stores.hosts.adopt(a_host())
    assert stores.leases.claim(lease.key, a_holder()) is Claim.WON
    held = stores.jobs.lease(lease.key)
    assert held
    return job, held


def requeued(job: Job) -> tuple[Job, Lease]:
    """Return the job as it goes to its next attempt, and that attempt's lease."""
    following = replace(job, attempt=job.attempt + 1, token="t2", status=JobStatus.QUEUED)
    return following, a_lease(following, sealed_attempt=1, base="m1")


def everything(stores: Stores) -> object:
    return (
        stores.jobs.read("job-1"),
        stores.jobs.leases([a_key(), a_key(attempt=2, token="t2")]),
        stores.jobs.attempts("job-1"),
        stores.hosts.holds([HOST]),
    )


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

    stores.jobs.submit(job, lease)

    assert stores.jobs.read("job-1") == job
    assert stores.jobs.lease(job.lease_key) == lease


def test_a_second_job_under_a_taken_id_is_refused_and_leaves_no_lease(stores: Stores) -> None:
    first, _ = submitted(stores)
    second = a_job(token="t9")

    with pytest.raises(StaleError):
        stores.jobs.submit(second, a_lease(second))

    assert stores.jobs.read("job-1") == first
    assert stores.jobs.lease(second.lease_key) is None


def test_a_submit_whose_answer_was_lost_may_be_said_again(stores: Stores) -> None:
    job, lease = submitted(stores)
    stores.jobs.update(job.to(JobStatus.STARTING, reason="claimed"))

    stores.jobs.submit(job, lease)

    moved = stores.jobs.read("job-1")
    assert moved
    assert moved.status is JobStatus.STARTING


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


def test_an_update_needs_the_version_that_was_read(stores: Stores) -> None:
    job, _ = submitted(stores)

    running = stores.jobs.update(job.to(JobStatus.RUNNING, reason="started"))
    with pytest.raises(StaleError):
        stores.jobs.update(job.to(JobStatus.CANCELLED, reason="operator"))

    assert running.version == job.version + 1
    assert stores.jobs.read("job-1") == running


def test_a_job_without_a_row_cannot_be_updated(stores: Stores) -> None:
    with pytest.raises(StaleError):
        stores.jobs.update(a_job())

    assert stores.jobs.read("job-1") is None


def test_the_end_of_an_attempt_closes_its_lease_and_arms_the_next(stores: Stores) -> None:
    job, held = claimed(stores)
    following, successor = requeued(job)

    stored = stores.jobs.end_attempt(
        following, held, successor=successor, ended=an_attempt(cause=Cause.NOTICE, steps_lost=3)
    )

    assert stored == replace(following, version=job.version + 1)
    assert stores.jobs.read("job-1") == stored
    closed = stores.jobs.lease(held.key)
    assert closed == replace(held, state=LeaseState.CLOSED, beat=held.beat + 1)
    assert stores.jobs.lease(successor.key) == successor
    assert stores.jobs.attempts("job-1") == [an_attempt(cause=Cause.NOTICE, steps_lost=3)]


def test_the_end_of_a_held_attempt_clears_it_from_its_holders_holds(stores: Stores) -> None:
    job, held = claimed(stores)

    stores.jobs.end_attempt(
        job.to(JobStatus.CANCELLED, reason="operator"), held, successor=None, ended=an_attempt()
    )

    assert stores.hosts.holds([HOST])[HOST].leases == frozenset()
    other, lease = submitted(stores, "job-2")
    assert stores.leases.claim(lease.key, a_holder()) is Claim.WON
    assert stores.hosts.holds([HOST])[HOST].leases == {other.lease_key}


def test_an_unclaimed_attempt_ends_without_a_holder(stores: Stores) -> None:
    job, lease = submitted(stores)

    stores.jobs.end_attempt(
        job.to(JobStatus.CANCELLED, reason="operator"), lease, successor=None, ended=an_attempt()
    )

    closed = stores.jobs.lease(lease.key)
    assert closed
    assert closed.state is LeaseState.CLOSED


def another_version(stores: Stores, job: Job, held: Lease) -> tuple[Job, Lease, Lease]:
    stores.jobs.update(job.to(JobStatus.RUNNING, reason="started"))
    following, successor = requeued(job)
    return following, held, successor


def another_beat(stores: Stores, job: Job, held: Lease) -> tuple[Job, Lease, Lease]:
    stores.leases.renew(held.key, a_holder(), Progress(Phase.RUNNING))
    following, successor = requeued(job)
    return following, held, successor


def closed_before(stores: Stores, job: Job, held: Lease) -> tuple[Job, Lease, Lease]:
    job = stores.jobs.end_attempt(job, held, successor=None, ended=an_attempt())
    following, successor = requeued(job)
    return following, replace(held, beat=held.beat + 1), successor


def lease_missing(stores: Stores, job: Job, held: Lease) -> tuple[Job, Lease, Lease]:
    following, successor = requeued(job)
    return following, replace(held, key=a_key(token="never")), successor


def successor_exists(stores: Stores, job: Job, held: Lease) -> tuple[Job, Lease, Lease]:
    following, successor = requeued(job)
    second = stores.jobs.end_attempt(following, held, successor=successor, ended=an_attempt())
    return second, successor, a_lease(job)


@pytest.mark.parametrize(
    "broken", [another_version, another_beat, closed_before, lease_missing, successor_exists]
)
def test_an_end_with_one_broken_condition_changes_nothing_at_all(
    stores: Stores, broken: Callable[[Stores, Job, Lease], tuple[Job, Lease, Lease]]
) -> None:
    job, lease, successor = broken(stores, *claimed(stores))
    before = everything(stores)

    with pytest.raises(StaleError):
        stores.jobs.end_attempt(job, lease, successor=successor, ended=an_attempt(steps_lost=99))

    assert everything(stores) == before


def test_an_attempts_row_collects_what_is_known_and_forgets_nothing(stores: Stores) -> None:
    stores.jobs.note_attempt(an_attempt(2, instance_id=HOST, usd_per_hour=0.526, started_at=at(1)))
    stores.jobs.note_attempt(an_attempt(1, zone="us-east-1a"))
    stores.jobs.note_attempt(an_attempt(2, outcome=Outcome.FINISHED, last_step=0))

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


def test_an_event_said_twice_is_stored_once(stores: Stores) -> None:
    noticed = an_event(2, "noticed", attempt=1, data={"channel": "event", "lead": 120.5})

    stores.jobs.add_events("job-1", [noticed, noticed])
    stores.jobs.add_events("job-1", [noticed])

    assert stores.jobs.events("job-1") == [noticed]


def test_the_timeline_is_in_order_of_time_and_then_of_telling(stores: Stores) -> None:
    same_moment = [an_event(5, f"kind-{n}", data={"n": n}) for n in range(40)]

    stores.jobs.add_events("job-1", same_moment)
    stores.jobs.add_events("job-1", [an_event(1), an_event(9, "ended", data={"ok": True})])

    told = stores.jobs.events("job-1")
    assert told[0] == an_event(1)
    assert list(told[1:-1]) == same_moment
    assert told[-1] == an_event(9, "ended", data={"ok": True})


def test_only_what_is_not_over_is_listed_as_live(stores: Stores) -> None:
    running, _ = submitted(stores, "job-1")
    done, done_lease = submitted(stores, "job-2")
    stores.jobs.update(running.to(JobStatus.RUNNING, reason="started"))
    stores.jobs.end_attempt(
        done.to(JobStatus.SUCCEEDED, reason="done"), done_lease, successor=None, ended=an_attempt()
    )
    stores.hosts.adopt(a_host("i-1"))
    stores.hosts.adopt(a_host("i-2"))
    stores.hosts.advance("i-1", HostState.DRAINING, reason="notice", notice=a_notice())
    stores.hosts.advance("i-2", HostState.GONE, reason="terminated")
    for n, state in enumerate(OrderState, start=1):
        stores.orders.place(an_order(attempt=n, state=state))
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


def test_arming_a_parked_job_again_writes_both_rows_or_neither(stores: Stores) -> None:
    job, held = claimed(stores)
    parked = replace(job, status=JobStatus.PARKED)
    closed = stores.jobs.end_attempt(parked, held, successor=None, ended=an_attempt())
    following, successor = requeued(closed)
    armed = stores.jobs.arm(following, successor)
    assert stores.jobs.read(job.id) == armed
    assert stores.jobs.lease(successor.key) == successor
    with pytest.raises(StaleError):
        stores.jobs.arm(following, a_lease(following, key=a_key(attempt=2, token="t3")))
    assert stores.jobs.lease(a_key(attempt=2, token="t3")) is None
