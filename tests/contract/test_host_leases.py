"""HostLeases: one holder at a time, one base per attempt, and no write that comes too late."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reprieve.domain.errors import LeaseLostError, NotAdoptedError
from reprieve.domain.host import HostState
from reprieve.domain.job import Job
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, LeaseState, Outcome, Phase
from reprieve.ports.leases import Claim, Progress
from tests.builders import HOST, OTHER_HOST, a_holder, a_host, a_job, a_key, a_lease
from tests.contract.stores import Stores
from tests.stored import end, submit

ME = a_holder()
REBOOTED = a_holder(boot_id="b0000002-0000-4000-8000-000000000000")
OTHER = a_holder(OTHER_HOST)
RUNNING = Progress(Phase.RUNNING)


def armed(stores: Stores, job_id: str = "job-1") -> LeaseKey:
    """Return the FREE lease of a new job."""
    job = a_job(job_id)
    submit(stores.rows, job, a_lease(job))
    return job.lease_key


def held(stores: Stores, holder: Holder = ME) -> LeaseKey:
    """Return a lease that an adopted host holds."""
    key = armed(stores)
    stores.hosts.adopt(a_host(holder.instance_id))
    assert stores.leases.claim(key, holder) is Claim.WON
    return key


def row(stores: Stores, key: LeaseKey) -> Lease:
    lease = stores.jobs.lease(key)
    assert lease
    return lease


def holds(stores: Stores, instance_id: str = HOST) -> frozenset[LeaseKey]:
    return stores.hosts.holds([instance_id])[instance_id].leases


def release(
    stores: Stores,
    key: LeaseKey,
    holder: Holder = ME,
    outcome: Outcome = Outcome.INTERRUPTED,
    progress: Progress = RUNNING,
) -> None:
    cause = Cause.DONE if outcome is Outcome.FINISHED else Cause.NOTICE
    stores.leases.release(
        key, holder, outcome=outcome, cause=cause, exit_code=None, progress=progress
    )


def next_attempt(stores: Stores, key: LeaseKey) -> LeaseKey:
    """End the attempt on evidence and arm the next one, as functions do."""
    job = stores.jobs.read(key.job)
    assert job
    following = replace(job, attempt=key.attempt + 1, token="t2")
    end(stores.rows, following, row(stores, key), successor=a_lease(following))
    return following.lease_key


# Claim


def test_a_claim_takes_the_lease_and_shows_in_holds(stores: Stores) -> None:
    key = held(stores)

    lease = row(stores, key)
    assert (lease.state, lease.holder, lease.phase, lease.beat) == (
        LeaseState.HELD,
        ME,
        Phase.CLAIMED,
        1,
    )
    assert holds(stores) == {key}


def test_of_sixteen_hosts_that_claim_at_once_one_wins(stores: Stores) -> None:
    key = armed(stores)
    hosts = [f"i-{n:017x}" for n in range(16)]
    for instance_id in hosts:
        stores.hosts.adopt(a_host(instance_id))

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda i: stores.leases.claim(key, a_holder(i)), hosts))

    assert sorted(results) == [Claim.TAKEN] * 15 + [Claim.WON]
    winner = hosts[results.index(Claim.WON)]
    assert row(stores, key).holder == a_holder(winner)
    assert [i for i in hosts if holds(stores, i)] == [winner]


def test_a_repeated_claim_of_the_same_boot_counts_as_won(stores: Stores) -> None:
    key = held(stores)
    before = row(stores, key)

    assert stores.leases.claim(key, ME) is Claim.WON

    assert row(stores, key) == before


def test_a_rebooted_host_has_not_won_what_it_held_before(stores: Stores) -> None:
    assert stores.leases.claim(held(stores), REBOOTED) is Claim.TAKEN


def test_a_lease_that_is_done_or_closed_is_taken_even_for_its_last_holder(stores: Stores) -> None:
    key = held(stores)
    release(stores, key)
    assert stores.leases.claim(key, ME) is Claim.TAKEN

    next_attempt(stores, key)
    assert stores.leases.claim(key, ME) is Claim.TAKEN


def test_a_ticket_without_a_row_is_missing_and_creates_none(stores: Stores) -> None:
    stores.hosts.adopt(a_host())
    armed(stores)

    for key in (a_key("job-9"), a_key(attempt=2), a_key(token="other")):
        assert stores.leases.claim(key, ME) is Claim.MISSING
        assert stores.jobs.lease(key) is None
    assert holds(stores) == frozenset()


def test_an_unadopted_host_is_not_ready_and_leaves_no_trace(stores: Stores) -> None:
    key = armed(stores)

    assert stores.leases.claim(key, ME) is Claim.NOT_READY

    assert row(stores, key).state is LeaseState.FREE
    assert stores.hosts.holds([HOST]) == {}


@pytest.mark.parametrize("state", [HostState.DRAINING, HostState.RETIRING, HostState.GONE])
def test_a_host_that_was_told_to_go_takes_no_work(stores: Stores, state: HostState) -> None:
    key = armed(stores)
    stores.hosts.adopt(a_host())
    stores.hosts.advance(HOST, state, reason="told to go")

    assert stores.leases.claim(key, ME) is Claim.NOT_READY

    assert row(stores, key).state is LeaseState.FREE
    assert holds(stores) == frozenset()


def test_a_host_that_holds_one_lease_takes_no_second(stores: Stores) -> None:
    first = held(stores)
    second = armed(stores, "job-2")

    assert stores.leases.claim(second, ME) is Claim.NOT_READY

    assert row(stores, second).state is LeaseState.FREE
    assert holds(stores) == {first}


def test_the_leases_answer_counts_before_the_hosts(stores: Stores) -> None:
    key = held(stores)
    stores.hosts.advance(HOST, HostState.DRAINING, reason="notice")

    assert stores.leases.claim(key, ME) is Claim.WON
    assert stores.leases.claim(key, OTHER) is Claim.TAKEN


# Renew


def test_a_renewal_raises_the_beat_and_returns_the_whole_row(stores: Stores) -> None:
    key = held(stores)

    lease = stores.leases.renew(
        key,
        ME,
        Progress(Phase.SAVING, 20, restored_step=0, committed_step=10, committed_manifest="m10"),
    )

    assert lease == row(stores, key)
    assert lease.spec == a_job().spec
    assert (lease.beat, lease.phase, lease.step) == (2, Phase.SAVING, 20)
    assert (lease.restored_step, lease.committed_step, lease.committed_manifest) == (0, 10, "m10")


def test_a_renewal_leaves_alone_what_it_does_not_know(stores: Stores) -> None:
    key = held(stores)
    stores.leases.renew(key, ME, Progress(Phase.RUNNING, 20, committed_step=10))

    lease = stores.leases.renew(key, ME, RUNNING)

    assert (lease.beat, lease.step, lease.committed_step) == (3, 20, 10)


Write = Callable[[Stores, LeaseKey, Holder], object]
WRITES: list[Write] = [
    lambda stores, key, holder: stores.leases.renew(key, holder, RUNNING),
    lambda stores, key, holder: stores.leases.seal(key, holder, None),
    lambda stores, key, holder: release(stores, key, holder, Outcome.FINISHED),
]
by_write = pytest.mark.parametrize("write", WRITES, ids=["renew", "seal", "release"])


@by_write
def test_a_lease_held_by_another_refuses_every_write(stores: Stores, write: Write) -> None:
    key = held(stores)
    before = row(stores, key)

    for stranger in (OTHER, REBOOTED):
        with pytest.raises(LeaseLostError):
            write(stores, key, stranger)

    assert row(stores, key) == before


@by_write
def test_a_free_or_missing_lease_refuses_every_write(stores: Stores, write: Write) -> None:
    free = armed(stores)

    for key in (free, a_key("job-9")):
        with pytest.raises(LeaseLostError):
            write(stores, key, ME)

    assert row(stores, free) == a_lease()
    assert stores.jobs.lease(a_key("job-9")) is None


@by_write
def test_a_late_host_cannot_reach_the_row_of_the_next_attempt(stores: Stores, write: Write) -> None:
    old = held(stores)
    new = next_attempt(stores, old)
    stores.hosts.adopt(a_host(OTHER_HOST))
    assert stores.leases.claim(new, OTHER) is Claim.WON
    before = row(stores, new), row(stores, old), holds(stores, OTHER_HOST)

    with pytest.raises(LeaseLostError):
        write(stores, old, ME)
    with pytest.raises(LeaseLostError):
        write(stores, new, ME)

    assert (row(stores, new), row(stores, old), holds(stores, OTHER_HOST)) == before


# Seal


@pytest.mark.parametrize("base", [None, "jobs/job-1/manifests/000001-000000000100.json"])
def test_a_seal_fixes_the_base_and_may_be_repeated(stores: Stores, base: str | None) -> None:
    key = held(stores)

    first = stores.leases.seal(key, ME, base)
    again = stores.leases.seal(key, ME, base)

    for lease in (first, again):
        assert lease.sealed
        assert (lease.sealed_attempt, lease.base, lease.phase) == (1, base, Phase.SEALED)
    assert again.beat > first.beat


@pytest.mark.parametrize(("first", "second"), [("m1", "m2"), ("m1", None), (None, "m2")])
def test_a_second_seal_with_another_base_is_shown_the_first(
    stores: Stores, first: str | None, second: str | None
) -> None:
    key = held(stores)
    stores.leases.seal(key, ME, first)
    before = row(stores, key)

    assert stores.leases.seal(key, ME, second) == before

    assert row(stores, key) == before


def test_a_seal_replaces_the_base_that_the_attempt_inherited(stores: Stores) -> None:
    job = a_job(attempt=2, token="t2")
    submit(stores.rows, job, a_lease(job, sealed_attempt=1, base="m1"))
    stores.hosts.adopt(a_host())
    stores.leases.claim(job.lease_key, ME)

    lease = stores.leases.seal(job.lease_key, ME, None)

    assert (lease.sealed_attempt, lease.base) == (2, None)


# Release


def test_a_release_writes_the_outcome_and_frees_the_host_in_one_step(stores: Stores) -> None:
    key = held(stores)

    stores.leases.release(
        key,
        ME,
        outcome=Outcome.FAILED,
        cause=Cause.CRASH,
        exit_code=0,
        progress=Progress(Phase.UPLOADING, 30, committed_step=30, committed_manifest="m30"),
        detail="ZeroDivisionError",
    )

    lease = row(stores, key)
    assert (lease.state, lease.outcome, lease.cause) == (
        LeaseState.DONE,
        Outcome.FAILED,
        Cause.CRASH,
    )
    assert (lease.exit_code, lease.detail, lease.beat) == (0, "ZeroDivisionError", 2)
    assert (lease.step, lease.committed_step, lease.committed_manifest) == (30, 30, "m30")
    assert lease.holder == ME
    assert holds(stores) == frozenset()


def test_a_repeated_release_changes_nothing(stores: Stores) -> None:
    key = held(stores)
    release(stores, key, outcome=Outcome.FINISHED)
    before = row(stores, key)

    release(stores, key, outcome=Outcome.FINISHED)

    assert row(stores, key) == before


def test_a_release_whose_answer_was_lost_may_be_repeated_after_functions_closed_it(
    stores: Stores,
) -> None:
    key = held(stores)
    release(stores, key, outcome=Outcome.FINISHED)
    next_attempt(stores, key)

    release(stores, key, outcome=Outcome.FINISHED)


def test_a_lease_closed_before_its_release_is_lost(stores: Stores) -> None:
    key = held(stores)
    next_attempt(stores, key)

    with pytest.raises(LeaseLostError):
        release(stores, key, outcome=Outcome.FINISHED)

    assert row(stores, key).outcome is None


def test_after_a_reboot_the_host_may_only_say_interrupted(stores: Stores) -> None:
    key = held(stores)

    for outcome in (Outcome.FINISHED, Outcome.FAILED):
        with pytest.raises(LeaseLostError):
            release(stores, key, REBOOTED, outcome)
    release(stores, key, REBOOTED)
    release(stores, key, REBOOTED)

    lease = row(stores, key)
    assert (lease.state, lease.outcome, lease.holder) == (
        LeaseState.DONE,
        Outcome.INTERRUPTED,
        ME,
    )
    assert holds(stores) == frozenset()


def test_no_other_instance_may_say_interrupted(stores: Stores) -> None:
    key = held(stores)

    for stranger in (OTHER, Holder(HOST[:-1], ME.boot_id)):
        with pytest.raises(LeaseLostError):
            release(stores, key, stranger)

    assert row(stores, key).state is LeaseState.HELD
    assert holds(stores) == {key}


def test_a_released_host_takes_the_next_ticket(stores: Stores) -> None:
    release(stores, held(stores))
    second = armed(stores, "job-2")

    assert stores.leases.claim(second, ME) is Claim.WON
    assert holds(stores) == {second}


# Idle and HOLDS


def test_an_idle_beat_rises_and_says_what_is_held(stores: Stores) -> None:
    key = held(stores)

    first = stores.leases.idle(HOST)
    second = stores.leases.idle(HOST)

    assert (first.beat, second.beat) == (1, 2)
    assert first.leases == {key}
    assert stores.hosts.holds([HOST])[HOST] == second


def test_an_unadopted_host_is_told_so_and_creates_nothing(stores: Stores) -> None:
    with pytest.raises(NotAdoptedError):
        stores.leases.idle(HOST)

    assert stores.hosts.holds([HOST]) == {}


def test_a_lost_lease_is_dropped_from_holds_alone(stores: Stores) -> None:
    key = held(stores)

    stores.leases.drop_hold(HOST, a_key("job-9"))
    assert holds(stores) == {key}

    stores.leases.drop_hold(HOST, key)
    stores.leases.drop_hold(HOST, key)

    assert holds(stores) == frozenset()
    assert row(stores, key).state is LeaseState.HELD
    assert stores.leases.idle(HOST).beat == 1


def test_dropping_a_hold_adopts_no_stranger(stores: Stores) -> None:
    stores.leases.drop_hold(HOST, a_key())

    assert stores.hosts.holds([HOST]) == {}
    with pytest.raises(NotAdoptedError):
        stores.leases.idle(HOST)


def test_ending_a_strangers_lease_adopts_no_stranger(stores: Stores) -> None:
    job: Job = a_job()
    lease = a_lease(job, state=LeaseState.HELD, holder=ME, beat=1)
    submit(stores.rows, job, lease)

    end(stores.rows, job, lease)

    assert stores.hosts.holds([HOST]) == {}
    with pytest.raises(NotAdoptedError):
        stores.leases.idle(HOST)
