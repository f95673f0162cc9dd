"""The agent's decisions, without an agent: states, events and times in, actions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprieve.adapters.codec import from_item, to_item
from reprieve.domain.clock import NoticeClock
from reprieve.domain.lease import Cause, Holds, LeaseKey, Outcome, Phase
from reprieve.domain.notice import Channel, Doubt, NoticeKind
from reprieve.ports.leases import Claim
from reprieve.protocol import ReportKind
from reprieve_agent import actions as do
from reprieve_agent import events as on
from reprieve_agent.actions import Action
from reprieve_agent.clock import Now
from reprieve_agent.events import Event
from reprieve_agent.machine import Machine
from reprieve_agent.periods import Periods
from reprieve_agent.state import AckState, Process, RequestKind, Stage, State, Tenure
from tests.builders import HOST, a_job, a_key, a_lease, a_notice, a_spec, at

MACHINE = Machine(HOST, Periods.of(NoticeClock()))
KEY = a_key()
STALE = a_key(attempt=9, token="t9")
JOB = Process(keeper=10, keeper_ticks=100, pid=11, ticks=110)
BASE = "jobs/job-1/manifests/000001-000000000040.json"
T = TypeVar("T")


@dataclass
class Play:
    """One agent's life; `at` is seconds since the first moment, on both clocks."""

    state: State = field(default_factory=lambda: State(boot_id="b", idle_since=1000.0))
    seconds: float = 0.0
    done: list[Action] = field(default_factory=list)

    @property
    def now(self) -> Now:
        return Now(wall=at(self.seconds), boot=1000.0 + self.seconds)

    def tell(self, *events: Event) -> list[Action]:
        """Let the events happen; return what was decided upon them."""
        decided: list[Action] = []
        for event in events:
            self.state, actions = MACHINE.step(self.state, event, self.now)
            decided += actions
        self.done += decided
        return decided

    def wait(self, seconds: float) -> list[Action]:
        """Let time pass, with a tick whenever the machine asked for one."""
        ends = self.seconds + seconds
        decided: list[Action] = []
        while True:
            due = MACHINE.wake_at(self.state)
            if due is None or due - 1000.0 > ends:
                break
            self.seconds = max(self.seconds, due - 1000.0)
            decided += self.tell(on.Tick())
        self.seconds = ends
        return decided + self.tell(on.Tick())

    @property
    def tenure(self) -> Tenure:
        assert self.state.tenure
        return self.state.tenure

    @property
    def stage(self) -> Stage | None:
        return self.state.tenure.stage if self.state.tenure else None


def only(kind: type[T], actions: Iterable[Action]) -> list[T]:
    return [action for action in actions if isinstance(action, kind)]


def reports(actions: Iterable[Action]) -> list[ReportKind]:
    return [action.kind for action in only(do.SendReport, actions)]


def idle() -> Play:
    play = Play()
    play.tell(on.HoldsRead(Holds(HOST)))
    return play


def claimed() -> Play:
    play = idle()
    play.tell(on.TicketCame(KEY, "receipt"), on.ClaimAnswered(KEY, Claim.WON))
    return play


def preparing(**lease: Any) -> Play:
    play = claimed()
    play.tell(on.LeaseRead(KEY, a_lease(**lease)))
    return play


def sealing(**spec: Any) -> Play:
    play = preparing(spec=a_spec(**spec))
    play.tell(on.Prepared(KEY, BASE, 40))
    return play


def starting(**spec: Any) -> Play:
    play = sealing(**spec)
    play.tell(on.Sealed(KEY, BASE, play.now.boot))
    return play


def running(**spec: Any) -> Play:
    play = starting(**spec)
    play.tell(on.Launched(KEY, JOB), on.JobReady(KEY), on.JobProgress(KEY, 41))
    return play


def silent(**spec: Any) -> Play:
    """Return the play of a job that runs and said nothing yet."""
    play = starting(**spec)
    play.tell(on.Launched(KEY, JOB))
    return play


def committed(step: int, **changes: Any) -> on.Committed:
    event = on.Committed(KEY, step, f"manifest-{step}", f"digest-{step}", 1000, 2.0)
    return replace(event, **changes)


def interrupted() -> Play:
    play = running()
    play.tell(interruption())
    return play


def interruption(kind: NoticeKind = NoticeKind.INTERRUPTION, **changes: Any) -> on.NoticeSeen:
    return on.NoticeSeen(a_notice(kind, channel=Channel.METADATA, **changes))


def released(actions: Iterable[Action]) -> tuple[Outcome, Cause]:
    (release,) = only(do.Release, actions)
    return release.ending.outcome, release.ending.cause


# Taking work ----------------------------------------------------------------------------


def test_an_agent_says_that_it_is_there_and_waits_to_be_adopted() -> None:
    play = Play()
    play.state, said = MACHINE.start(play.state, play.now)

    assert reports(said) == [ReportKind.READY]
    assert not play.state.wants_work
    play.tell(on.NotAdopted())
    assert not play.state.wants_work
    play.tell(on.HoldsRead(Holds(HOST)))
    assert play.state.wants_work


def test_a_ticket_is_deleted_as_soon_as_its_lease_is_won() -> None:
    play = idle()

    assert play.tell(on.TicketCame(KEY, "r1")) == [do.TryClaim(KEY)]
    won = play.tell(on.ClaimAnswered(KEY, Claim.WON))

    assert won == [do.DeleteTicket("r1"), do.SendReport(ReportKind.CLAIMED, KEY)]
    assert play.state.follows == KEY


@pytest.mark.parametrize(
    ("answer", "ticket", "wants_work"),
    [
        (Claim.TAKEN, [do.DeleteTicket("r1")], True),
        (Claim.MISSING, [], True),
        (Claim.NOT_READY, [do.ReturnTicket("r1")], False),
    ],
)
def test_a_ticket_that_wins_nothing(
    answer: Claim,
    ticket: list[Action],
    wants_work: bool,  # noqa: FBT001 - a column of the table
) -> None:
    play = idle()
    play.tell(on.TicketCame(KEY, "r1"))

    assert play.tell(on.ClaimAnswered(KEY, answer)) == ticket
    assert play.state.wants_work is wants_work


