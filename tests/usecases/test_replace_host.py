"""Orders filled in batches: who gets a host, what EC2's codes lead to, what isn't doubled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reprieve.domain.capacity import Tier
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.host import CapacityPool, HostState, Market
from reprieve.domain.job import JobStatus
from reprieve.domain.needs import Needs
from reprieve.domain.order import FleetAnswer, FleetError, Launched, Order, OrderState, order_for
from reprieve.ports.orders import Listing
from reprieve.ports.rows import PutOrder, Snapshot, Wanted
from reprieve.protocol import OrderMessage
from reprieve.usecases.known_pool import Filled
from tests.builders import SPOT_A, SPOT_B
from tests.usecases.story import Host, Story, a_pool


def refusal(*codes: str, refused: bool = False) -> FleetAnswer:
    return FleetAnswer(errors=tuple(FleetError(code) for code in codes), refused=refused)


def order_of(story: Story, job: str, attempt: int = 1) -> Order:
    return story.memory.order_rows[job, attempt]


def fill(story: Story, *keys: tuple[str, int]) -> list[Filled]:
    return story.uses.replace_host.fill([OrderMessage(*key, "") for key in keys])


def put(story: Story, order: Order) -> None:
    story.memory.rows.commit([PutOrder(order, was=story.memory.order_rows.get(order.key))])


def running(story: Story) -> tuple[str, Host]:
    job = story.submit()
    host = story.launch()
    host.run()
    story.uses.settle(job)
    return job, host


# Batches


def test_like_orders_share_one_plan_and_each_lands_its_own_host() -> None:
    story = Story(pool=a_pool(max_hosts=20, max_usd_per_hour=100.0))
    jobs = [story.submit() for _ in range(12)]

    filled = fill(story, *((job, 1) for job in jobs))

    assert [len(plan.members) for plan in story.memory.fleet.launched] == [10, 2]
    hosts = [instance.instance_id for result in filled for instance in result.launched]
    assert len(set(hosts)) == 12
    assert {order_of(story, job).state for job in jobs} == {OrderState.LANDED}
    assert set(story.memory.host_rows) == set(hosts)
    for job in jobs:
        (tried,) = story.memory.orders.tries(job, 1)
        assert tried.answer
        assert len(tried.answer.instances) == 1


def test_orders_with_other_needs_share_no_plan() -> None:
    story = Story(pool=a_pool(max_hosts=5))
    jobs = [story.submit(), story.submit(needs=Needs(precision="fp8")), story.submit()]

    fill(story, *((job, 1) for job in jobs))

    assert sorted(len(plan.members) for plan in story.memory.fleet.launched) == [1, 2]
    fp8 = next(p for p in story.memory.fleet.launched if p.job == jobs[1])
    assert {override.capacity.type for override in fp8.overrides} == {"g6.xlarge"}


def test_when_hosts_are_short_who_stands_to_lose_most_comes_first() -> None:
    story = Story(pool=a_pool(max_hosts=9, tiers=(Tier.SPOT,)))
    jobs = [story.submit() for _ in range(3)]
    for job, risk in zip(jobs, (10, 500, 90), strict=True):
        row = order_of(story, job)
        put(story, order_for(story.job(job), 1, reason="x", now=row.created_at, at_risk=risk))
    one = FleetAnswer(
        (Launched("i-0bb00000000000001", SPOT_A),),
        (FleetError("InsufficientInstanceCapacity", capacity=SPOT_B),),
    )
    story.memory.fleet.script.append(one)
    for capacity in [CapacityPool(t, z, Market.SPOT) for t in story.pool.types for z in "ab"]:
        story.memory.fleet.empty.add(
            CapacityPool(capacity.type, f"us-east-1{capacity.zone}", Market.SPOT)
        )

    fill(story, *((job, 1) for job in jobs))

    assert order_of(story, jobs[1]).state is OrderState.LANDED
    assert {order_of(story, jobs[n]).state for n in (0, 2)} == {OrderState.UNFILLED}


def test_a_batch_launches_only_what_the_pool_is_short_of() -> None:
    story = Story(pool=a_pool(max_hosts=9))
    first = story.submit()
    idle = story.launch()
    assert order_of(story, first).state is OrderState.LANDED
    second, third = story.submit(), story.submit()
    idle.run()

    filled = fill(story, (second, 1), (third, 1), (first, 1))

    assert len(story.memory.fleet.launched[-1].members) == 2
    assert [bool(result.launched) for result in filled] == [True, True, False]


def test_a_redelivered_batch_replays_one_plan_for_all_its_members() -> None:
    story = Story(pool=a_pool(max_hosts=9))
    jobs = [story.submit() for _ in range(3)]
    story.memory.fleet.script.append(UnknownOutcomeError("timeout"))
    assert all(result.failure for result in fill(story, *((job, 1) for job in jobs)))

    # One member's message alone comes back first: it lands the others as well.
    (filled,) = fill(story, (jobs[1], 1))

    assert len(filled.launched) == 1
    assert {order_of(story, job).state for job in jobs} == {OrderState.LANDED}
    assert len(story.memory.fleet.instances) == 3
    first, again = story.memory.fleet.launched
    assert first == again
    fill(story, (jobs[0], 1), (jobs[2], 1))
    assert len(story.memory.fleet.instances) == 3


def test_of_a_shared_plan_a_cancelled_member_gets_no_lasting_host() -> None:
    story = Story(pool=a_pool(max_hosts=9))
    jobs = [story.submit() for _ in range(2)]
    story.memory.fleet.script.append(UnknownOutcomeError("timeout"))
    fill(story, *((job, 1) for job in jobs))
    story.uses.cancel(jobs[0])

    fill(story, (jobs[1], 1))

    assert order_of(story, jobs[1]).state is OrderState.LANDED
    assert len(story.memory.fleet.instances) == 2
    assert len(story.memory.fleet.terminated) == 1


def test_no_replacement_goes_where_capacity_is_being_taken_back_while_others_have_room() -> None:
    story = Story(pool=a_pool(max_hosts=9))
    _, host = running(story)
    other = story.submit()
    story.fill_orders()
    story.notice(host)

    story.fill_orders()
    fill(story, (other, 1))

    replacement = story.memory.fleet.launched[-1]
    assert {override.capacity.zone for override in replacement.overrides} == {"us-east-1b"}


# What EC2's codes lead to


def test_spot_quota_is_waited_out_once_and_then_bought_on_demand() -> None:
    story = Story(pool=a_pool(max_hosts=5))
    job, host = running(story)
    story.notice(host)
    full = refusal("MaxSpotInstanceCountExceeded")
    story.memory.fleet.script.append(full)

    story.fill_orders()

    order = order_of(story, job, 2)
    assert order.state is OrderState.UNFILLED
    assert order.waited_for_quota
    assert order.failures == 0
    assert order.next_try_at == story.time + timedelta(seconds=135)

    host.release()
    story.uses.settle(job)
    story.gone(host)
    story.later(140)
    story.memory.fleet.script.append(full)
    story.sweep(2)
    (filled,) = [f for f in story.fill_orders() if f.launched]
    assert [i.capacity.market for i in filled.launched] == [Market.ON_DEMAND]
    markets = [plan.market for plan in story.memory.fleet.launched]
    assert markets == [Market.SPOT, Market.SPOT, Market.SPOT, Market.ON_DEMAND]


def test_spot_quota_with_nothing_leaving_skips_every_spot_tier() -> None:
    story = Story(pool=a_pool(tiers=(Tier.SPOT, Tier.SPOT_WIDER, Tier.ON_DEMAND)))
    job = story.submit()
    story.memory.fleet.script.append(refusal("MaxSpotInstanceCountExceeded", refused=True))

    story.fill_orders()

    markets = [plan.market for plan in story.memory.fleet.launched]
    assert markets == [Market.SPOT, Market.ON_DEMAND]
    assert order_of(story, job).state is OrderState.LANDED


def test_quota_everywhere_parks_the_job_with_a_next_try() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script += [
        refusal("MaxSpotInstanceCountExceeded"),
        refusal("VcpuLimitExceeded"),
    ]

    (filled,) = story.fill_orders()

    assert {error.code for error in filled.refused} == {
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
    }
    assert story.job(job).status is JobStatus.PARKED
    assert story.job(job).next_try_at
    assert not story.job(job).needs_you


def test_a_code_that_nobody_knows_is_bounded() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script += [refusal("BrandNewLimit")] * 50

    for _ in range(20):
        story.fill_orders()
        story.sweep()

    assert len(story.memory.fleet.launched) <= 15  # two tiers, every three minutes
    assert story.job(job).status in {JobStatus.PARKED, JobStatus.QUEUED}


def test_a_configuration_fault_is_said_once_more_and_then_needs_you() -> None:
    story = Story()
    job = story.submit()
    wrong = refusal("InvalidLaunchTemplateId.NotFound", refused=True)
    story.memory.fleet.script += [wrong, wrong]

    story.fill_orders()
    assert order_of(story, job).state is OrderState.OPEN
    assert story.memory.mail.orders
    story.fill_orders()

    first, again = story.memory.fleet.launched
    assert first == again
    assert order_of(story, job).needs_you
    assert story.job(job).needs_you


def test_what_spreads_slowly_is_fine_the_second_time() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script.append(refusal("Invalid IAM Instance Profile", refused=True))

    story.fill_orders()
    story.fill_orders()

    assert order_of(story, job).state is OrderState.LANDED


def test_a_throttle_beside_an_instance_is_no_reason_to_launch_again() -> None:
    story = Story()
    job = story.submit()
    came = Launched("i-0bb00000000000001", SPOT_B)
    story.memory.fleet.script.append(FleetAnswer((came,), (FleetError("RequestLimitExceeded"),)))

    (filled,) = story.fill_orders()

    assert filled.launched == (came,)
    assert len(story.memory.fleet.launched) == 1
    assert order_of(story, job).state is OrderState.LANDED


def test_a_throttled_answer_is_replayed_once_and_then_tried_anew() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script += [refusal("RequestLimitExceeded")] * 2

    story.fill_orders()
    story.fill_orders()
    assert order_of(story, job).try_n == 2
    story.fill_orders()

    first, again, anew = story.memory.fleet.launched
    assert first == again
    assert anew.client_token != first.client_token
    assert order_of(story, job).state is OrderState.LANDED


def test_a_token_of_ours_that_was_used_otherwise_never_launches_beside_what_it_launched() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script.append(refusal("IdempotentParameterMismatch", refused=True))
    lost = Launched("i-0bb00000000000001", SPOT_A)
    launch = story.memory.fleet.launch

    def launched_before(plan: object) -> FleetAnswer:
        story.memory.fleet.start(lost, plan)  # type: ignore[arg-type]
        return launch(plan)  # type: ignore[arg-type]

    story.memory.fleet.launch = launched_before  # type: ignore[method-assign]
    (filled,) = story.fill_orders()

    assert filled.launched == (lost,)
    assert order_of(story, job).state is OrderState.LANDED


def test_our_own_defect_is_named_and_told_to_a_person_when_it_stays() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script += [refusal("IdempotentParameterMismatch", refused=True)] * 2

    story.fill_orders()

    assert order_of(story, job).needs_you
    assert "a defect of ours" in order_of(story, job).outcome
    assert [plan.market for plan in story.memory.fleet.launched] == [Market.SPOT, Market.SPOT]


def test_a_plan_whose_token_may_be_forgotten_is_looked_for_by_its_tag_first() -> None:
    story = Story()
    job = story.submit()
    story.memory.fleet.script.append(UnknownOutcomeError("timeout"))
    story.fill_orders()
    (plan,) = story.memory.fleet.launched
    lost = Launched("i-0bb00000000000001", SPOT_A)
    story.memory.fleet.start(lost, plan)
    story.later(11 * 60)

    (filled,) = story.fill_orders()

    assert filled.launched == (lost,)
    assert story.memory.fleet.launched == [plan]
    assert order_of(story, job).state is OrderState.LANDED


def test_a_type_that_a_zone_lacks_is_not_asked_for_again_for_hours() -> None:
    story = Story()
    story.submit()
    came = Launched("i-0bb00000000000001", SPOT_B)
    error = FleetError("Unsupported", capacity=SPOT_A)
    story.memory.fleet.script.append(FleetAnswer((came,), (error,)))

    story.fill_orders()

    cold = story.memory.orders.listing(story.pool.name).cold
    assert cold[SPOT_A].until == story.time + timedelta(hours=6)


# Supply that is none, orders that come back, spares


def test_an_idle_host_that_cannot_hold_the_job_is_no_reason_not_to_launch() -> None:
    story = Story(pool=a_pool(types=("g5.xlarge", "g6e.xlarge"), max_hosts=3))
    story.submit()
    idle = story.launch()
    assert idle.capacity.type == "g5.xlarge"
    big = story.submit(needs=Needs(gpu_memory_mib=40_000))
    story.take_ticket()

    story.fill_orders()

    assert order_of(story, big).state is OrderState.LANDED
    asked = {o.capacity.type for o in story.memory.fleet.launched[-1].overrides}
    assert asked == {"g6e.xlarge"}


def test_a_bell_for_an_order_whose_host_is_gone_gets_it_another_try() -> None:
    story = Story()
    job = story.submit()
    host = story.launch()
    story.gone(host)
    story.memory.hosts.advance(host.instance_id, HostState.GONE, reason="EC2 says it is gone")

    (filled,) = fill(story, (job, 1))

    assert len(filled.launched) == 1
    assert order_of(story, job).try_n == 2
    (again,) = fill(story, (job, 1))
    assert not again.launched


def test_the_cap_on_hosts_is_told_apart() -> None:
    story = Story(pool=a_pool(max_hosts=1))
    running(story)
    second = story.submit()

    (filled,) = fill(story, (second, 1))

    assert filled.at_cap
    assert order_of(story, second).state is OrderState.UNFILLED


def spare(story: Story, job: str) -> Order:
    order = order_for(story.job(job), 2, reason="rebalance", now=story.time, spare=True)
    put(story, order)
    return order


def test_a_spare_is_launched_while_its_job_runs_and_only_within_the_budget() -> None:
    story = Story(pool=a_pool(max_hosts=9, spares_per_hour=1))
    first, _ = running(story)
    second, _ = running(story)
    spare(story, first)
    spare(story, second)

    filled = fill(story, (first, 2), (second, 2))

    assert sorted(len(result.launched) for result in filled) == [0, 1]
    states = {order_of(story, job, 2).state for job in (first, second)}
    assert states == {OrderState.LANDED, OrderState.NOT_NEEDED}
    refused = next(result for result in filled if not result.launched)
    assert refused.reason == "the pool's budget for hosts on advice is spent"


def test_without_a_budget_advice_launches_nothing() -> None:
    story = Story(pool=a_pool(max_hosts=9))
    job, _ = running(story)
    spare(story, job)

    (filled,) = fill(story, (job, 2))

    assert not filled.launched
    assert len(story.memory.fleet.launched) == 1


def test_a_spare_serves_the_notice_that_follows_and_none_is_launched_beside_it() -> None:
    story = Story(pool=a_pool(max_hosts=9, spares_per_hour=1))
    job, host = running(story)
    spare(story, job)
    (filled,) = fill(story, (job, 2))
    Host(story, filled.launched[0].instance_id).idle()

    story.notice(host)
    story.fill_orders()
    fill(story, (job, 2))

    assert len(story.memory.fleet.instances) == 2


@pytest.mark.parametrize("known", [True, False])
def test_an_order_costs_four_calls_when_prices_are_kept(*, known: bool) -> None:
    story = Story(pool=a_pool(max_hosts=9))
    story.memory.fleet.prices = {(Market.SPOT, "g5.xlarge", "us-east-1a"): 0.4}
    if known:
        story.submit()
        story.fill_orders()
    job = story.submit()
    before = len(story.memory.calls)

    fill(story, (job, 1))

    spent = story.memory.calls[before:]
    prices = [] if known else ["fleet.usd_per_hour", "rows.commit"]
    assert spent == ["orders.listing", *prices, "rows.commit", "fleet.launch", "rows.commit"]
    host = next(reversed(story.memory.host_rows.values()))
    assert host.usd_per_hour == 0.4


def unlisted(story: Story, job: str) -> None:
    """Let the index lag behind: it doesn't know of *job* yet."""
    listing = story.memory.orders.listing

    def lagging(pool: str) -> Listing:
        shown = listing(pool)
        return replace(shown, jobs={k: v for k, v in shown.jobs.items() if k != job})

    story.memory.orders.listing = lagging  # type: ignore[method-assign]


