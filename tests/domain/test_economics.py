"""Every figure that docs/economics.md states, computed anew."""

from __future__ import annotations

import math
from datetime import timedelta
from statistics import median

import pytest

from reprieve.domain.clock import NoticeClock
from reprieve.domain.economics import deadline, interval, odds, pools, rebalance, recall, spending
from reprieve.domain.errors import MalformedError

# λ per hour as a well-known article gives it, per GPU.
V100, A100, H100 = 0.008, 0.023, 0.041
SAVE = 30.0

# Published list prices in $/h: on-demand, Spot.
NEBIUS = (4.50, 0.79)
COREWEAVE = (6.155, 2.4638)
JARVISLABS = (3.49, 1.54)
VERDA = (4.746, 2.373)
GOOGLE = (11.0613, 6.5876)


@pytest.mark.parametrize(
    ("on_demand", "spot", "discount_percent", "multiple", "break_even_percent"),
    [
        pytest.param(*NEBIUS, 82.44, 5.6962, 469.6, id="Nebius"),
        pytest.param(*COREWEAVE, 59.97, 2.4982, 149.8, id="CoreWeave"),
        pytest.param(*JARVISLABS, 55.87, 2.2662, 126.6, id="Jarvislabs"),
        pytest.param(*VERDA, 50.00, 2.0, 100.0, id="Verda"),
        pytest.param(*GOOGLE, 40.44, 1.6791, 67.9, id="Google"),
        pytest.param(98.32, 19.66, 80.00, 5.0010, 400.1, id="p5.48xlarge before the cut"),
        pytest.param(55.04, 19.66, 64.28, 2.7996, 180.0, id="p5.48xlarge 2026-07"),
        pytest.param(55.04, 11.2543, 79.55, 4.8906, 389.1, id="p5.48xlarge us-east-2"),
        pytest.param(55.04, 55.04, 0.0, 1.0, 0.0, id="p5.48xlarge use1-az1"),
    ],
)
def test_break_even_of_published_prices(
    on_demand: float,
    spot: float,
    discount_percent: float,
    multiple: float,
    break_even_percent: float,
) -> None:
    discount = spending.discount(spot_usd_per_hour=spot, on_demand_usd_per_hour=on_demand)
    assert round(100 * discount, 2) == discount_percent
    assert round(spending.price_multiple(discount), 4) == multiple
    assert round(100 * spending.break_even(discount), 1) == break_even_percent


@pytest.mark.parametrize(
    ("prices", "percent"),
    [(NEBIUS, 82), (COREWEAVE, 60), (JARVISLABS, 56), (VERDA, 50), (GOOGLE, 40)],
)
def test_the_published_table_of_discounts(prices: tuple[float, float], percent: int) -> None:
    on_demand, spot = prices
    discount = spending.discount(spot_usd_per_hour=spot, on_demand_usd_per_hour=on_demand)
    assert round(100 * discount) == percent


def test_the_median_discount_of_56_percent_pays_for_127_percent_of_redone_work() -> None:
    table = [NEBIUS, COREWEAVE, JARVISLABS, VERDA, GOOGLE]
    found = median(
        spending.discount(spot_usd_per_hour=spot, on_demand_usd_per_hour=on_demand)
        for on_demand, spot in table
    )
    assert round(100 * found) == 56
    assert round(spending.price_multiple(0.56), 2) == 2.27
    assert round(spending.price_multiple(0.56), 4) == 2.2727
    assert round(100 * spending.break_even(0.56), 2) == 127.27
    assert round(100 * spending.break_even(0.56)) == 127


def test_nothing_is_free_and_nothing_costs_less_than_nothing() -> None:
    with pytest.raises(MalformedError, match="leaves no price"):
        spending.price_multiple(1.0)
    with pytest.raises(MalformedError, match="greater than 0"):
        spending.discount(spot_usd_per_hour=1.0, on_demand_usd_per_hour=0.0)