def test_a_host_that_may_not_claim_tries_again_after_a_lease() -> None:
    play = idle()
    play.tell(on.TicketCame(KEY, "r1"), on.ClaimAnswered(KEY, Claim.NOT_READY))

    play.wait(59)
    assert not play.state.wants_work
    play.wait(2)
    assert play.state.wants_work


def test_a_ticket_that_comes_at_the_wrong_time_is_given_back() -> None:
    for play in (running(), interrupted(), Play()):
        assert play.tell(on.TicketCame(STALE, "r2")) == [do.ReturnTicket("r2")]


def test_what_is_held_and_not_run_is_given_up_before_new_work() -> None:
    play = Play()

    actions = play.tell(on.HoldsRead(Holds(HOST, frozenset({STALE}))))

    assert actions == [do.ReleaseStray(STALE, Cause.LOST)]
    assert not play.state.wants_work


def test_the_attempt_being_claimed_is_no_stray() -> None:
    play = idle()
    play.tell(on.TicketCame(KEY, "r1"))

    assert play.tell(on.HoldsRead(Holds(HOST, frozenset({KEY})))) == []


# Starting -------------------------------------------------------------------------------


def test_a_job_starts_only_after_its_base_is_sealed() -> None:
    play = preparing()

    assert play.tell(on.Prepared(KEY, BASE, 40)) == [do.WriteSeal(KEY, BASE)]
    (launch,) = play.tell(on.Sealed(KEY, BASE, play.now.boot))

    assert isinstance(launch, do.Launch)
    assert (launch.base, launch.base_step) == (BASE, 40)
    assert launch.not_after == play.now.boot + 15


def test_a_seal_that_shows_another_base_means_that_one_is_restored() -> None:
    play = sealing()

    (again,) = play.tell(on.Sealed(KEY, "other", play.now.boot))

    assert isinstance(again, do.Prepare)
    assert again.exactly
    assert again.lease.base == "other"
    assert play.tell(on.Prepared(KEY, "other", 20)) == [do.RenewNow(KEY)]
    (launch,) = play.tell(on.Renewed(KEY, play.now.boot))
    assert isinstance(launch, do.Launch)
    assert launch.base == "other"


def test_a_row_that_is_sealed_already_names_its_base() -> None:
    play = claimed()

    (prepare,) = play.tell(on.LeaseRead(KEY, a_lease(sealed_attempt=1, base=BASE)))

    assert prepare == do.Prepare(KEY, a_lease(sealed_attempt=1, base=BASE), exactly=True)


def test_a_start_that_comes_too_late_renews_first() -> None:
    play = sealing()
    sent = play.now.boot
    play.wait(15)

    assert play.tell(on.Sealed(KEY, BASE, sent)) == [do.RenewNow(KEY)]
    (launch,) = play.tell(on.Renewed(KEY, play.now.boot))
    assert play.tell(on.TooLate(KEY)) == [do.RenewNow(KEY)]
    assert isinstance(launch, do.Launch)


def test_the_first_renewal_follows_the_start_at_once() -> None:
    play = starting()

    actions = play.tell(on.Launched(KEY, JOB))

    assert do.RenewNow(KEY) in actions
    assert reports(actions) == [ReportKind.STARTED]
    assert play.tenure.progress.phase is Phase.RUNNING


@pytest.mark.parametrize("cause", [Cause.SETUP_FAILED, Cause.NO_VALID_CHECKPOINT])
def test_a_preparation_that_fails_fails_the_attempt(cause: Cause) -> None:
    play = preparing()

    actions = play.tell(on.PreparationFailed(KEY, cause, "why"))

    assert released(actions) == (Outcome.FAILED, cause)
    assert only(do.Launch, play.done) == []


def test_a_bad_checkpoint_is_reported_with_its_reason() -> None:
    play = preparing()

    (said,) = play.tell(on.Quarantined(KEY, BASE, "one byte flipped"))

    assert isinstance(said, do.SendReport)
    assert said.data == {"quarantined": BASE, "reason": "one byte flipped"}


# Checkpoints of a running job -------------------------------------------------------------


def test_checkpoints_are_sent_one_at_a_time_and_the_newest_next() -> None:
    play = running()

    assert play.tell(on.CheckpointFound(KEY, 50)) == [do.Upload(KEY, 50)]
    assert play.tell(on.CheckpointFound(KEY, 60), on.CheckpointFound(KEY, 70)) == []
    actions = play.tell(committed(50))

    assert only(do.Upload, actions) == [do.Upload(KEY, 70)]
    assert do.Prune(KEY, 50) in actions
    assert reports(actions) == [ReportKind.COMMITTED]


def test_an_older_checkpoint_is_dropped_only_when_a_newer_one_is_committed() -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50), interruption(), on.CheckpointFound(KEY, 60))

    assert only(do.AbortUploads, play.done) == []
    assert play.tenure.uploading == (50, 60)
    actions = play.tell(committed(60))

    assert only(do.AbortUploads, actions) == [do.AbortUploads(KEY, (50,))]
    assert play.tenure.committed_step == 60
    assert play.tell(committed(50)) == []
    assert play.tenure.committed_step == 60


def test_a_folder_that_is_no_checkpoint_is_passed_over_for_the_one_before() -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50), on.CheckpointFound(KEY, 55), on.CheckpointFound(KEY, 60))
    play.tell(committed(50))
    assert play.tenure.uploading == (60,)

    actions = play.tell(on.CommitFailed(KEY, 60, "one byte flipped"))

    assert only(do.Upload, actions) == [do.Upload(KEY, 55)]
    assert play.tell(on.CheckpointFound(KEY, 60)) == []


# The end of an attempt --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exit_code", "done", "outcome", "cause"),
    [
        (0, None, Outcome.FINISHED, Cause.DONE),
        (0, 100, Outcome.FINISHED, Cause.DONE),
        (1, 100, Outcome.FINISHED, Cause.DONE),
        (75, None, Outcome.INTERRUPTED, Cause.REQUEUE),
        (1, None, Outcome.FAILED, Cause.CRASH),
        (-9, None, Outcome.FAILED, Cause.CRASH),
        (None, None, Outcome.FAILED, Cause.CRASH),
    ],
)
def test_without_a_request_the_exit_code_says_how_it_ended(
    exit_code: int | None, done: int | None, outcome: Outcome, cause: Cause
) -> None:
    play = running()
    play.tell(on.JobExited(KEY, exit_code))

    assert released(play.tell(on.Swept(KEY, (), done))) == (outcome, cause)