def test_an_order_is_not_closed_for_a_host_that_was_claimed_meanwhile() -> None:
    story = Story(pool=a_pool(max_hosts=5))
    first = story.submit()
    host = story.launch()
    ticket = story.take_ticket()
    second = story.submit()
    unlisted(story, first)
    read = story.memory.rows.read

    def read_then_claimed(wanted: Wanted) -> Snapshot:
        snapshot = read(wanted)
        if host.key is None:
            host.claim(ticket)
        return snapshot

    story.memory.rows.read = read_then_claimed  # type: ignore[method-assign]
    (filled,) = fill(story, (second, 1))

    assert len(filled.launched) == 1
    assert order_of(story, second).state is OrderState.LANDED


def test_an_order_and_the_host_that_it_brought_are_not_counted_twice() -> None:
    story = Story(pool=a_pool(max_hosts=5))
    first = story.submit()
    before = order_of(story, first)
    story.fill_orders()
    second = story.submit()
    listing, read = story.memory.orders.listing, story.memory.rows.read
    torn = [True]

    def shown_before(pool: str) -> Listing:
        shown = listing(pool)
        return replace(shown, orders=dict(shown.orders) | {before.key: before})

    def read_before(wanted: Wanted) -> Snapshot:
        """Answer as a batch read may: the host, and the order as it was before it came."""
        snapshot = read(wanted)
        if before.key in wanted.orders and torn.pop():
            torn.append(False)
            return replace(snapshot, orders=dict(snapshot.orders) | {before.key: before})
        return snapshot

    story.memory.orders.listing = shown_before  # type: ignore[method-assign]
    story.memory.rows.read = read_before  # type: ignore[method-assign]
    (filled,) = fill(story, (second, 1))

    assert len(filled.launched) == 1
    assert order_of(story, second).state is OrderState.LANDED


def test_a_second_copy_of_an_order_finds_the_host_that_the_first_brought() -> None:
    """Its listing is from before, so nothing but the order's own try names that host."""
    story = Story(pool=a_pool(max_hosts=5))
    job = story.submit()
    before = story.memory.orders.listing(story.pool.name)
    story.fill_orders()

    story.memory.orders.listing = lambda pool: before  # type: ignore[method-assign]
    (filled,) = fill(story, (job, 1))

    assert not filled.launched
    assert len(story.memory.fleet.launched) == 1
    assert len(story.memory.host_rows) == 1