def test_a_job_passes_break_even_by_what_it_redoes() -> None:
    hour = {"useful_seconds": 3600.0, "discount": 0.56}
    assert not spending.past_break_even(redone_seconds=1.27 * 3600, **hour)
    assert spending.past_break_even(redone_seconds=1.28 * 3600, **hour)
    assert spending.past_break_even(redone_seconds=1.0, useful_seconds=0.0, discount=0.9)
    assert not spending.past_break_even(redone_seconds=0.0, useful_seconds=0.0, discount=0.0)


def test_a_pool_at_the_on_demand_price_never_pays() -> None:
    assert not spending.spot_pays(
        spot_usd_per_hour=55.04, spot_overhead=0.0, on_demand_usd_per_hour=55.04
    )
    assert spending.spot_pays(
        spot_usd_per_hour=25.75, spot_overhead=1.13, on_demand_usd_per_hour=55.04
    )
    assert not spending.spot_pays(
        spot_usd_per_hour=25.75, spot_overhead=1.14, on_demand_usd_per_hour=55.04
    )


@pytest.mark.parametrize(
    ("hazard", "mean_hours", "survival_24h", "in_48h", "t0", "t9", "waste0", "waste9"),
    [
        pytest.param(V100, 125.0, 0.8253, 0.384, 5196.2, 16431.7, 1.215, 0.419, id="V100"),
        pytest.param(A100, 43.478, 0.5758, 1.104, 3064.5, 9690.9, 2.130, 0.773, id="A100"),
        pytest.param(H100, 24.390, 0.3738, 1.968, 2295.3, 7258.3, 2.922, 1.100, id="H100"),
    ],
)
def test_interval_and_waste_without_and_with_a_notice(
    *,
    hazard: float,
    mean_hours: float,
    survival_24h: float,
    in_48h: float,
    t0: float,
    t9: float,
    waste0: float,
    waste9: float,
) -> None:
    assert round(1 / hazard, 3) == mean_hours
    assert round(odds.no_interruption(hazard_per_hour=hazard, hours=24), 4) == survival_24h
    assert round(odds.expected_interruptions(hazard_per_hour=hazard, hours=48), 3) == in_48h
    for q, dead, seconds, percent in [(0.0, 270, t0, waste0), (0.9, 240, t9, waste9)]:
        losing = interval.losing_hazard(hazard_per_hour=hazard, recall=q)
        best = interval.young(save_seconds=SAVE, losing_hazard_per_hour=losing)
        assert round(best, 1) == seconds
        least = interval.least_waste(
            save_seconds=SAVE, hazard_per_hour=hazard, dead_seconds=dead, recall=q
        )
        at_best = interval.waste(
            interval_seconds=best,
            save_seconds=SAVE,
            hazard_per_hour=hazard,
            dead_seconds=dead,
            recall=q,
        )
        assert 100 * least == pytest.approx(percent, abs=0.001)
        assert at_best.total == pytest.approx(least)
        assert at_best.saving == pytest.approx(at_best.redoing)


@pytest.mark.parametrize(("hazard", "seconds"), [(V100, 5176.2), (A100, 3044.6), (H100, 2275.3)])
def test_the_higher_order_term_moves_the_interval_by_less_than_a_percent(
    hazard: float, seconds: float
) -> None:
    first = interval.young(save_seconds=SAVE, losing_hazard_per_hour=hazard)
    higher = interval.daly(save_seconds=SAVE, losing_hazard_per_hour=hazard)
    assert round(higher, 1) == seconds
    assert abs(higher / first - 1) < 0.01


def test_the_interval_scales_with_the_root_of_the_save() -> None:
    one = interval.young(save_seconds=30, losing_hazard_per_hour=A100)
    four = interval.young(save_seconds=120, losing_hazard_per_hour=A100)
    assert four == pytest.approx(2 * one)