@pytest.mark.parametrize("exit_code", [0, 75, 1, -15, None])
def test_under_a_request_the_exit_code_proves_nothing(exit_code: int | None) -> None:
    play = interrupted()
    play.tell(on.JobExited(KEY, exit_code))

    ended = released(play.tell(on.Swept(KEY, (), None)))

    assert ended == (Outcome.INTERRUPTED, Cause.NOTICE)


def test_done_json_is_proof_also_under_a_request() -> None:
    play = interrupted()
    play.tell(on.JobExited(KEY, 75))

    assert released(play.tell(on.Swept(KEY, (), 100))) == (Outcome.FINISHED, Cause.DONE)


def test_exit_0_while_a_checkpoint_is_asked_for_is_queued_again() -> None:
    play = running()
    play.tell(interruption(NoticeKind.REBALANCE), on.JobExited(KEY, 0))

    ended = released(play.tell(on.Swept(KEY, (), None)))

    assert ended == (Outcome.INTERRUPTED, Cause.REQUEUE)


def test_a_job_that_the_host_s_shutdown_stopped_is_no_crash() -> None:
    play = running()
    play.tell(on.JobExited(KEY, -15, "killed by SIGTERM", stopped=True))

    assert released(play.tell(on.Swept(KEY, (), None))) == (Outcome.INTERRUPTED, Cause.STOP)


def test_what_a_finished_job_left_is_committed_before_the_release() -> None:
    play = running()
    play.tell(on.JobExited(KEY, 0))

    actions = play.tell(on.Swept(KEY, (80, 90), None))
    assert actions == [do.Upload(KEY, 90)]
    actions = play.tell(committed(90))

    assert released(actions) == (Outcome.FINISHED, Cause.DONE)
    (release,) = only(do.Release, actions)
    assert release.progress.committed_step == 90


def test_the_report_follows_the_release_and_the_host_is_idle_again() -> None:
    play = running()
    play.tell(on.JobExited(KEY, 1, "exit 1: boom"), on.Swept(KEY, (), None))

    actions = play.tell(on.Released(KEY))

    assert reports(actions) == [ReportKind.FAILED, ReportKind.IDLE]
    assert only(do.SendReport, actions)[0].data["detail"] == "exit 1: boom"
    assert do.Wipe(KEY) in actions
    assert play.state.wants_work


def test_a_host_that_is_going_tells_of_its_save_in_one_last_report() -> None:
    play = running()
    play.seconds = 60.0
    asked = play.tell(interruption(), on.NoticeSeen(a_notice(channel=Channel.SSM)))
    (ask,) = only(do.Ask, asked)
    assert ask.request.id
    play.seconds = 62.0
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVING, None))
    play.seconds = 63.0
    play.tell(on.CheckpointFound(KEY, 60), on.JobAcked(KEY, ask.request.id, AckState.SAVED, 60))
    play.seconds = 64.0
    play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (60,), None))
    play.seconds = 66.0
    play.tell(committed(60, bytes=9, seconds=2.0, uploaded=1065.5))
    play.seconds = 67.0
    said = only(do.SendReport, play.tell(on.Released(KEY)))

    assert reports(play.done)[-2:] == [ReportKind.NOTICED, ReportKind.INTERRUPTED]
    told = said[0].data
    seconds = {name: told[f"{name}_s"] for name in ("accepted", "saved", "quiesced", "uploaded")}
    assert seconds == {"accepted": 2.0, "saved": 3.0, "quiesced": 4.0, "uploaded": 5.5}
    assert (told["committed_s"], told["released_s"], told["lead_seconds"]) == (6.0, 7.0, 54.0)
    assert (told["heard_metadata_s"], told["heard_ssm_s"]) == (0.0, 0.0)
    assert (told["saved_step"], told["committed_step"], told["bytes"]) == (60, 60, 9)


def test_of_two_commits_under_a_request_the_receipt_tells_of_the_newest() -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50), interruption(), on.CheckpointFound(KEY, 60))
    play.seconds = 3.0
    play.tell(committed(50))
    play.seconds = 5.0
    play.tell(committed(60), on.JobExited(KEY, 75), on.Swept(KEY, (), None))
    (said,) = only(do.SendReport, play.tell(on.Released(KEY)))
    assert (said.data["committed_s"], said.data["committed_step"]) == (5.0, 60)


def test_what_came_over_ssm_is_no_news_to_the_functions() -> None:
    play = running()
    before = len(play.done)
    play.tell(on.NoticeSeen(a_notice(channel=Channel.SSM)), interruption())
    assert reports(play.done[before:]) == []
    assert len(only(do.Ask, play.done[before:])) == 1


def test_a_drained_host_goes_without_a_word_more() -> None:
    play = interrupted()
    play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (), None), on.Released(KEY))
    before = len(play.done)
    went = play.wait(300)
    assert only(do.Leave, went)
    assert reports(play.done[before:]) == []


def test_a_refused_release_ends_in_eviction() -> None:
    play = running()
    play.tell(on.JobExited(KEY, 0), on.Swept(KEY, (), None))

    actions = play.tell(on.ReleaseRefused(KEY))

    assert only(do.Evict, actions) == [do.Evict(KEY, JOB)]
    assert play.stage is Stage.EVICTING


# A lost lease -----------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [claimed, preparing, sealing, starting, running, interrupted])
def test_a_refused_renewal_ends_everything_of_that_attempt(begin: Any) -> None:
    play = begin()

    actions = play.tell(on.LeaseLost(KEY))

    assert only(do.Evict, actions)
    assert only(do.AbortUploads, actions)
    assert only(do.AbortPreparation, actions)
    assert reports(actions) == [ReportKind.REFUSED]
    assert play.state.follows is None
    assert play.tell(on.Launched(KEY, JOB)) == [do.Kill(KEY, JOB)]
    play.tell(on.Evicted(KEY))
    assert play.state.tenure is None
    assert only(do.Release, play.done) == []


