"""The thread that keeps the lease."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from reprieve.adapters.memory import Memory
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import LeaseLostError, UnknownOutcomeError
from reprieve.domain.lease import Cause, Holds, LeaseState, Outcome, Phase
from reprieve.ports.leases import Claim, Progress
from reprieve_agent import events as on
from reprieve_agent.events import Event
from reprieve_agent.leases import ClosedError, LeaseDesk
from reprieve_agent.state import Ending
from tests.agent.harness import wait_until
from tests.builders import BOOT, HOST, a_holder, a_host, a_job, a_key, a_lease
from tests.stored import submit

KEY = a_key()
RUNNING = Progress(phase=Phase.RUNNING, step=7)


class Desk:
    """A lease desk over a table in memory, and what it said."""

    def __init__(self, *, adopted: bool = True, notice_seconds: float = 1.6) -> None:
        self.memory = Memory()
        if adopted:
            self.memory.hosts.adopt(a_host())
        submit(self.memory.rows, a_job(), a_lease())
        self.said: list[Event] = []
        self.metadata = True
        self.desk = LeaseDesk(
            self.memory.leases,
            a_holder(HOST, BOOT),
            # An eighth of it: renew every 0.2 s, stop committing after 0.67 s.
            NoticeClock.of_seconds(notice_seconds),
            self.said.append,
            metadata_answers=lambda: self.metadata,
        )

    def heard(self, kind: type[Event]) -> list[Event]:
        return [event for event in list(self.said) if isinstance(event, kind)]

    def beats(self) -> int:
        return self.memory.lease_rows[KEY].beat

    def hold(self) -> None:
        assert self.desk.claim(KEY) is Claim.WON
        self.desk.follow(KEY, RUNNING)
        wait_until(lambda: self.heard(on.LeaseRead), "the row was read")


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    desk.desk.start()
    yield desk
    desk.desk.end()


def test_an_idle_host_beats_and_learns_what_it_holds(desk: Desk) -> None:
    wait_until(lambda: len(desk.heard(on.HoldsRead)) >= 3, "idle beats")

    holds = [event.holds for event in desk.heard(on.HoldsRead) if isinstance(event, on.HoldsRead)]
    assert holds[:2] == [Holds(HOST, beat=1), Holds(HOST, beat=2)]


def test_an_unadopted_host_hears_that_it_is(desk: Desk) -> None:
    desk.memory.holds_rows.clear()

    wait_until(lambda: desk.heard(on.NotAdopted), "not adopted")

    assert desk.heard(on.Isolated) == []


def test_the_first_renewal_comes_at_once_and_brings_the_whole_row(desk: Desk) -> None:
    desk.hold()

    (read,) = desk.heard(on.LeaseRead)
    assert isinstance(read, on.LeaseRead)
    assert read.lease.spec == a_job().spec
    assert desk.memory.lease_rows[KEY].step == 7
    assert desk.desk.may_commit(KEY)


def test_it_renews_again_and_again_and_tells_the_row_only_once(desk: Desk) -> None:
    desk.hold()
    first = desk.beats()

    wait_until(lambda: desk.beats() >= first + 4, "renewals")

    assert len(desk.heard(on.LeaseRead)) == 1


def test_a_renewal_that_is_asked_for_is_answered(desk: Desk) -> None:
    desk.hold()

    desk.desk.renew_now(KEY)

    wait_until(lambda: desk.heard(on.Renewed), "renewed")


def test_a_commit_is_told_at_once() -> None:
    """By itself it would be told minutes later."""
    desk = Desk(notice_seconds=3600)
    desk.desk.start()
    desk.hold()

    desk.desk.follow(KEY, Progress(phase=Phase.RUNNING, step=9, committed_step=9))

    wait_until(lambda: desk.memory.lease_rows[KEY].committed_step == 9, "told")
    desk.desk.end()


def test_a_refused_renewal_is_said_once_and_ends_the_commits(desk: Desk) -> None:
    desk.hold()
    del desk.memory.lease_rows[KEY]

    wait_until(lambda: desk.heard(on.LeaseLost), "lost")
    renewals = desk.memory.calls.count("leases.renew")

    assert not desk.desk.may_commit(KEY)
    assert desk.heard(on.LeaseLost) == [on.LeaseLost(KEY)]
    assert desk.memory.calls.count("leases.renew") == renewals


def test_without_an_answer_commits_end_by_the_host_s_own_clock_and_the_silence_is_told(
    desk: Desk,
) -> None:
    desk.hold()

    def before(operation: str) -> None:
        raise UnknownOutcomeError(operation)

    desk.memory.before = before
    desk.metadata = False

    wait_until(lambda: not desk.desk.may_commit(KEY), "5/6 of a lease")
    wait_until(lambda: len(desk.heard(on.Isolated)) > 3, "told")
    told = [event for event in desk.heard(on.Isolated) if isinstance(event, on.Isolated)]
    assert not told[-1].metadata
    assert told[-1].seconds > told[0].seconds
    desk.memory.before = lambda _operation: None
    wait_until(lambda: desk.desk.may_commit(KEY), "again")


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("AccessDeniedException", True),
        ("ResourceNotFoundException", True),
        ("UnrecognizedClientException", True),
        ("ThrottlingException", False),
        ("InternalServerError", False),
    ],
)
def test_a_refusal_is_told_from_silence(
    desk: Desk,
    code: str,
    refused: bool,  # noqa: FBT001 - a column of the table
) -> None:
    def before(operation: str) -> None:
        error = ClientError({"Error": {"Code": code}}, "UpdateItem")
        if operation == "leases.idle":
            raise UnknownOutcomeError(operation) from error

    desk.memory.before = before

    wait_until(lambda: desk.heard(on.Isolated), "told")
    told = desk.heard(on.Isolated)[0]
    assert isinstance(told, on.Isolated)
    assert told.refused is refused


def test_any_surprise_of_the_table_is_survived(desk: Desk) -> None:
    desk.hold()
    troubles = [RuntimeError("a defect"), OSError("no route")]

    def before(_operation: str) -> None:
        if troubles:
            raise troubles.pop()

    desk.memory.before = before

    wait_until(lambda: not troubles, "both met")
    beats = desk.beats()
    wait_until(lambda: desk.beats() > beats, "renewed after")


def test_no_renewal_follows_a_release(desk: Desk) -> None:
    desk.hold()

    ending = Ending(Outcome.FINISHED, Cause.DONE)
    desk.desk.release(KEY, ending, 0, Progress(phase=Phase.UPLOADING, step=9))
    beats = desk.beats()
    seen = len(desk.memory.calls)
    wait_until(lambda: desk.desk.last_try and len(desk.memory.calls) >= seen, "a beat later")

    row = desk.memory.lease_rows[KEY]
    assert (row.state, row.outcome, row.exit_code, row.step) == (
        LeaseState.DONE,
        Outcome.FINISHED,
        0,
        9,
    )
    assert not desk.desk.may_commit(KEY)
    assert desk.heard(on.LeaseLost) == []
    assert desk.beats() == beats


def test_an_unknown_outcome_is_asked_again(desk: Desk) -> None:
    troubles = {"leases.claim": 3}

    def after(operation: str) -> None:
        if troubles.get(operation):
            troubles[operation] -= 1
            raise UnknownOutcomeError("no answer")

    desk.memory.after = after

    assert desk.desk.claim(KEY) is Claim.WON
    assert troubles == {"leases.claim": 0}


def test_a_release_of_a_lease_that_isnt_ours_is_refused(desk: Desk) -> None:
    ending = Ending(Outcome.FINISHED, Cause.DONE)

    with pytest.raises(LeaseLostError):
        desk.desk.release(KEY, ending, 0, RUNNING)


def test_a_stray_is_released_as_interrupted_and_one_that_isnt_ours_forgotten(desk: Desk) -> None:
    assert desk.desk.claim(KEY) is Claim.WON

    desk.desk.release_stray(KEY, Cause.REBOOT)
    desk.desk.release_stray(a_key("other"), Cause.REBOOT)

    row = desk.memory.lease_rows[KEY]
    assert (row.outcome, row.cause) == (Outcome.INTERRUPTED, Cause.REBOOT)
    assert desk.memory.holds_rows[HOST].leases == frozenset()
    assert "leases.drop_hold" in desk.memory.calls


def test_a_seal_says_when_it_was_sent_not_when_it_was_tried_first(desk: Desk) -> None:
    desk.hold()
    troubles = [UnknownOutcomeError("no answer")]

    def before(operation: str) -> None:
        if operation == "leases.seal" and troubles:
            raise troubles.pop()

    desk.memory.before = before

    row, sent = desk.desk.seal(KEY, "base")
    again, later = desk.desk.seal(KEY, "another")

    assert (row.base, again.base) == ("base", "base")
    assert later > sent


def test_the_end_of_the_agent_gives_up_a_call_that_is_being_repeated() -> None:
    desk = Desk()
    tried = threading.Event()

    def before(_operation: str) -> None:
        tried.set()
        raise UnknownOutcomeError("for ever")

    desk.memory.before = before
    ended: list[BaseException] = []

    def claim() -> None:
        try:
            desk.desk.claim(KEY)
        except ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=claim)
    thread.start()
    assert tried.wait(5)
    desk.desk.end()
    thread.join(5)

    assert ended