@pytest.mark.parametrize(
    ("hazard", "percent"), [pytest.param(A100, 0.868, id="A100"), pytest.param(H100, 1.271, id="H")]
)
def test_a_replacement_at_death_costs_its_wait(hazard: float, percent: float) -> None:
    least = interval.least_waste(
        save_seconds=SAVE, hazard_per_hour=hazard, dead_seconds=390, recall=0.9
    )
    assert round(100 * least, 3) == percent


@pytest.mark.parametrize(
    ("minutes", "hazard", "percent"),
    [(10, V100, 5.13), (10, H100, 5.65), (30, V100, 1.93), (30, H100, 3.0)],
)
def test_a_fixed_interval_costs_more_than_the_best(
    minutes: int, hazard: float, percent: float
) -> None:
    fixed = interval.waste(
        interval_seconds=60 * minutes, save_seconds=SAVE, hazard_per_hour=hazard, dead_seconds=270
    )
    best = interval.least_waste(save_seconds=SAVE, hazard_per_hour=hazard, dead_seconds=270)
    assert 100 * fixed.total == pytest.approx(percent, abs=0.01)
    assert best < fixed.total


def test_five_minutes_suit_a_pool_that_is_lost_every_25_minutes() -> None:
    five = interval.young(save_seconds=SAVE, losing_hazard_per_hour=2.4)
    assert five == pytest.approx(300)
    eleven = interval.young(save_seconds=SAVE, losing_hazard_per_hour=0.5)
    assert round(eleven / 60) == 11


def test_a_p5_node_at_its_old_price() -> None:
    plain = interval.least_waste(save_seconds=SAVE, hazard_per_hour=H100, dead_seconds=270)
    noticed = interval.least_waste(
        save_seconds=SAVE, hazard_per_hour=H100, dead_seconds=240, recall=0.9
    )
    without = spending.usd_per_useful_hour(19.66, round(plain, 5))
    with_notice = spending.usd_per_useful_hour(19.66, round(noticed, 4))
    assert round(without, 4) == pytest.approx(20.2344, abs=0.0002)
    assert round(with_notice, 3) == 19.876
    assert round(100 * (1 - without / 98.32), 2) == 79.42
    assert round(100 * (1 - with_notice / 98.32), 2) == 79.78


@pytest.mark.parametrize(
    ("recall_", "silent", "expected"),
    [
        pytest.param(1.0, 0.0, 7200, id="every notice works: the longest"),
        pytest.param(0.0, 0.0, 2295.28, id="no notice works: Young"),
        pytest.param(1.0, 0.041, 2295.28, id="losses without notice alone"),
        pytest.param(0.0, 1e6, 60, id="the shortest"),
    ],
)
def test_the_interval_is_clamped(recall_: float, silent: float, expected: float) -> None:
    chosen = interval.checkpoint_interval(
        save_seconds=SAVE, hazard_per_hour=H100, recall=recall_, silent_hazard_per_hour=silent
    )
    assert chosen.total_seconds() == pytest.approx(expected, abs=0.01)


def test_an_interval_for_no_hazard_at_all_is_the_longest_and_divides_by_nothing() -> None:
    for longest in (interval.LONGEST, interval.LONGEST_WITH_DEADLINE):
        chosen = interval.checkpoint_interval(
            save_seconds=SAVE, hazard_per_hour=0.0, longest=longest
        )
        assert chosen == longest
    assert interval.daly(save_seconds=SAVE, losing_hazard_per_hour=0.0) == math.inf
    never = interval.waste(
        interval_seconds=math.inf, save_seconds=SAVE, hazard_per_hour=0.0, dead_seconds=270
    )
    assert never.total == 0
    hopeless = interval.waste(
        interval_seconds=math.inf, save_seconds=SAVE, hazard_per_hour=A100, dead_seconds=270
    )
    assert hopeless.total == math.inf
    assert interval.daly(save_seconds=3600, losing_hazard_per_hour=2.0) == 1800