def test_news_of_another_attempt_changes_nothing() -> None:
    play = running()
    before = play.state

    late: list[Event] = [
        on.LeaseLost(STALE),
        on.JobExited(STALE, 0),
        on.Released(STALE),
        on.Committed(STALE, 99, "m", "d", 1, 1.0),
        on.ClaimAnswered(STALE, Claim.WON),
    ]

    assert play.tell(*late) == []
    assert play.state == before


# Notices ----------------------------------------------------------------------------------


def test_a_notice_asks_the_job_at_once_and_takes_no_new_work() -> None:
    play = running()

    actions = play.tell(interruption())

    (ask,) = only(do.Ask, actions)
    assert ask.request.id == f"interruption:{HOST}:1"
    assert ask.request.kind is RequestKind.CHECKPOINT_EXIT
    assert ask.request.deadline == 1000 + 120 - 15
    assert ask.request.save_by < ask.request.deadline
    assert actions[0] is ask  # before anybody else is told
    assert reports(actions) == [ReportKind.NOTICED]
    assert not play.state.wants_work
    assert play.tenure.progress.phase is Phase.SAVING


def test_the_same_notice_from_every_channel_makes_one_request() -> None:
    play = running()
    for channel in (Channel.METADATA, Channel.SSM, Channel.EVENT, Channel.METADATA):
        play.tell(on.NoticeSeen(a_notice(channel=channel)))

    assert len(only(do.Ask, play.done)) == 1
    assert reports(play.done).count(ReportKind.NOTICED) == 1


def test_an_earlier_time_from_another_channel_moves_the_deadline() -> None:
    play = interrupted()

    (ask,) = play.tell(interruption(reclaimed_at=at(108)))

    assert isinstance(ask, do.Ask)
    assert (ask.request.id, ask.request.deadline) == (f"interruption:{HOST}:1", 1000 + 108 - 15)
    assert not ask.wake


@pytest.mark.parametrize(
    ("reclaimed_at", "ends"),
    [
        pytest.param(at(100), 1085, id="as announced"),
        pytest.param(at(900), 1105, id="never later than a whole notice"),
        pytest.param(at(-3600), 1105, id="a time in the past proves nothing"),
        pytest.param(None, 1105, id="no time at all"),
    ],
)
def test_when_the_work_must_have_ended(reclaimed_at: Any, ends: float) -> None:
    play = running()

    (ask,) = only(do.Ask, play.tell(interruption(reclaimed_at=reclaimed_at)))

    assert ask.request.deadline == ends


def test_maintenance_is_handed_over_within_the_time_announced() -> None:
    play = running()

    actions = play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(500)))

    (ask,) = only(do.Ask, actions)
    assert ask.request.exits
    assert ask.request.deadline == 1000 + 500 - 15


def test_maintenance_days_ahead_is_a_checkpoint_now_and_the_job_goes_on() -> None:
    play = running()

    actions = play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(7200)))
    (ask,) = only(do.Ask, actions)
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 50), on.CheckpointFound(KEY, 50))
    play.tell(committed(50))

    assert ask.request.kind is RequestKind.CHECKPOINT
    assert play.stage is Stage.RUNNING
    assert not play.state.wants_work
    assert only(do.Kill, play.wait(6500)) == []


def test_a_job_leaves_before_the_maintenance_starts_under_a_request_of_its_own() -> None:
    play = running(periodic_saves=False)
    (first,) = only(do.Ask, play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(7200))))

    assert only(do.Ask, play.wait(6599)) == []
    actions = play.wait(2)

    (ask,) = only(do.Ask, actions)
    assert ask.request.exits
    assert ask.request.deadline == 1000 + 7200 - 15
    assert ask.request.id != first.request.id
    assert reports(actions) == [ReportKind.NOTICED]  # now it is time for a replacement


def test_a_warning_does_not_wait_for_the_maintenance_before_it() -> None:
    play = running()
    play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(7200)))

    (ask,) = only(do.Ask, play.tell(interruption()))

    assert ask.request.id == f"interruption:{HOST}:1"
    assert ask.request.exits


def test_maintenance_that_is_called_off_in_time_moves_nothing() -> None:
    play = running()
    play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(7200)))
    play.wait(200)

    said = play.tell(interruption(NoticeKind.MAINTENANCE, doubt=Doubt.OVER))

    assert reports(said) == [ReportKind.NOTICED]
    assert play.state.standing is None
    assert not any(ask.request.exits for ask in only(do.Ask, play.wait(7200)))


def test_what_is_handed_over_already_is_not_called_back() -> None:
    play = running()
    play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(500)))

    assert play.tell(interruption(NoticeKind.MAINTENANCE, doubt=Doubt.OVER)) == []
    assert play.state.going


@pytest.mark.parametrize("kind", [k for k in NoticeKind if a_notice(k).host_leaves])
def test_a_host_that_ec2_will_not_take_soon_leaves_once_it_is_empty(kind: NoticeKind) -> None:
    busy, free = running(), idle()

    assert only(do.Leave, busy.tell(interruption(kind, reclaimed_at=at(300)))) == []
    busy.tell(on.JobExited(KEY, 75), on.Swept(KEY, (), None))
    (left,) = only(do.Leave, busy.tell(on.Released(KEY)))
    (gone,) = only(do.Leave, free.tell(interruption(kind, reclaimed_at=at(300))))

    assert left.shutdown
    assert gone.shutdown


def test_a_host_under_maintenance_days_ahead_stays_while_it_has_work() -> None:
    play = running()
    assert (
        only(do.Leave, play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(7200)))) == []
    )


@pytest.mark.parametrize("kind", [NoticeKind.RESERVATION, NoticeKind.DRAIN])
def test_a_deadline_that_was_given_is_used_to_the_end(kind: NoticeKind) -> None:
    play = running()
    (ask,) = only(do.Ask, play.tell(interruption(kind, reclaimed_at=at(600))))
    assert ask.request.deadline == 1000 + 600 - 15


def test_a_warning_after_maintenance_shortens_the_same_request() -> None:
    play = running()
    play.tell(interruption(NoticeKind.MAINTENANCE, reclaimed_at=at(500)))

    (ask,) = only(do.Ask, play.tell(interruption()))

    assert ask.request.id == f"maintenance:{HOST}:1"
    assert ask.request.deadline == 1105
    assert play.tenure.request
    assert play.tenure.request.cause is Cause.NOTICE


