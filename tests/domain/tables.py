"""
The tables of docs/protocol.md, asked of the code itself.

`python -m tests.domain.tables` writes them. A test compares, so the page can't say what
the code no longer does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from reprieve.domain.clock import NoticeClock
from reprieve.domain.host import HOST_ORDER, Host, HostState, InstanceState
from reprieve.domain.job import TRANSITIONS, Counters, Job, JobStatus
from reprieve.domain.lease import Cause, Lease, LeaseState, Outcome, Phase
from reprieve.domain.notice import Act, Doubt, Notice, NoticeKind, react
from reprieve.domain.order import OrderState
from reprieve.domain.settlement import (
    Arm,
    Decision,
    End,
    Facts,
    Move,
    Nothing,
    Reorder,
    Resend,
    Unpark,
    decide,
    requeue,
)
from tests.builders import (
    NOON,
    a_holder,
    a_host,
    a_job,
    a_lease,
    a_notice,
    a_spec,
    an_order,
    at,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
CLOCK = NoticeClock()
NOW = at(1000)
SAVED = "jobs/job-1/manifests/000001-000000000050.json"


def page(text: str) -> str:
    """Return *text* with its tables as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def tables() -> str:
    """Return all of them, under their headings."""
    parts = [
        "### What a notice asks for\n",
        _table(
            ("announced", "when", "so it is", "host told", "host becomes", "its pool", "why"),
            list(_reactions()),
        ),
        "\n### How a job moves\n",
        "A host goes "
        + " → ".join(HOST_ORDER)
        + " and never back; a job moves only as follows. ✓ marks a move, · none.\n",
        _table(("from \\ to", *JobStatus), list(_moves())),
        "\n### What `settle` decides\n",
        _table(("the lease is", "and", "so", "the job becomes", "why"), list(_decisions())),
        "\n### What the end of an attempt is charged to\n",
        _table(("it ended by", "and the budget", "used up, the job becomes"), list(_budgets())),
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


# Notices


def _reactions() -> Iterator[tuple[str, ...]]:
    days, soon = timedelta(days=3), timedelta(minutes=2)
    for kind in NoticeKind:
        notice = a_notice(kind, noticed_at=NOON, reclaimed_at=NOON + soon)
        match kind:
            case NoticeKind.REBALANCE | NoticeKind.STATE_CHANGE:
                fresh = replace(notice, reclaimed_at=None)
                yield _reaction(fresh, "any time" if kind is NoticeKind.STATE_CHANGE else "new", 1)
                if kind is NoticeKind.REBALANCE:
                    old = f"older than {_span(CLOCK.advice)}"
                    yield _reaction(fresh, old, CLOCK.advice.total_seconds() + 1)
            case NoticeKind.MAINTENANCE:
                far = replace(notice, reclaimed_at=NOON + days)
                near = days - CLOCK.handover
                yield _reaction(far, f"more than {_span(CLOCK.handover)} ahead", 1)
                yield _reaction(far, "nearer", near.total_seconds() + 1)
                yield _reaction(far, "begun", days.total_seconds() + 1)
            case NoticeKind.HIBERNATE:
                yield _reaction(replace(notice, reclaimed_at=NOON), "new", 1)
                yield _reaction(replace(notice, reclaimed_at=NOON), "a notice's length later", 121)
            case _:
                yield _reaction(notice, "before its time", 1)
                yield _reaction(notice, "after it", 121)
    doubted = a_notice(NoticeKind.INTERRUPTION, doubt=Doubt.FOREIGN_ACCOUNT)
    words = ", ".join(str(doubt).removeprefix("it ").removeprefix("is ") for doubt in Doubt)
    _, _, *rest = _reaction(doubted, "", 1)
    yield ("any", words, *rest[:-1], "whatever it says, it isn't ours to act on")


def _reaction(notice: Notice, when: str, seconds: float) -> tuple[str, ...]:
    reaction = react(notice, now=at(seconds), clock=CLOCK)
    draining = reaction.act is Act.DRAIN
    cold = notice.tells_of_capacity and reaction.act in {Act.ADVISE, Act.DRAIN}
    return (
        notice.kind,
        when,
        reaction.act,
        "yes" if reaction.signals else "·",
        HostState.DRAINING if draining else "·",
        "cold" if cold else "·",
        reaction.reason,
    )


def _span(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:g} min"


# The job's states


def _moves() -> Iterator[tuple[str, ...]]:
    for old in JobStatus:
        yield (old, *("✓" if new in TRANSITIONS[old] else "·" for new in JobStatus))


# Decisions

RUNNING = a_job(status=JobStatus.RUNNING)
QUEUED = a_job(ticket_at=at(990))
HELD = replace(
    a_lease(RUNNING, state=LeaseState.HELD, holder=a_holder(), beat=7, sealed_attempt=1),
    phase=Phase.RUNNING,
    step=60,
    restored_step=40,
    committed_step=50,
    committed_manifest=SAVED,
)
DRAINING = a_host(
    state=HostState.DRAINING, notice=a_notice(noticed_at=at(940), reclaimed_at=at(1060))
)


def _done(outcome: Outcome, cause: Cause, **changes: object) -> Lease:
    done = replace(HELD, state=LeaseState.DONE, outcome=outcome, cause=cause, exit_code=1)
    return replace(done, **changes)  # type: ignore[arg-type]


def _decisions() -> Iterator[tuple[str, ...]]:
    for what, facts in _situations():
        state = facts.lease.state if facts.lease else "missing"
        yield _decision(state, what, decide(facts, now=NOW, clock=CLOCK, token="t2"))
    for what, facts in _requests():
        assert facts.lease
        asked = requeue(facts, now=NOW, clock=CLOCK, token="t2")
        yield _decision(facts.lease.state, what, asked)


def _situations() -> Iterator[tuple[str, Facts]]:
    over = a_job(status=JobStatus.SUCCEEDED)
    yield "the job is over", Facts(over, a_lease(over))
    yield "nothing else counts", Facts(QUEUED, None)
    yield from _waiting()
    yield from _held()
    yield from _released()
    parked = a_job(status=JobStatus.PARKED, needs_you=True)
    yield "the job needs you", Facts(parked, a_lease(parked, state=LeaseState.CLOSED))
    yield "the job is alive", Facts(RUNNING, replace(HELD, state=LeaseState.CLOSED))


def _waiting() -> Iterator[tuple[str, Facts]]:
    free = a_lease(QUEUED)
    unfilled = an_order(
        state=OrderState.UNFILLED, next_try_at=at(2000), outcome="no tier has a host"
    )
    yield "it has an order", Facts(QUEUED, free, order=an_order())
    yield "it has no order", Facts(QUEUED, free)
    yield "its order stands in another pool", Facts(QUEUED, free, order=an_order(pool="other"))
    old = replace(QUEUED, ticket_at=NOW - CLOCK.resend - timedelta(seconds=1))
    yield "its ticket is old", Facts(old, free, order=an_order())
    yield "its order is unfilled", Facts(QUEUED, free, order=unfilled)
    parked = a_job(status=JobStatus.PARKED, next_try_at=at(2000))
    yield "the job is parked, its next try not due", Facts(parked, free, order=unfilled)
    due = replace(parked, next_try_at=at(900))
    yield "the same, its next try due", Facts(due, free, order=unfilled)


def _held() -> Iterator[tuple[str, Facts]]:
    ready, starting = a_host(), replace(HELD, phase=Phase.CLAIMED, sealed_attempt=0)
    claimed = replace(starting, committed_step=None, committed_manifest=None)
    advised = a_host(notice=a_notice(NoticeKind.REBALANCE))
    yield "its host has no row, or one of another pool", Facts(RUNNING, HELD)
    yield "claimed", Facts(QUEUED, claimed, ready)
    yield "sealed and running", Facts(QUEUED, HELD, ready)
    yield "its host is advised to go", Facts(_pointed(), HELD, advised)
    yield "its host is under notice", Facts(RUNNING, HELD, DRAINING)
    gone = InstanceState.GONE
    yield "under notice, and EC2 says: gone", Facts(RUNNING, HELD, DRAINING, gone)
    yield "unannounced, and EC2 says: gone", Facts(RUNNING, HELD, ready, gone)
    yield (
        "EC2 doesn't know a young host",
        Facts(_pointed(), HELD, replace(ready, launched_at=at(900)), InstanceState.NOT_FOUND),
    )
    yield "EC2 doesn't know an old host", Facts(RUNNING, HELD, ready, InstanceState.NOT_FOUND)
    unknown = InstanceState.UNKNOWN
    yield "EC2 can't be asked", Facts(_pointed(), HELD, ready, unknown)
    yield "silent, six sweeps long", Facts(RUNNING, HELD, ready, silent=True)
    draining = replace(_pointed(), status=JobStatus.DRAINING)
    yield "silent inside its notice", Facts(draining, HELD, DRAINING, silent=True)


def _pointed() -> Job:
    """Return the running job whose row knows its newest checkpoint already."""
    moved = decide(Facts(RUNNING, HELD, a_host()), now=NOW, clock=CLOCK, token="t2")
    assert isinstance(moved, Move)
    return moved.job


def _released() -> Iterator[tuple[str, Facts]]:
    ready = a_host()
    finished = _done(Outcome.FINISHED, Cause.DONE)
    yield "finished, also inside a notice", Facts(RUNNING, finished, DRAINING)
    for cause in Cause:
        if cause is Cause.DONE:
            continue
        failed = cause in {Cause.CRASH, Cause.SETUP_FAILED, Cause.NO_VALID_CHECKPOINT}
        outcome = Outcome.FAILED if failed else Outcome.INTERRUPTED
        host: Host = DRAINING if cause is Cause.NOTICE else ready
        yield f"{outcome}: {cause}", Facts(RUNNING, _done(outcome, cause), host)


def _requests() -> Iterator[tuple[str, Facts]]:
    parked = a_job(status=JobStatus.PARKED, needs_you=True)
    yield "you say requeue", Facts(RUNNING, HELD, a_host())
    yield "you say requeue", Facts(QUEUED, a_lease(QUEUED), order=an_order())
    closed = a_lease(parked, state=LeaseState.CLOSED)
    yield "you say requeue of a job that needs you", Facts(parked, closed)


def _decision(state: str, what: str, decision: Decision) -> tuple[str, ...]:
    became = "·" if isinstance(decision, Nothing) else _became(decision)
    return state, what, _word(decision), became, decision.reason


def _word(decision: Decision) -> str:
    match decision:
        case Nothing(_, anomaly=True):
            return "nothing, and an alarm"
        case Nothing():
            return "nothing"
        case Move():
            return "the row follows"
        case End():
            if decision.successor is None:
                return "the attempt ends"
            retired = ", its host is retired" if decision.retire else ""
            return f"the attempt ends, the next is armed{retired}"
        case Resend():
            return "the ticket is sent again"
        case Reorder():
            return "a host is ordered"
        case Unpark():
            return "ticket and order, one try higher"
        case Arm():
            return "the next attempt is armed"


def _became(decision: Decision) -> str:
    assert not isinstance(decision, Nothing)
    return decision.job.status


# Budgets


def _budgets() -> Iterator[tuple[str, ...]]:
    """For each cause: the counters that rise without a new checkpoint, and what that comes to."""
    for cause in Cause:
        if cause is Cause.DONE:
            continue
        failed = cause in {Cause.CRASH, Cause.SETUP_FAILED, Cause.NO_VALID_CHECKPOINT}
        outcome = Outcome.FAILED if failed else Outcome.INTERRUPTED
        lease = _done(outcome, cause, committed_step=None, committed_manifest=None)
        before = Counters(interruptions=5, launch_failures=5, crashes=1, no_progress=1)
        after = _ended(replace(RUNNING, counters=before), lease).job.counters
        rises = [
            name
            for name in ("interruptions", "launch_failures", "crashes", "no_progress")
            if getattr(after, name) > getattr(before, name)
        ]
        yield cause, ", ".join(rises) or "·", " / ".join(dict.fromkeys(_used_up(lease)))
    unfilled = an_order(state=OrderState.UNFILLED, next_try_at=at(2000))
    parked = decide(
        Facts(QUEUED, a_lease(QUEUED), order=unfilled), now=NOW, clock=CLOCK, token="t2"
    )
    assert isinstance(parked, Move)
    assert parked.job.counters == Counters(launch_failures=1)
    yield "no host to be had", "launch_failures", f"{parked.job.status}, tried ever later"


def _used_up(lease: Lease) -> Iterator[str]:
    worn = Counters(interruptions=10**6, launch_failures=10**6, crashes=3, no_progress=3)
    for fallback, words in ((None, ""), ("another", " in its fallback pool, if it has one")):
        job = replace(RUNNING, counters=worn, spec=a_spec(fallback_pool=fallback))
        ended = _ended(job, lease).job
        if ended.status is JobStatus.QUEUED and ended.pool == job.pool:
            yield "QUEUED: there is no limit"
        else:
            you = ", needs you" if ended.needs_you else ""
            yield f"{ended.status}{you}{words if ended.pool != job.pool else ''}"


def _ended(job: Job, lease: Lease) -> End:
    decision = decide(Facts(job, lease, a_host()), now=NOW, clock=CLOCK, token="t2")
    assert isinstance(decision, End)
    return decision


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
