"""Each rule of the sweep is missed by a story: without it, that story fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve.adapters.memory import InMemoryWatch
from reprieve.domain.errors import UnknownOutcomeError
from reprieve.domain.notice import Act, Reaction
from reprieve.domain.settlement import Facts
from reprieve.domain.silence import Sights, Silence
from reprieve.ports.rows import Snapshot
from reprieve.usecases import reconcile, sweep_jobs, sweep_orders, sweep_view
from reprieve.usecases.adopt_strays import AdoptStrays, Room, Strays
from reprieve.usecases.reconcile import Reconcile
from reprieve.usecases.settle import Settle
from reprieve.usecases.sweep_hosts import SweepHosts
from reprieve.usecases.sweep_jobs import SweepCommits, SweepJobs, TellDoubts
from reprieve.usecases.sweep_orders import SweepOrders
from reprieve.usecases.sweep_view import Look, Swept, View
from tests.usecases import test_reconcile as told


def _no(*_: Any, **__: Any) -> bool:
    return False


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _nothing(*_: Any, **__: Any) -> list[Any]:
    return []


def _all_that_is_silent(counts: Any, **more: Any) -> Silence:
    silent = frozenset(i for i, count in counts.items() if count > more["clock"].silent_sweeps)
    return Silence(proven=silent)


def _counted_by_every_sight(self: Sights, beats: Any, **more: Any) -> Sights:
    return SEEING(self, beats, **(more | {"max_gap": timedelta(days=365)}))


def _whatever_the_beat(self: Settle, job_id: str, read: Snapshot, **asked: Any) -> Facts | None:
    """Take what EC2 said for evidence although the holder spoke since."""
    facts = FACTS(self, job_id, read, **(asked | {"gone_beat": None}))
    if facts and facts.lease and asked["gone_beat"] is not None:
        return FACTS(self, job_id, read, **(asked | {"gone_beat": facts.lease.beat}))
    return facts


def _all_or_nothing(self: Look, wanted: Any, _swept: Swept) -> Snapshot:
    read = self.rows.read(wanted)
    if read.unread:
        raise UnknownOutcomeError("some rows couldn't be read")
    return read


SEEING = Sights.seeing
WORK = Reconcile._work
FACTS = Settle._facts
CLAIM = AdoptStrays._claim


def _ours(self: AdoptStrays, instance: Any, rooms: Any, strays: Strays) -> None:
    """Take what others launched for what we launched."""
    tagged = replace(instance, tags=instance.tags | {"reprieve:order": "by#hand#1"})
    CLAIM(self, tagged, rooms, strays)


RULES: dict[str, tuple[Any, str, Any, str]] = {
    "EC2's word is evidence": (
        View,
        "gone",
        _no,
        "test_half_the_pool_in_doubt_is_told_and_ends_with_ec2s_word",
    ),
    "but only while its beat stands": (
        Settle,
        "_facts",
        _whatever_the_beat,
        "test_a_host_that_speaks_after_ec2_was_asked_is_believed",
    ),
    "a young host need not be listed": (
        sweep_view,
        "NOT_FOUND_COUNTS_AFTER",
        timedelta(),
        "test_ec2_does_not_list_a_young_host_yet",
    ),
    "silence is evidence": (
        sweep_view,
        "judge",
        lambda *_, **__: Silence(),
        "test_a_host_is_unheard_then_in_doubt_then_given_up",
    ),
    "silence of half the pool is none": (
        sweep_view,
        "judge",
        _all_that_is_silent,
        "test_half_the_pool_in_doubt_is_told_and_ends_with_ec2s_word",
    ),
    "nor for the idle ones": (
        sweep_view,
        "judge",
        _all_that_is_silent,
        "test_idle_hosts_are_left_alone_while_half_of_those_with_a_job_are_in_doubt",
    ),
    "a gap in the sweeps ends the count": (
        Sights,
        "seeing",
        _counted_by_every_sight,
        "test_silence_is_not_counted_while_ec2_and_the_table_are_out",
    ),
    "doubt is told": (
        TellDoubts,
        "__call__",
        _nothing,
        "test_a_host_that_is_heard_again_is_in_doubt_no_more",
    ),
    "two leases are one too many": (
        sweep_jobs,
        "_twice",
        lambda _: frozenset(),
        "test_a_holder_of_two_leases_is_believed_in_nothing",
    ),
    "the Spot request is the third detector": (
        Reconcile,
        "_marked",
        _nothing,
        "test_only_the_spot_request_says_that_the_host_is_taken",
    ),
    "adopted hosts are looked at in the same sweep": (
        Reconcile,
        "_marked",
        _nothing,
        "test_a_notice_that_came_before_the_hosts_row_is_found_at_adoption",
    ),
    "maintenance comes due": (
        reconcile,
        "react",
        lambda *_, **__: Reaction(Act.RECORD, "patched out"),
        "test_maintenance_whose_time_has_come_drains_its_host",
    ),
    "a lost launch is adopted": (
        Room,
        "missing",
        property(lambda _: 0, lambda *_: None),
        "test_a_launch_whose_answer_was_lost_is_adopted_if_its_job_still_waits",
    ),
    "a stray goes": (
        AdoptStrays,
        "__call__",
        lambda _: Strays(),
        "test_a_launch_whose_answer_was_lost_goes_if_its_job_was_cancelled",
    ),
    "what others launched is adopted at once": (
        AdoptStrays,
        "_claim",
        _ours,
        "test_a_host_launched_by_hand_is_adopted_at_once_and_takes_work",
    ),
    "and not terminated": (
        AdoptStrays,
        "_claim",
        _ours,
        "test_what_others_launched_is_never_terminated_for_want_of_room",
    ),
    "an adopted host has time to boot": (
        SweepHosts,
        "_boot_is_over",
        _yes,
        "test_a_host_that_ran_for_days_before_it_got_our_tags_has_time_to_become_ready",
    ),
    "a host that never became ready goes": (
        SweepHosts,
        "_boot_is_over",
        _no,
        "test_many_hosts_are_retired_with_one_call",
    ),
    "an idle host leaves": (
        SweepHosts,
        "_idle_too_long",
        _no,
        "test_an_idle_host_that_does_not_leave_is_told_to",
    ),
    "but not the buffer": (
        SweepHosts,
        "_surplus",
        lambda *_: 9,
        "test_the_idle_hosts_of_a_buffer_stay",
    ),
    "a drained host leaves": (
        SweepHosts,
        "_why_leave",
        lambda *_: None,
        "test_a_drained_host_leaves_as_soon_as_it_is_empty",
    ),
    "one that EC2 forgot leaves, too": (
        SweepHosts,
        "_why_leave",
        lambda *_: None,
        "test_a_host_that_ec2_did_not_take_back_leaves",
    ),
    "the operator's word is evidence": (
        SweepHosts,
        "_overdue",
        _no,
        "test_a_drained_host_that_does_not_let_go_loses_its_job_to_the_operators_word",
    ),
    "an order is rung again": (
        SweepOrders,
        "_unanswered",
        _no,
        "test_an_order_whose_message_was_lost_is_rung_again",
    ),
    "a landed order isn't service": (
        SweepOrders,
        "_raised",
        _nothing,
        "test_hosts_that_landed_and_died_are_ordered_anew_in_one_sweep",
    ),
    "an order nobody waits for is closed": (
        sweep_orders,
        "_over",
        lambda *_: None,
        "test_an_order_of_a_job_that_is_over_is_closed_and_listed_no_more",
    ),
    "jobs are settled: a job without an order": (
        SweepJobs,
        "__call__",
        _nothing,
        "test_a_job_without_an_order_gets_one",
    ),
    "jobs are settled: a lost ticket": (
        SweepJobs,
        "__call__",
        _nothing,
        "test_a_ticket_that_was_lost_is_sent_again_and_not_before_its_time",
    ),
    "jobs are settled: a parked job's time": (
        SweepJobs,
        "__call__",
        _nothing,
        "test_a_parked_job_goes_on_when_its_time_has_come",
    ),
    "the bucket is looked into": (
        SweepCommits,
        "__call__",
        _nothing,
        "test_a_commit_that_nobody_reported_is_found_and_the_loss_put_right",
    ),
    "and not for ever": (
        sweep_jobs,
        "LOOKS",
        1000,
        "test_the_bucket_is_asked_twice_an_attempt_and_then_left_alone",
    ),
    "only what is unsettled is settled": (
        SweepJobs,
        "_unsettled",
        _yes,
        "test_a_sweep_of_a_hundred_quiet_jobs_costs_as_many_calls_as_one_of_one",
    ),
    "what fails is kept apart": (
        Swept,
        "keeping",
        lambda _: nullcontext(),
        "test_one_job_that_cannot_be_settled_keeps_no_other_waiting",
    ),
    "pool by pool": (
        Swept,
        "keeping",
        lambda _: nullcontext(),
        "test_one_pool_that_cannot_be_read_keeps_no_other_unswept",
    ),
    "row by row": (
        Look,
        "again",
        _all_or_nothing,
        "test_a_row_that_cannot_be_read_hides_no_other",
    ),
    "it goes on where it stopped": (
        InMemoryWatch,
        "leave_off",
        lambda *_: None,
        "test_a_job_that_fails_each_time_does_not_keep_the_rest_from_its_turn",
    ),
    "it stops in time": (
        Reconcile,
        "_work",
        lambda self, view, pieces, swept, _: WORK(self, view, pieces, swept, reconcile.never),
        "test_a_sweep_that_runs_out_of_time_stops_and_the_next_goes_on_there",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_story_misses_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, changed, story = RULES[rule]
    tell: Callable[..., None] = getattr(told, story)
    takes = inspect.signature(tell).parameters
    monkeypatch.setattr(owner, name, changed, raising=False)

    with pytest.raises(BaseException) as missed:  # noqa: PT011 - whatever the story says
        tell(**({"monkeypatch": monkeypatch} if takes else {}))

    assert not isinstance(missed.value, KeyboardInterrupt | TypeError | NameError)