def test_hibernation_releases_at_once() -> None:
    play = running()

    actions = play.tell(interruption(NoticeKind.HIBERNATE))

    assert only(do.Kill, actions) == [do.Kill(KEY, JOB)]
    assert only(do.Ask, actions) == []
    play.tell(on.JobExited(KEY, -9))
    assert released(play.tell(on.Swept(KEY, (50,), None))) == (Outcome.INTERRUPTED, Cause.NOTICE)


@pytest.mark.parametrize("begin", [claimed, preparing, sealing])
def test_a_notice_before_the_start_gives_the_attempt_back(begin: Any) -> None:
    play = begin()

    actions = play.tell(interruption())

    assert released(actions) == (Outcome.INTERRUPTED, Cause.NOTICE)
    assert only(do.AbortPreparation, actions)


def test_a_notice_during_the_claim_or_the_start_is_heeded_right_after() -> None:
    claiming = idle()
    claiming.tell(on.TicketCame(KEY, "r1"), interruption())
    assert released(claiming.tell(on.ClaimAnswered(KEY, Claim.WON))) == (
        Outcome.INTERRUPTED,
        Cause.NOTICE,
    )

    late = starting()
    assert only(do.Release, late.tell(interruption())) == []
    assert only(do.Ask, late.tell(on.Launched(KEY, JOB)))


def test_a_state_change_is_no_news_for_the_host_itself() -> None:
    play = running()

    assert play.tell(interruption(NoticeKind.STATE_CHANGE)) == []


# Rebalance --------------------------------------------------------------------------------


def test_advice_asks_for_a_checkpoint_and_the_job_goes_on() -> None:
    play = running()

    (ask,) = only(do.Ask, play.tell(interruption(NoticeKind.REBALANCE)))
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 50), on.CheckpointFound(KEY, 50))
    play.tell(committed(50))

    assert ask.request.kind is RequestKind.CHECKPOINT
    assert play.stage is Stage.RUNNING
    assert play.tenure.request is None
    assert not play.state.wants_work


def test_advice_that_nothing_follows_stands_down() -> None:
    play = idle()
    play.tell(interruption(NoticeKind.REBALANCE))
    assert not play.state.wants_work

    play.state = replace(play.state, idle_since=1000.0 + 1200)  # it isn't the idle limit's turn
    play.wait(1201)

    assert play.state.wants_work


def test_a_request_that_advice_made_never_kills() -> None:
    play = running()
    play.tell(interruption(NoticeKind.REBALANCE))

    actions = play.wait(1000)

    assert only(do.Terminate, actions) == []
    assert only(do.Kill, actions) == []
    assert play.tenure.request is None


def test_advice_is_rate_limited_and_asks_anew_under_another_name() -> None:
    play = running()
    play.tell(interruption(NoticeKind.REBALANCE))
    play.state = replace(play.state, standing=None, tenure=replace(play.tenure, request=None))

    assert only(do.Ask, play.tell(interruption(NoticeKind.REBALANCE))) == []
    play.wait(1201)
    (ask,) = only(do.Ask, play.tell(interruption(NoticeKind.REBALANCE)))

    assert ask.request.id == f"rebalance:{HOST}:1:2"


def test_a_warning_after_advice_is_a_new_request() -> None:
    play = running()
    play.tell(interruption(NoticeKind.REBALANCE))

    (ask,) = only(do.Ask, play.tell(interruption()))

    assert ask.request.id == f"interruption:{HOST}:1"
    assert ask.request.kind is RequestKind.CHECKPOINT_EXIT
    assert play.tell(interruption(NoticeKind.REBALANCE)) == []


def test_a_job_that_wants_it_is_asked_to_save_every_so_often() -> None:
    play = starting(save_every=timedelta(seconds=300))
    play.tell(on.Launched(KEY, JOB))
    assert only(do.Ask, play.wait(301)) == []  # it hasn't registered, so it can't be asked

    first = only(do.Ask, play.tell(on.JobReady(KEY)) + play.wait(1))
    play.tell(on.JobAcked(KEY, first[0].request.id, AckState.SAVED, 50))
    play.tell(on.CheckpointFound(KEY, 50), committed(50))
    assert only(do.Ask, play.wait(298)) == []
    second = only(do.Ask, play.wait(2))

    assert [ask.request.id for ask in first + second] == [
        f"periodic:{HOST}:1:1",
        f"periodic:{HOST}:1:2",
    ]
    assert all(not ask.request.exits for ask in first + second)
    assert only(do.Ask, play.tell(interruption()))[0].request.exits


# Escalation -------------------------------------------------------------------------------


def test_a_job_that_never_said_a_word_has_sigterm_for_its_request() -> None:
    play = silent()
    play.wait(60)

    play.tell(interruption(reclaimed_at=at(180)))

    assert only(do.Terminate, play.wait(0)) == [do.Terminate(KEY, JOB)]
    assert only(do.Kill, play.wait(99)) == []  # what it saves by its own means, it may save
    assert only(do.Kill, play.wait(2)) == [do.Kill(KEY, JOB)]


def test_a_job_that_just_started_is_given_the_time_to_say_its_first_word() -> None:
    play, other = silent(), silent()
    play.wait(30)
    other.wait(30)

    play.tell(interruption(reclaimed_at=at(150)))
    other.tell(interruption(reclaimed_at=at(150)))

    assert only(do.Terminate, play.wait(29)) == []
    assert only(do.Terminate, play.wait(2)) == [do.Terminate(KEY, JOB)]
    other.wait(29)
    other.tell(on.JobReady(KEY))  # it was still importing: now it has half of the time
    assert only(do.Terminate, other.wait(20)) == []
    assert only(do.Terminate, other.wait(2)) == [do.Terminate(KEY, JOB)]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({}, on.JobProgress(KEY, 41)),
        ({}, on.CheckpointFound(KEY, 41)),
        ({"profile": ("hf",)}, on.Tick()),
    ],
    ids=["progress", "a-checkpoint", "a-profile"],
)
def test_whoever_speaks_or_saves_is_waited_for_though_it_never_registered(
    spec: dict[str, Any], word: Event
) -> None:
    play = silent(**spec)
    play.tell(word)
    play.wait(60)

    play.tell(interruption(reclaimed_at=at(180)))

    assert only(do.Terminate, play.wait(49)) == []
    assert only(do.Terminate, play.wait(2)) == [do.Terminate(KEY, JOB)]