def test_dead_time_by_how_the_end_was_learnt() -> None:
    k = interval.Recovery(
        boot_seconds=180,
        restore_seconds=60,
        emergency_seconds=45,
        detection_seconds=360,
    )
    assert k.replaced_at_notice == 240
    assert k.replaced_at_death == 360
    assert k.unannounced == 600
    large = interval.Recovery(boot_seconds=420, restore_seconds=600, emergency_seconds=110)
    assert large.replaced_at_notice == 1020


def test_what_fits_in_the_notice() -> None:
    window = recall.Window(upload_gbit_per_second=2.5)
    assert window.largest_gigabytes == pytest.approx(30.625)
    assert window.fits(30.6)
    assert not window.fits(30.7)
    assert window.needed(30.625) == timedelta(seconds=120)
    assert window.needed(10) == timedelta(seconds=5 + 2 + 32 + 15)


def test_a_notice_that_is_over_before_it_is_known_holds_nothing() -> None:
    late = recall.Window(upload_gbit_per_second=100, delivery_seconds=130)
    assert late.largest_gigabytes == 0
    short = recall.Window(upload_gbit_per_second=2.5, clock=NoticeClock.of_seconds(20))
    assert short.largest_gigabytes == pytest.approx((20 - 2.5 - 7) * 2.5 / 8)


def test_success_is_one_half_until_something_is_known() -> None:
    rate = recall.SuccessRate()
    assert rate.estimate == 0.5
    assert rate.after(success=True).estimate == pytest.approx(2 / 3)
    assert rate.after(success=False).estimate == pytest.approx(1 / 3)
    assert recall.SuccessRate(attempts=8, successes=8).estimate == 0.9


@pytest.mark.parametrize(
    ("hazard", "percent"), [(0.023, 0.026), (0.041, 0.082), (0.5, 9.02), (1.39, 40.5)]
)
def test_the_share_of_running_hours_that_is_free(hazard: float, percent: float) -> None:
    digits = 3 if percent < 1 else 2 if percent < 10 else 1
    assert round(100 * spending.free_share(hazard), digits) == percent


def test_only_what_ec2_takes_back_within_the_hour_is_free() -> None:
    almost, hour = timedelta(minutes=59, seconds=59), timedelta(hours=1)
    assert spending.charged_seconds(lived=almost, reclaimed=True) == 0
    assert spending.charged_seconds(lived=hour, reclaimed=True) == 3600
    assert spending.charged_seconds(lived=almost, reclaimed=False) == 3599
    assert spending.charged_seconds(lived=timedelta(seconds=4), reclaimed=False) == 60
    assert spending.waits_for_reclaim(launched_ago_at_reclaim=almost)
    assert not spending.waits_for_reclaim(launched_ago_at_reclaim=hour)


def hours(value: float) -> float:
    return 3600 * value


def a_deadline_of(deadline_hours: float, *, undurable: float = 1810.0) -> deadline.UniformProgress:
    return deadline.UniformProgress(
        work_seconds=hours(48),
        deadline_seconds=hours(deadline_hours),
        changeover_seconds=240,
        undurable_seconds=undurable,
    )


def test_uniform_progress_of_48_hours_in_52() -> None:
    rule = a_deadline_of(52)
    assert round(rule.line(hours(10)) / 3600, 3) == 9.231
    assert round(rule.line(hours(10) + 2 * 240) / 3600, 3) == 9.354
    assert rule.least_slack == 2290
    assert round(rule.least_slack / 3600, 4) == 0.6361
    assert rule.behind(elapsed=hours(10), done=hours(9.23))
    assert not rule.behind(elapsed=hours(10), done=hours(9.24))
    assert not rule.may_leave_on_demand(elapsed=hours(10), done=hours(9.353))
    assert rule.may_leave_on_demand(elapsed=hours(10), done=hours(9.355))


