"""HostStore: hosts are adopted once, and only walk forward."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from reprieve.domain.host import HostState
from reprieve.domain.lease import Holds
from reprieve.domain.notice import Channel, Notice, NoticeKind
from reprieve.ports.leases import Claim
from tests.builders import HOST, a_holder, a_host, a_job, a_lease, a_notice, at
from tests.contract.stores import Stores
from tests.stored import submit


def stored_notice(stores: Stores) -> Notice | None:
    return stores.hosts.read([HOST])[HOST].notice


def test_an_adopted_host_reads_back_whole_and_holds_nothing(stores: Stores) -> None:
    host = a_host(
        notice=a_notice(NoticeKind.REBALANCE), usd_per_hour=0.4321, reason="launched for job-1"
    )

    assert stores.hosts.adopt(host)

    assert stores.hosts.read([HOST]) == {HOST: host}
    assert stores.hosts.holds([HOST]) == {HOST: Holds(HOST)}


def test_a_second_adoption_is_refused_and_writes_nothing(stores: Stores) -> None:
    stores.hosts.adopt(a_host())
    job = a_job()
    submit(stores.rows, job, a_lease(job))
    assert stores.leases.claim(job.lease_key, a_holder()) is Claim.WON
    stores.leases.idle(HOST)

    assert not stores.hosts.adopt(a_host(state=HostState.RETIRING, pool="large"))

    assert stores.hosts.read([HOST]) == {HOST: a_host()}
    assert stores.hosts.holds([HOST])[HOST] == Holds(HOST, frozenset({job.lease_key}), 1)


def test_strangers_are_absent_from_every_read(stores: Stores) -> None:
    stores.hosts.adopt(a_host())

    assert set(stores.hosts.read([HOST, "i-9", HOST])) == {HOST}
    assert set(stores.hosts.holds([HOST, "i-9", HOST])) == {HOST}
    assert stores.hosts.read([]) == {}


@pytest.mark.parametrize("state", list(HostState))
def test_a_stranger_is_not_advanced_and_nothing_is_written(
    stores: Stores, state: HostState
) -> None:
    assert stores.hosts.advance(HOST, state, reason="?", notice=a_notice()) is None

    assert stores.hosts.read([HOST]) == {}


@pytest.mark.parametrize("old", list(HostState))
@pytest.mark.parametrize("new", list(HostState))
def test_a_host_only_moves_forward(stores: Stores, old: HostState, new: HostState) -> None:
    stores.hosts.adopt(a_host(state=old, reason="before"))

    after = stores.hosts.advance(HOST, new, reason="after")

    further = a_host(state=old).may_become(new)
    assert after == (
        a_host(state=new, reason="after") if further else a_host(state=old, reason="before")
    )
    assert stores.hosts.read([HOST]) == {HOST: after}


def test_a_notice_is_stored_with_the_move(stores: Stores) -> None:
    stores.hosts.adopt(a_host())

    after = stores.hosts.advance(HOST, HostState.DRAINING, reason="interruption", notice=a_notice())

    assert after == a_host(state=HostState.DRAINING, reason="interruption", notice=a_notice())


def test_a_notice_is_stored_for_a_host_that_is_further_already(stores: Stores) -> None:
    stores.hosts.adopt(a_host(state=HostState.RETIRING))

    after = stores.hosts.advance(HOST, HostState.DRAINING, reason="interruption", notice=a_notice())

    assert after == a_host(state=HostState.RETIRING, notice=a_notice())


def test_a_warning_replaces_advice_and_advice_never_a_warning(stores: Stores) -> None:
    stores.hosts.adopt(a_host())
    advice = a_notice(NoticeKind.REBALANCE)

    stores.hosts.advance(HOST, HostState.READY, reason="", notice=advice)
    assert stored_notice(stores) == advice
    stores.hosts.advance(HOST, HostState.DRAINING, reason="", notice=a_notice())
    assert stored_notice(stores) == a_notice()
    stores.hosts.advance(HOST, HostState.READY, reason="", notice=advice)
    assert stored_notice(stores) == a_notice()


def test_of_two_warnings_the_first_stays_with_the_earlier_reclaim_time(stores: Stores) -> None:
    stores.hosts.adopt(a_host())
    by_metadata = a_notice(channel=Channel.METADATA, noticed_at=at(1), reclaimed_at=at(110))

    stores.hosts.advance(HOST, HostState.DRAINING, reason="", notice=a_notice())
    stores.hosts.advance(HOST, HostState.DRAINING, reason="", notice=by_metadata)

    notice = stored_notice(stores)
    assert notice
    assert (notice.channel, notice.reclaimed_at) == (Channel.EVENT, at(110))


def test_notices_that_arrive_at_once_leave_the_most_urgent(stores: Stores) -> None:
    stores.hosts.adopt(a_host())
    notices = [
        a_notice(NoticeKind.REBALANCE),
        *(a_notice(reclaimed_at=at(120) - timedelta(seconds=n)) for n in range(3)),
    ]

    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda notice: stores.hosts.advance(
                    HOST, HostState.DRAINING, reason="", notice=notice
                ),
                notices,
            )
        )

    notice = stored_notice(stores)
    assert notice
    assert (notice.kind, notice.reclaimed_at) == (NoticeKind.INTERRUPTION, at(118))


def test_many_hosts_are_read_at_once(stores: Stores) -> None:
    ids = [f"i-{n:03d}" for n in range(120)]
    for instance_id in ids:
        stores.hosts.adopt(a_host(instance_id))

    assert set(stores.hosts.read(ids)) == set(ids)
    assert set(stores.hosts.holds(ids)) == set(ids)