def test_a_deaf_job_is_terminated_at_half_time_and_killed_with_time_left_to_commit() -> None:
    play = interrupted()

    first = play.wait(49)
    assert only(do.Terminate, first) == []
    second = play.wait(2)
    assert only(do.Terminate, second) == [do.Terminate(KEY, JOB)]
    assert only(do.Kill, second) == []
    third = play.wait(60)

    assert only(do.Kill, third) == [do.Kill(KEY, JOB)]
    assert len(only(do.Terminate, play.done)) == 1


def test_a_job_that_is_saving_is_left_alone_until_nothing_could_be_committed() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVING, None))

    assert only(do.Terminate, play.wait(99)) == []
    assert only(do.Kill, play.done) == []
    assert only(do.Kill, play.wait(6)) == [do.Kill(KEY, JOB)]


def test_a_slow_upload_leaves_the_save_less_time() -> None:
    quick, slow = running(), running()
    slow.tell(on.CheckpointFound(KEY, 50), committed(50, seconds=30.0))

    (quick_ask,) = only(do.Ask, quick.tell(interruption()))
    (slow_ask,) = only(do.Ask, slow.tell(interruption()))

    assert quick_ask.request.deadline - quick_ask.request.save_by == pytest.approx(5)
    assert slow_ask.request.deadline - slow_ask.request.save_by == pytest.approx(39)


@pytest.mark.parametrize("answer", [AckState.DECLINED, AckState.FAILED])
def test_a_job_that_wont_save_is_ended_so_that_its_last_checkpoint_is_sent(
    answer: AckState,
) -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50), interruption())
    (ask,) = only(do.Ask, play.done)

    actions = play.tell(on.JobAcked(KEY, ask.request.id, answer, None))
    assert only(do.Kill, actions) == [do.Kill(KEY, JOB)]
    play.tell(on.JobExited(KEY, -9), on.Swept(KEY, (50,), None))

    assert released(play.tell(committed(50))) == (Outcome.INTERRUPTED, Cause.NOTICE)


def test_a_saved_job_that_doesnt_leave_gets_a_moment_and_no_more() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)
    play.tell(
        on.JobAcked(KEY, ask.request.id, AckState.SAVING, None),
        on.CheckpointFound(KEY, 60),
        committed(60),
        on.JobAcked(KEY, ask.request.id, AckState.SAVED, 60),
    )

    assert only(do.Kill, play.wait(4)) == []
    assert only(do.Kill, play.wait(2)) == [do.Kill(KEY, JOB)]


def test_a_save_that_is_quick_ends_the_wait_at_once() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)
    play.seconds = 2.0
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 60), on.JobExited(KEY, 75))
    play.tell(on.Swept(KEY, (60,), None))
    play.seconds = 3.0
    assert released(play.tell(committed(60))) == (Outcome.INTERRUPTED, Cause.NOTICE)
    said = play.tell(on.Released(KEY))

    receipt = only(do.SendReport, said)[0].data
    assert receipt["saved_s"] == 2.0
    assert receipt["quiesced_s"] == 2.0
    assert receipt["released_s"] == 3.0
    assert receipt["digest"] == "digest-60"
    assert receipt["committed_step"] == 60


def test_a_save_is_news_of_the_step_too() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)

    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 54), on.JobExited(KEY, 75))
    play.tell(on.Swept(KEY, (54,), None))

    (release,) = only(do.Release, play.tell(committed(54)))
    assert release.progress.step == 54


def test_an_upload_that_outlasts_the_notice_is_cut_and_the_older_commit_stands() -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50), committed(50), interruption())
    play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (60,), None))

    assert only(do.Release, play.wait(104)) == []
    actions = play.wait(2)

    assert only(do.AbortUploads, actions)
    (release,) = only(do.Release, actions)
    assert release.progress.committed_step == 50


def test_a_late_answer_doesnt_take_a_save_back() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 60))

    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVING, None))
    play.tell(on.JobAcked(KEY, "another request", AckState.FAILED, None))

    assert play.tenure.request
    assert play.tenure.request.ack is AckState.SAVED


def test_a_job_that_registers_late_is_asked_again() -> None:
    play = starting()
    play.tell(on.Launched(KEY, JOB), interruption())

    actions = play.tell(on.JobReady(KEY))

    assert [ask.request.id for ask in only(do.Ask, actions)] == [f"interruption:{HOST}:1"]


# Leaving ----------------------------------------------------------------------------------


def test_an_idle_host_leaves_after_its_limit() -> None:
    play = idle()

    assert only(do.Leave, play.wait(599)) == []
    assert only(do.Leave, play.wait(2)) == [do.Leave("no work", shutdown=True)]


def test_a_host_with_a_job_never_leaves_for_idleness() -> None:
    play = running()

    assert only(do.Leave, play.wait(100_000)) == []


def test_a_drained_host_stays_until_it_is_reclaimed_but_not_much_longer() -> None:
    play = interrupted()
    play.tell(on.JobExited(KEY, 75), on.Swept(KEY, (), None), on.Released(KEY))
    assert not play.state.wants_work

    assert only(do.Leave, play.wait(179)) == []
    (leave,) = only(do.Leave, play.wait(2))
    assert leave.shutdown


def test_a_stop_hands_the_job_over_and_leaves_the_host_running() -> None:
    play = running()

    (ask,) = only(do.Ask, play.tell(on.StopAsked()))
    assert ask.request.id == f"stop:{HOST}:1"
    assert ask.request.deadline == 1090
    play.tell(on.JobExited(KEY, 75))
    assert released(play.tell(on.Swept(KEY, (), None))) == (Outcome.INTERRUPTED, Cause.STOP)
    actions = play.tell(on.Released(KEY))

    assert only(do.Leave, actions) == [do.Leave("told to stop", shutdown=False)]
    assert reports(actions) == [ReportKind.INTERRUPTED, ReportKind.LEAVING]