@pytest.mark.parametrize(
    ("done", "spot", "expected"),
    [
        pytest.param(9.0, True, deadline.Move.SPOT, id="behind, Spot there: Spot"),
        pytest.param(9.0, False, deadline.Move.ON_DEMAND, id="behind, no Spot: on-demand"),
        pytest.param(9.3, False, deadline.Move.WAIT, id="ahead, no Spot: wait"),
        pytest.param(6.6, True, deadline.Move.ON_DEMAND_TO_THE_END, id="no slack left"),
    ],
)
def test_what_an_idle_job_starts_on(*, done: float, spot: bool, expected: deadline.Move) -> None:
    rule = a_deadline_of(52)
    assert rule.when_idle(elapsed=hours(10), done=hours(done), spot_available=spot) is expected


@pytest.mark.parametrize(
    ("done", "spot", "expected"),
    [
        pytest.param(9.3, True, deadline.Move.ON_DEMAND, id="ahead of the line, not of hysteresis"),
        pytest.param(9.4, True, deadline.Move.SPOT, id="ahead of both"),
        pytest.param(9.4, False, deadline.Move.ON_DEMAND, id="no Spot to go back to"),
        pytest.param(6.6, True, deadline.Move.ON_DEMAND_TO_THE_END, id="no slack left"),
    ],
)
def test_what_a_job_on_demand_does_next(
    *, done: float, spot: bool, expected: deadline.Move
) -> None:
    rule = a_deadline_of(52)
    assert rule.when_on_demand(elapsed=hours(10), done=hours(done), spot_available=spot) is expected


def test_work_that_is_not_durable_counts_against_the_slack() -> None:
    published, ours = a_deadline_of(52, undurable=0), a_deadline_of(52)
    moment = {"elapsed": hours(10), "done": hours(6.5)}  # 0.5 h of slack
    assert not published.out_of_slack(**moment)
    assert ours.out_of_slack(**moment)


def test_a_deadline_that_not_even_on_demand_meets() -> None:
    assert a_deadline_of(48.05).feasible(boot_seconds=180)
    assert not a_deadline_of(48.04).feasible(boot_seconds=180)


def test_advice_deserves_a_checkpoint_once_enough_is_unsaved() -> None:
    assert rebalance.save_threshold(save_seconds=30, precision=0.3) == pytest.approx(100)
    assert rebalance.should_save(unsaved_seconds=101, save_seconds=30, precision=0.3)
    assert not rebalance.should_save(unsaved_seconds=99, save_seconds=30, precision=0.3)
    assert not rebalance.should_save(unsaved_seconds=1e9, save_seconds=30, precision=0.0)


@pytest.mark.parametrize(
    ("recovery", "save", "q", "period", "interruption", "migration", "threshold"),
    [
        pytest.param(
            interval.Recovery(boot_seconds=180, restore_seconds=60, emergency_seconds=45),
            *(10, 0.9, 1800, 330, 250, 0.76),
            id="small job",
        ),
        pytest.param(
            interval.Recovery(boot_seconds=420, restore_seconds=600, emergency_seconds=110),
            *(60, 0.0, 1800, 1920, 1080, 0.56),
            id="large job",
        ),
    ],
)
def test_migrating_on_advice_needs_a_precision_that_nobody_has_seen(
    *,
    recovery: interval.Recovery,
    save: float,
    q: float,
    period: float,
    interruption: float,
    migration: float,
    threshold: float,
) -> None:
    lost = rebalance.interruption_seconds(
        dead_seconds=recovery.replaced_at_notice, recall=q, interval_seconds=period
    )
    moved = rebalance.migration_seconds(
        save_seconds=save,
        boot_seconds=recovery.boot_seconds,
        restore_seconds=recovery.restore_seconds,
    )
    found = rebalance.migration_threshold(
        recovery, save_seconds=save, recall=q, interval_seconds=period
    )
    assert lost == pytest.approx(interruption)
    assert moved == migration
    assert round(found, 2) == threshold
    assert found > rebalance.AdviceRecord().precision


