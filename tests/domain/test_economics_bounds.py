"""What must hold for any figures, not only for the published ones."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.economics import deadline, interval, odds, pools, recall, spending

hazards = st.floats(0, 10)
seconds = st.floats(0.1, 3600)
shares = st.floats(0, 1)


@given(save=seconds, hazard=hazards, q=shares, silent=hazards)
def test_an_interval_always_lies_between_its_bounds(
    save: float, hazard: float, q: float, silent: float
) -> None:
    chosen = interval.checkpoint_interval(
        save_seconds=save, hazard_per_hour=hazard, recall=q, silent_hazard_per_hour=silent
    )
    assert interval.SHORTEST <= chosen <= interval.LONGEST


@given(save=seconds, hazard=st.floats(0.001, 10), q=shares, other=st.floats(30, 20_000))
def test_no_interval_wastes_less_than_the_best(
    save: float, hazard: float, q: float, other: float
) -> None:
    least = interval.least_waste(
        save_seconds=save, hazard_per_hour=hazard, dead_seconds=240, recall=q
    )
    found = interval.waste(
        interval_seconds=other,
        save_seconds=save,
        hazard_per_hour=hazard,
        dead_seconds=240,
        recall=q,
    )
    assert found.total >= least * (1 - 1e-9)


@given(hazard=hazards, more=hazards)
def test_the_free_share_is_a_share_and_grows_with_the_hazard(hazard: float, more: float) -> None:
    assert (
        0 <= spending.free_share(hazard) <= spending.free_share(hazard + more) + 1e-12 <= 1 + 1e-9
    )


@given(
    elapsed=st.floats(0, 200_000),
    done=st.floats(0, 172_800),
    spot=st.booleans(),
    undurable=st.floats(0, 4000),
)
def test_without_slack_only_on_demand_is_left(
    *, elapsed: float, done: float, spot: bool, undurable: float
) -> None:
    rule = deadline.UniformProgress(
        work_seconds=172_800,
        deadline_seconds=187_200,
        changeover_seconds=240,
        undurable_seconds=undurable,
    )
    idle = rule.when_idle(elapsed=elapsed, done=done, spot_available=spot)
    running = rule.when_on_demand(elapsed=elapsed, done=done, spot_available=spot)
    out = rule.slack(elapsed=elapsed, done=done) < rule.least_slack
    for move in (idle, running):
        assert (move is deadline.Move.ON_DEMAND_TO_THE_END) == out
    assert idle is not deadline.Move.WAIT or not spot
    assert running is not deadline.Move.WAIT


@given(hours=st.floats(0, 10_000), interruptions=st.integers(0, 1000), ahead=st.floats(0, 1000))
def test_chances_are_chances(hours: float, interruptions: int, ahead: float) -> None:
    history = pools.History(hours=hours, interruptions=interruptions)
    assert history.hazard_per_hour > 0
    assert 0 <= history.survival(ahead) <= 1
    # Averaging over what isn't known leaves more hope than the mean hazard alone.
    alone = odds.no_interruption(hazard_per_hour=history.hazard_per_hour, hours=ahead)
    assert history.survival(ahead) >= alone - 1e-12


@given(attempts=st.lists(st.booleans(), max_size=30))
def test_a_success_rate_never_reaches_certainty(attempts: list[bool]) -> None:
    rate = recall.SuccessRate()
    for success in attempts:
        rate = rate.after(success=success)
    assert 0 < rate.estimate < 1


@given(minutes=st.floats(0, 200), reclaimed=st.booleans())
def test_a_bill_is_never_more_than_a_minute_above_the_life(
    *, minutes: float, reclaimed: bool
) -> None:
    lived = timedelta(minutes=minutes)
    charged = spending.charged_seconds(lived=lived, reclaimed=reclaimed)
    assert 0 <= charged <= max(lived.total_seconds(), 60)
    if reclaimed and spending.waits_for_reclaim(launched_ago_at_reclaim=lived):
        assert charged == 0