def test_a_stop_of_an_idle_agent_is_immediate_and_only_once() -> None:
    play = idle()

    assert only(do.Leave, play.tell(on.StopAsked())) == [do.Leave("told to stop", shutdown=False)]
    assert play.tell(on.StopAsked()) == []


def test_a_stop_that_takes_too_long_kills_what_runs() -> None:
    play = running()
    play.tell(on.StopAsked())

    actions = play.wait(106)

    assert only(do.Kill, actions)[-1] == do.Kill(KEY, JOB)
    assert only(do.Leave, actions)


@pytest.mark.parametrize(
    ("begin", "isolated", "limit"),
    [
        pytest.param(idle, {"metadata": False}, 600, id="nobody answers an idle host"),
        pytest.param(running, {"metadata": False}, 600, id="nobody answers a busy host"),
        pytest.param(idle, {"metadata": True}, 1200, id="only the table is silent, idle"),
        pytest.param(running, {"metadata": True}, 7200, id="only the table is silent, busy"),
        pytest.param(
            running, {"metadata": True, "refused": True}, 1200, id="the table refuses a busy host"
        ),
    ],
)
def test_a_host_that_nobody_hears_doesnt_live_for_ever(
    begin: Any, isolated: dict[str, bool], limit: float
) -> None:
    play = begin()

    assert play.tell(on.Isolated(limit - 1, **isolated)) == []
    decided = play.tell(on.Isolated(limit, **isolated))

    (leave,) = only(do.Leave, decided)
    assert leave.shutdown
    assert bool(only(do.Kill, decided)) == (begin is running)


# After a crash of the agent -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        pytest.param(lambda: _with_ticket(idle()), do.TryClaim, id="CLAIMING"),
        pytest.param(preparing, do.Prepare, id="PREPARING"),
        pytest.param(sealing, do.WriteSeal, id="SEALING"),
        pytest.param(starting, do.RenewNow, id="STARTING"),
        pytest.param(running, do.Attach, id="RUNNING"),
        pytest.param(lambda: _exited(running()), do.Sweep, id="CLOSING"),
        pytest.param(lambda: _swept(running()), do.Release, id="RELEASING"),
        pytest.param(lambda: _lost(running()), do.Evict, id="EVICTING"),
    ],
)
def test_after_a_crash_the_agent_does_again_what_it_had_decided(
    begin: Any, again: type[Action]
) -> None:
    play = begin()

    state, actions = MACHINE.recover(from_item(State, to_item(play.state)), play.now)

    assert only(again, actions)
    assert state.tenure
    assert state.tenure.stage is play.stage


def test_an_agent_started_again_after_a_stop_takes_work_again() -> None:
    play = idle()
    play.tell(on.StopAsked())
    assert play.state.leaving

    play.state, _ = MACHINE.recover(play.state, play.now)
    play.tell(on.HoldsRead(Holds(HOST)))

    assert play.state.wants_work


def test_after_a_crash_the_same_request_is_written_again_and_no_other() -> None:
    play = interrupted()
    (first,) = only(do.Ask, play.done)

    _, actions = MACHINE.recover(play.state, play.now)

    assert [ask.request for ask in only(do.Ask, actions)] == [first.request]


def test_after_a_crash_a_request_that_was_answered_isnt_repeated() -> None:
    play = interrupted()
    (ask,) = only(do.Ask, play.done)
    play.tell(on.JobAcked(KEY, ask.request.id, AckState.SAVED, 60))

    _, actions = MACHINE.recover(play.state, play.now)

    assert only(do.Ask, actions) == []


def test_after_a_crash_what_was_uploading_is_found_and_sent_again() -> None:
    play = running()
    play.tell(on.CheckpointFound(KEY, 50))

    play.state, _ = MACHINE.recover(play.state, play.now)

    assert play.tell(on.CheckpointFound(KEY, 50)) == [do.Upload(KEY, 50)]


def _with_ticket(play: Play) -> Play:
    play.tell(on.TicketCame(KEY, "r1"))
    return play


def _exited(play: Play) -> Play:
    play.tell(on.JobExited(KEY, 0))
    return play


def _swept(play: Play) -> Play:
    play.tell(on.JobExited(KEY, 0), on.Swept(KEY, (), None))
    return play


def _lost(play: Play) -> Play:
    play.tell(on.LeaseLost(KEY))
    return play


# Whatever happens ---------------------------------------------------------------------------

STEPS = st.integers(min_value=0, max_value=90)
KEYS = st.sampled_from([KEY, KEY, KEY, STALE])
REQUESTS = st.sampled_from(
    [f"{kind}:{HOST}:1" for kind in ("interruption", "rebalance", "maintenance", "stop")]
)
BASES = st.sampled_from([None, BASE, "other"])


def notices() -> st.SearchStrategy[Event]:
    return st.builds(
        lambda kind, channel, seconds: on.NoticeSeen(
            a_notice(kind, channel=channel, reclaimed_at=None if seconds is None else at(seconds))
        ),
        st.sampled_from(NoticeKind),
        st.sampled_from(Channel),
        st.one_of(st.none(), st.integers(-600, 7200)),
    )


ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.just(on.Tick()),
    st.just(on.StopAsked()),
    notices(),
    st.builds(on.HoldsRead, st.builds(Holds, st.just(HOST), st.frozensets(KEYS))),
    st.just(on.NotAdopted()),
    st.builds(on.Isolated, st.floats(0, 10_000), st.booleans(), st.booleans()),
    st.builds(on.TicketCame, KEYS, st.just("r")),
    st.builds(on.ClaimAnswered, KEYS, st.sampled_from(Claim)),
    st.builds(
        on.LeaseRead,
        KEYS,
        st.builds(
            lambda sealed, base: a_lease(a_job(), sealed_attempt=sealed, base=base),
            st.integers(0, 1),
            BASES,
        ),
    ),
    st.builds(on.LeaseLost, KEYS),
    st.builds(on.Renewed, KEYS, st.floats(900, 1100)),
    st.builds(on.Prepared, KEYS, BASES, st.one_of(st.none(), STEPS)),
    st.builds(on.PreparationFailed, KEYS, st.just(Cause.SETUP_FAILED), st.just("why")),
    st.builds(on.Sealed, KEYS, BASES, st.floats(900, 1100)),
    st.builds(on.TooLate, KEYS),
    st.builds(on.Launched, KEYS, st.just(JOB)),
    st.builds(on.JobReady, KEYS),
    st.builds(on.JobProgress, KEYS, STEPS),
    st.builds(on.JobAcked, KEYS, REQUESTS, st.sampled_from(AckState), st.one_of(st.none(), STEPS)),
    st.builds(on.CheckpointFound, KEYS, STEPS),
    st.builds(on.JobExited, KEYS, st.sampled_from([None, 0, 1, 75, -9])),
    st.builds(on.Swept, KEYS, st.lists(STEPS, max_size=3).map(tuple), st.one_of(st.none(), STEPS)),
    st.builds(
        on.Committed,
        KEYS,
        STEPS,
        st.just("manifest"),
        st.just("digest"),
        st.just(1000),
        st.floats(0, 100),
    ),
    st.builds(on.CommitFailed, KEYS, STEPS, st.just("bad")),
    st.builds(on.Released, KEYS),
    st.builds(on.ReleaseRefused, KEYS),
    st.builds(on.Evicted, KEYS),
)
STARTS = st.sampled_from([Play, idle, claimed, preparing, sealing, starting, running, interrupted])
TIMELINES = st.lists(st.tuples(st.floats(0, 40), ANY_EVENT), max_size=30)