def test_the_published_anecdote_about_advice_is_the_prior() -> None:
    assert rebalance.AdviceRecord().precision == 0.3
    assert rebalance.AdviceRecord().recall == 0.6
    seen = rebalance.AdviceRecord(advised=30, followed=9, unannounced=6)
    assert seen.precision == pytest.approx(0.3)
    assert seen.recall == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("interruptions", "hours_run", "hazard"), [(3, 10, 0.2917), (0, 24, 0.01923)]
)
def test_a_pools_hazard_from_its_own_history(
    interruptions: int, hours_run: float, hazard: float
) -> None:
    history = pools.History(hours=hours_run, interruptions=interruptions)
    assert history.hazard_per_hour == pytest.approx(hazard, rel=5e-4)


def test_a_history_grows_by_lives_and_launches() -> None:
    history = pools.NOTHING_KNOWN.after_run(hours=3.0, interrupted=True)
    history = history.after_run(hours=5.0, interrupted=False).after_launch(won=True)
    history = history.after_launch(won=False)
    assert history == pools.History(hours=8.0, interruptions=1, launches_tried=2, launches_won=1)
    assert history.launch_success == 0.5
    assert pools.NOTHING_KNOWN.hazard_per_hour == 0.25


def test_price_and_failed_launches_outweigh_the_hazard() -> None:
    overheads = pools.Overheads(save_seconds=30, dead_seconds=240, recall=0.9)
    calm = pools.History(hours=24, launches_tried=8, launches_won=4)
    rough = pools.History(hours=10, interruptions=3, launches_tried=8, launches_won=8)
    assert pools.score(rough, overheads, usd_per_hour=1.0) < pools.score(
        calm, overheads, usd_per_hour=1.0
    )
    same = pools.History(hours=10, interruptions=3)
    assert pools.score(same, overheads, usd_per_hour=1.1) > pools.score(
        pools.History(hours=24), overheads, usd_per_hour=1.0
    )
    fast = pools.score(same, overheads, usd_per_hour=2.0, throughput=2.0)
    assert fast == pytest.approx(pools.score(same, overheads, usd_per_hour=1.0))


def test_with_the_credit_a_pool_that_is_lost_within_the_hour_is_cheap() -> None:
    overheads = pools.Overheads(save_seconds=30, dead_seconds=240, recall=0.9)
    calm, rough = pools.History(hours=98), pools.History(hours=98, interruptions=139)

    def scored(history: pools.History, *, credit: bool) -> float:
        return pools.score(history, overheads, usd_per_hour=1.0, credit=credit)

    assert scored(rough, credit=False) > scored(calm, credit=False)
    assert scored(rough, credit=True) < scored(calm, credit=True)
    free = spending.free_share(rough.hazard_per_hour)
    assert scored(rough, credit=True) == pytest.approx((1 - free) * scored(rough, credit=False))


def test_a_short_history_leaves_room_for_a_calm_pool() -> None:
    assert pools.NOTHING_KNOWN.survival(48) == pytest.approx((2 / 50) ** 0.5)
    known = pools.History(hours=9998, interruptions=230)
    assert known.survival(24) == pytest.approx(math.exp(-24 * known.hazard_per_hour), rel=0.01)


def test_losses_without_notice_are_counted_on_top_of_a_small_prior() -> None:
    assert pools.silent_hazard_per_hour(losses=0, hours=0) == pytest.approx(419 / 54 / 24 / 2048,
                                                                           rel=0.06)  # fmt: skip
    assert pools.silent_hazard_per_hour(losses=3, hours=7000) == 3.5 / 10_000