@given(STARTS, TIMELINES)
@settings(max_examples=400)
def test_no_order_of_events_breaks_a_rule(begin: Any, timeline: Any) -> None:
    play = begin()
    exit_requests: dict[LeaseKey, set[str]] = {}
    endings: dict[LeaseKey, set[object]] = {}
    over: set[LeaseKey] = set()
    for action in play.done:
        _note(action, exit_requests, endings)
    for pause, event in timeline:
        before = play.state
        decided = play.wait(pause)
        leaving = play.state.leaving
        answered = play.tell(event)
        decided += answered

        for action in decided:
            _note(action, exit_requests, endings)
            if isinstance(action, do.Launch):
                assert action.key not in over
                assert before.tenure
            if isinstance(action, do.Upload):
                durable = play.tenure.committed_step
                assert durable is None or action.step > durable
        if leaving:
            assert all(isinstance(action, do.ReturnTicket) for action in answered)
        if before.tenure and play.state.tenure is None:
            over.add(before.tenure.key)
        if play.state.tenure:
            over.discard(play.state.tenure.key)  # a ticket may name it again: the lease decides
            endings.pop(play.state.tenure.key, None) if play.stage is Stage.CLAIMING else None
            if play.stage is Stage.CLAIMING:
                exit_requests.pop(play.tenure.key, None)
        assert all(len(ids) == 1 for ids in exit_requests.values())
        assert all(len(ends) == 1 for ends in endings.values())
        assert from_item(State, to_item(play.state)) == play.state
        assert not (play.state.wants_work and play.state.going)


def _note(
    action: Action,
    exit_requests: dict[LeaseKey, set[str]],
    endings: dict[LeaseKey, set[object]],
) -> None:
    if isinstance(action, do.Ask) and action.request.exits:
        exit_requests.setdefault(action.key, set()).add(action.request.id)
    if isinstance(action, do.Release):
        endings.setdefault(action.key, set()).add(action.ending)


@given(STARTS, TIMELINES)
@settings(max_examples=200)
def test_a_tick_at_the_time_asked_for_always_moves_on(begin: Any, timeline: Any) -> None:
    play = begin()
    for pause, event in timeline:
        play.tell(event)
        for _ in range(12):
            due = MACHINE.wake_at(play.state)
            if due is None or due > play.now.boot:
                break
            play.tell(on.Tick())
        due = MACHINE.wake_at(play.state)
        assert due is None or due > play.now.boot
        play.seconds += pause


@given(STARTS, TIMELINES)
@settings(max_examples=200)
def test_a_host_under_notice_always_ends_in_a_world_that_answers(begin: Any, timeline: Any) -> None:
    play = begin()
    for pause, event in timeline:
        play.wait(pause)
        play.tell(event)
    play.state, again = MACHINE.recover(play.state, play.now)
    pending = [*again, *play.tell(interruption(reclaimed_at=None))]
    ends = play.seconds + 120 + 60 + 1

    while play.seconds < ends and not play.state.leaving:
        for _ in range(50):
            answers = [event for action in pending for event in _answer(action, play)]
            if not answers:
                break
            pending = play.tell(*answers)
        assert play.state.tenure is None or play.stage is not Stage.RELEASING
        pending = play.wait(5)

    assert play.state.leaving
    assert play.state.tenure is None


def _answer(action: Action, play: Play) -> list[Event]:
    """Say what a world without faults would."""
    boot = play.now.boot
    answers: dict[type[Action], Callable[[Any], Event]] = {
        do.TryClaim: lambda a: on.ClaimAnswered(a.key, Claim.TAKEN),
        do.Prepare: lambda a: on.Prepared(a.key, a.lease.base, 1),
        do.WriteSeal: lambda a: on.Sealed(a.key, a.base, boot),
        do.RenewNow: lambda a: on.Renewed(a.key, boot),
        do.Launch: lambda a: on.Launched(a.key, JOB),
        do.Kill: lambda a: on.JobExited(a.key, -9),
        do.Terminate: lambda a: on.JobExited(a.key, -15),
        do.Sweep: lambda a: on.Swept(a.key, (95,), None),
        do.Upload: lambda a: on.Committed(a.key, a.step, "m", "d", 1, 1.0),
        do.Release: lambda a: on.Released(a.key),
        do.Evict: lambda a: on.Evicted(a.key),
    }
    answer = answers.get(type(action))
    return [answer(action)] if answer else []


def test_the_periods_fit_into_each_other_at_every_length_of_a_notice() -> None:
    for seconds in (4, 6, 20, 120):
        periods = Periods.of(NoticeClock.of_seconds(seconds))
        clock = NoticeClock(timedelta(seconds=seconds))

        assert periods.reserve + periods.margin < periods.notice / 4
        assert periods.stop_budget + periods.margin < 110 / 120 * seconds
        assert periods.renewal < periods.lease * 5 / 6
        assert periods.isolation > clock.silent_sweeps * clock.sweep.total_seconds()
        assert periods.idle > periods.notice + periods.margin