def test_every_pool_under_notice_is_left_out_not_only_the_last() -> None:
    prices = {"a": 1.0, "b": 0.9, "c": 1.2, "d": 1.0}
    order = pools.ranked(
        prices, {}, pools.Overheads(save_seconds=30, dead_seconds=240), noticed={"b", "a"}
    )
    assert order == ["d", "c"]


@pytest.mark.parametrize(("count", "buffer"), [(6, 0.2), (2, 1.0), (1, math.inf)])
def test_the_buffer_that_covers_the_loss_of_one_pool(count: int, buffer: float) -> None:
    assert spending.buffer_to_survive_one_of(count) == buffer


def test_a_fifth_in_reserve_needs_six_pools() -> None:
    assert spending.pools_for_buffer(0.2) == 6
    assert spending.pools_for_buffer(0.1) == 11


@pytest.mark.parametrize(("hazard", "percent"), [(A100, 0.15), (0.5, 3.3)])
def test_a_warm_spare_wins_less_than_it_costs(hazard: float, percent: float) -> None:
    won = spending.idle_avoided(hazard_per_hour=hazard, dead_seconds=240)
    assert 100 * won == pytest.approx(percent, abs=0.05)
    assert won < 0.2


@pytest.mark.parametrize(
    ("claimed", "computed"),
    [
        pytest.param(6.88, 98.32 * 0.56 / 8, id="44 % off $98.32 is $6.88 per GPU, not $3.90"),
        pytest.param(6.88, 55.04 / 8, id="the price list of 2026-07 agrees"),
        pytest.param(33.0, 100 * (1 - 21.96 / 32.77), id="p4d fell by a third"),
        pytest.param(10.0, 100 * (1 - 29.49 / 32.77), id="$29.49 of $32.77 is 10 %, not 70-91 %"),
        pytest.param(70.7, 100 * (1 - 2.4 / 8.2), id="8.2 to 2.4 million is 70.7 %"),
    ],
)
def test_claims_of_common_articles_recomputed(claimed: float, computed: float) -> None:
    assert computed == pytest.approx(claimed, abs=0.05)


def test_without_checkpoints_a_long_job_finishes_only_by_luck() -> None:
    through = odds.no_interruption(hazard_per_hour=0.5, hours=48)
    assert through == pytest.approx(math.exp(-24))
    mean = odds.hours_without_checkpoints(work_hours=48, hazard_per_hour=0.5)
    assert mean / 8766 == pytest.approx(6.0e6, rel=0.02)
    assert odds.hours_without_checkpoints(work_hours=48, hazard_per_hour=0) == 48
    assert odds.hours_without_checkpoints(work_hours=48, hazard_per_hour=100) == math.inf


def test_the_chance_to_finish_by_a_limit_solves_the_renewal_equation() -> None:
    at_once = odds.finishes_without_checkpoints(work_hours=10, hazard_per_hour=0.1, limit_hours=10)
    assert at_once == pytest.approx(math.exp(-1))
    # Up to two lengths of the job: e^-λW (1 + λ(h-W)), by hand.
    later = odds.finishes_without_checkpoints(work_hours=10, hazard_per_hour=0.1, limit_hours=18)
    assert later == pytest.approx(math.exp(-1) * 1.8, abs=2e-3)
    assert odds.finishes_without_checkpoints(work_hours=10, hazard_per_hour=0.1, limit_hours=9) == 0
    assert odds.finishes_without_checkpoints(work_hours=10, hazard_per_hour=0, limit_hours=10) == 1
    slow = odds.finishes_without_checkpoints(
        work_hours=10, hazard_per_hour=0.1, limit_hours=18, dead_hours=4
    )
    # Only a first loss within 4 h leaves room for 4 h of recovery and a second try.
    assert slow == pytest.approx(math.exp(-1) * (2 - math.exp(-0.4)), abs=2e-3)
    long_run = odds.finishes_without_checkpoints(
        work_hours=10, hazard_per_hour=0.1, limit_hours=300
    )
    assert 0.99 < long_run <= 1
