"""
The bug reports of docs/field-cases.md, told over the use cases in memory, and their rules cut out.

Here a case costs milliseconds, so that the scaled hour of a rebalance or five interruptions can be
told whole, and each rule can be taken away to see which expectation breaks without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import Mock, patch

import pytest

from functions.handle_notice import handler as handle_notice
from reprieve.adapters.memory import (
    InMemoryFleet,
    InMemoryHostLeases,
    InMemorySignals,
)
from reprieve.domain import order as orders
from reprieve.domain import settlement
from reprieve.domain.clock import NoticeClock
from reprieve.domain.errors import LeaseLostError, ReprieveError, UnknownOutcomeError
from reprieve.domain.host import CapacityPool, HostState, InstanceState, Market
from reprieve.domain.job import Counters, JobStatus
from reprieve.domain.lease import Cause, Holder, Lease, LeaseKey, LeaseState, Outcome
from reprieve.domain.notice import Notice, NoticeKind
from reprieve.domain.order import ErrorClass, FleetAnswer, FleetError, Launched, Plan
from reprieve.edge.events import read_event
from reprieve.edge.observe import count_decision
from reprieve.edge.settings import HandleNoticeSettings
from reprieve.edge.wiring import Wired
from reprieve.ports.leases import Claim
from reprieve.protocol import Ticket
from reprieve.usecases.handle_notice import Handled, HandleNotice
from reprieve.usecases.retire import Retire
from tests.functions.conftest import ENVIRONMENT, Context, records
from tests.usecases.story import CLOCK, Host, Story, a_pool

WARNING = "EC2 Spot Instance Interruption Warning"
READER = "functions.handle_notice.handler.read_event"
STRANGER = "i-0ff00000000000099"
LARGE = {"max_hosts": 9, "max_usd_per_hour": 1000.0}


def expect(what: str, *, holds: object) -> None:
    """Fail with the name of the expectation, so that a test can say which one a cut breaks."""
    if not holds:
        pytest.fail(what)


# ---------------------------------------------------------------------- the stage
@dataclass
class Function:
    """The real ``handle_notice`` over a story's memory."""

    story: Story

    def __call__(self, *events: dict[str, Any] | str) -> list[str]:
        """Hand it one batch; return which records come back."""
        settings = HandleNoticeSettings.model_validate(ENVIRONMENT)
        told = partial(count_decision, handle_notice.metrics)
        wired = Wired(settings, replace(self.story.uses, told=told), Mock())
        with patch.object(handle_notice, "wired", return_value=wired), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Powertools': of metrics that nobody could count
            reply = handle_notice.lambda_handler(records(*events), Context())
        return [failure["itemIdentifier"] for failure in reply["batchItemFailures"]]


def event(host: Host | str, story: Story, kind: str = WARNING, **detail: Any) -> dict[str, Any]:
    instance_id = host if isinstance(host, str) else host.instance_id
    about = {"instance-id": instance_id, "instance-action": "terminate"} | detail
    return {
        "version": "0",
        "id": "11111111-2222-3333-4444-000000000001",
        "detail-type": kind,
        "source": "aws.ec2",
        "time": story.time.isoformat(),
        "resources": [f"arn:aws:ec2:us-east-1a:instance/{instance_id}"],
        "detail": {name: value for name, value in about.items() if value is not None},
    }


def running(story: Story, count: int = 1, **spec: object) -> list[Host]:
    """Launch *count* hosts, each with a job that runs."""
    jobs = [story.submit(**spec) for _ in range(count)]
    hosts = [Host(story, i.instance_id) for filled in story.fill_orders() for i in filled.launched]
    for host in hosts:
        host.idle()
        host.run()
    for job in jobs:
        story.uses.settle(job)
    return hosts


def job_of(host: Host) -> str:
    assert host.key
    return host.key.job


def succeeds(call: Callable[[], list[str]]) -> bool:
    try:
        return call() == []
    except ReprieveError:
        return False


def draining(story: Story, host: Host) -> bool:
    return story.memory.host_rows[host.instance_id].state is HostState.DRAINING


def leave(story: Story, host: Host, step: int) -> None:
    """Save, give the attempt back, and go."""
    host.commit(step)
    host.release()
    story.uses.settle(job_of(host))
    story.gone(host)


def ordered(story: Story, host: Host) -> int:
    """Count the orders for replacements of *host*."""
    return sum(1 for job, _ in story.memory.order_rows if job == job_of(host)) - 1


# ---------------------------------------------------------------------- the cases
def one_batch_two_notices() -> None:
    """OP-01."""
    story = Story(pool=a_pool(**LARGE))
    function = Function(story)
    a, b, c = running(story, 3)
    nth = 0

    def refuse_b(operation: str) -> None:
        nonlocal nth
        nth += operation == "rows.commit"
        if operation == "rows.commit" and nth not in {1, 3}:
            message = "throttled"
            raise UnknownOutcomeError(message)

    story.memory.before = refuse_b
    back = function(event(a, story), event(b, story), event(c, story))
    story.memory.before = lambda _: None
    expect("only the record that failed comes back", holds=back == ["m2"])
    expect("its neighbours are done", holds=draining(story, a) and draining(story, c))
    expect("the redelivery finishes it", holds=function(event(b, story)) == [])
    expect("each host has one replacement", holds=[ordered(story, h) for h in (a, b, c)] == [1] * 3)
    expect("poison alone is no unhandled error", holds=function("{") == ["m1"])


def not_ours() -> None:
    """OP-02."""
    story = Story(pool=a_pool(**LARGE))
    function = Function(story)
    (host,) = running(story)
    rows = dict(story.memory.host_rows)
    strangers = [event(f"i-0ff{n:014d}", story) for n in range(499)]
    expect("strangers are done with at once", holds=function(*strangers) == [])
    expect("no row is made for them", holds=story.memory.host_rows == rows)
    expect("nothing is sent to them", holds=not story.memory.signals.sent)
    function(event(STRANGER, story), event(host, story))
    expect("the real one is handled among them", holds=draining(story, host))


def every_shutdown_counted() -> None:
    """OP-03."""
    story = Story()
    function = Function(story)
    (host,) = running(story)
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(job_of(host))
    change = "EC2 Instance State-change Notification"
    function(*(event(host, story, change, state=s) for s in ("shutting-down", "terminated")))
    function(event(host, story, "EC2 AMI State Change", State="available"))
    function(event(host, story) | {"source": "my.app"})
    expect("nobody is told to save", holds=not story.memory.signals.sent)
    expect("the host stays in the pool", holds=not draining(story, host))
    expect("no replacement is ordered", holds=ordered(story, host) == 0)


def advice_that_nothing_follows() -> None:
    """OP-04."""
    story = Story()
    (host,) = running(story)
    story.notice(host, NoticeKind.REBALANCE)
    story.later(600)
    story.notice(host, NoticeKind.REBALANCE)
    for _ in range(60):
        host.step(10)
        story.sweep()
    job = story.job(job_of(host))
    expect("the job stays where it is", holds=(job.status, job.attempt) == (JobStatus.RUNNING, 1))
    expect("no ticket is sent", holds=not story.memory.mail.tickets)
    host.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(job.id)
    host.idle()
    other = story.submit()
    expect("the host takes work again", holds=not story.fill_orders()[-1].launched)
    host.run()
    story.uses.settle(other)
    expect("and runs it", holds=story.job(other).status is JobStatus.RUNNING)


def advice_then_notice_then_duplicates() -> None:
    """OP-05."""
    story = Story(pool=a_pool(**LARGE))
    function = Function(story)
    a, b = running(story, 2)
    unsaid: dict[str, Any] = {"instance-action": None}
    advice = event(a, story, "EC2 Instance Rebalance Recommendation", **unsaid)
    function(advice)
    story.later(17 * 60)
    warned = event(a, story)
    function(warned)
    expect("the notice stands over the advice", holds=draining(story, a))
    function(warned, warned | {"id": "another"})
    function(advice | {"time": story.time.isoformat()})
    expect("advice after it takes nothing back", holds=draining(story, a))
    expect("one replacement", holds=ordered(story, a) == 1)
    asked = {n.request_id for n in story.memory.signals.sent if n.takes_the_host}
    expect("one request to save", holds=len(asked) == 1)
    function(event(b, story))
    expect("no advice is needed before", holds=draining(story, b) and ordered(story, b) == 1)


def words_of_a_notice() -> None:
    """OP-06."""
    story = Story(pool=a_pool(**LARGE))
    function = Function(story)
    hosts = running(story, 4)
    for host, word in zip(hosts, ("stop", "hibernate", "recycle", None), strict=True):
        detail: dict[str, Any] = {"instance-action": word}
        function(event(host, story, **detail))
        expect(f"{word}: the host drains", holds=draining(story, host))
        expect(f"{word}: a replacement is ordered at once", holds=ordered(story, host) == 1)
        leave(story, host, 10)
        expect(f"{word}: the job goes on", holds=story.job(job_of(host)).attempt == 2)
    stopped = replace(hosts[0], boot="boot-2")
    story.memory.fleet.set_state(stopped.instance_id, InstanceState.ALIVE)
    stopped.idle()
    expect("after its reboot it is refused work", holds=stopped.claim() is Claim.NOT_READY)


def dead_function() -> None:
    """OP-07."""
    story = Story()
    function = Function(story)
    (host,) = running(story)
    warned = event(host, story)

    class Killed(BaseException):
        """The process is gone, at this very call."""

    def die(operation: str) -> None:
        if operation == "signals.preempt":
            raise Killed

    story.memory.before = die
    with pytest.raises(Killed):
        function(warned)
    story.memory.before = lambda _: None
    story.later(1)
    expect("the redelivery isn't refused", holds=function(warned) == [])
    expect("the host is told once", holds=len(story.memory.signals.sent) == 1)
    expect("and replaced once", holds=ordered(story, host) == 1)


def host_vanishes() -> None:
    """OP-08."""
    for state in (InstanceState.GONE, InstanceState.NOT_FOUND):
        story = Story()
        (host,) = running(story)
        host.commit(40)
        story.later(600)
        if state is InstanceState.GONE:
            story.gone(host)
        else:
            del story.memory.fleet.instances[host.instance_id]
        story.sweep()
        job = story.job(job_of(host))
        expect(f"{state}: requeued by one sweep", holds=job.attempt == 2)
        ended = story.memory.attempt_rows[job.id, 1]
        expect(f"{state}: a loss that nobody announced", holds=ended.cause is Cause.LOST)


def host_falls_silent() -> None:
    """OP-08, the host that runs and says nothing."""
    story = Story(pool=a_pool(**LARGE))
    hosts = running(story, 3)
    silent, *others = hosts
    for sweep in range(8):
        for host in others:
            host.step(sweep)
        story.sweep()
        if sweep * CLOCK.sweep < 5 * CLOCK.lease:
            started = story.job(job_of(silent)).attempt
            expect("no second start within five leases", holds=started == 1)
    expect("it is given up in the end", holds=story.job(job_of(silent)).attempt == 2)
    expect("and terminated", holds=silent.instance_id in story.memory.fleet.terminated)


def errors_and_an_instance() -> None:
    """OP-09."""
    story = Story()
    story.submit()
    dry = CapacityPool("g5.xlarge", "us-east-1a", Market.SPOT)
    came = Launched("i-0bb00000000000001", CapacityPool("g6.xlarge", "us-east-1b", Market.SPOT))
    refused = FleetError("InsufficientInstanceCapacity", capacity=dry)
    story.memory.fleet.script.append(FleetAnswer((came,), (refused,)))
    story.fill_orders()
    expect("the instance is adopted", holds=came.instance_id in story.memory.host_rows)
    expect("nothing else is launched", holds=len(story.memory.fleet.launched) == 1)
    expect("nothing is terminated", holds=not story.memory.fleet.terminated)
    story.submit()
    story.fill_orders()
    asked = [o.capacity for o in story.memory.fleet.launched[-1].overrides]
    expect("the dry pool isn't asked again", holds=len(asked) and dry not in asked)


def same_token_other_parameters() -> None:
    """OP-10."""
    story = Story()
    story.submit()
    message = list(story.memory.mail.orders)
    story.memory.fleet.script.append(FleetAnswer(errors=(FleetError("UnfulfillableCapacity"),)))
    first: dict[str, Plan] = {}
    launch = InMemoryFleet.launch

    def strict(self: InMemoryFleet, plan: Plan) -> FleetAnswer:
        known = first.setdefault(plan.client_token, plan)
        if known.to_json() != plan.to_json():
            return FleetAnswer(errors=(FleetError("IdempotentParameterMismatch"),))
        return launch(self, plan)

    with patch.object(InMemoryFleet, "launch", strict):
        (filled,) = story.fill_orders()
        markets = [i.capacity.market for i in filled.launched]
        expect("on-demand is launched in the same run", holds=markets == [Market.ON_DEMAND])
        tokens = list(first)
        story.memory.mail.orders += message
        story.fill_orders()
    expect("the repeat brings no new token", holds=list(first) == tokens)
    expect("and no second instance", holds=len(story.memory.fleet.instances) == 1)


def quota_not_capacity() -> None:
    """OP-11."""
    story = Story()
    job = story.submit()
    spot = FleetAnswer(errors=(FleetError("MaxSpotInstanceCountExceeded"),))
    own = FleetAnswer(errors=(FleetError("VcpuLimitExceeded"),))
    story.memory.fleet.script += [spot, own]
    story.fill_orders()
    asked = [plan.market for plan in story.memory.fleet.launched]
    tiers = [Market.SPOT, Market.ON_DEMAND]
    expect("one try of each market", holds=asked == tiers)
    expect("the job waits in sight", holds=story.job(job).status is JobStatus.PARKED)
    expect("with its next try", holds=story.job(job).next_try_at is not None)
    unknown = FleetAnswer(errors=(FleetError("BrandNewLimit"),))
    story.memory.fleet.script += [unknown] * 20
    story.later(3600)
    story.uses.reconcile()
    story.fill_orders()
    expect("an unknown code is bounded", holds=len(story.memory.fleet.launched) <= 6)
    expect("and parks the job again", holds=story.job(job).status is JobStatus.PARKED)


def cancelled_while_recovered() -> None:
    """OP-12."""
    story = Story()
    (host,) = running(story)
    job = job_of(host)
    story.notice(host)

    def cancel(operation: str) -> None:
        if operation == "fleet.launch":
            story.memory.after = lambda _: None
            story.uses.cancel(job)

    story.memory.after = cancel
    story.fill_orders()
    spare = next(i for i in story.memory.fleet.instances if i != host.instance_id)
    expect("what was launched for it goes", holds=spare in story.memory.fleet.terminated)
    expect("the job stays cancelled", holds=story.job(job).status is JobStatus.CANCELLED)


def before_it_is_registered() -> None:
    """OP-14."""
    story = Story()
    function = Function(story)
    (first,) = running(story)
    job = job_of(first)
    story.notice(first)
    base = first.commit(400)
    leave(story, first, 400)
    second = story.launch()
    second.run(base=base, restored=400)
    story.uses.settle(job)
    story.memory.signals.unreachable[second.instance_id] = "InvalidInstanceId"
    expect("the function succeeds", holds=succeeds(lambda: function(event(second, story))))
    expect("one replacement", holds=(job, 3) in story.memory.order_rows)
    story.gone(second)
    story.sweep()
    expect("the job goes on", holds=story.job(job).attempt == 3)
    expect("from what the first attempt saved", holds=story.lease(job).base == base)


def interruptions_and_crashes() -> None:
    """OP-22."""
    story = Story()
    job = story.submit(max_restarts=3)
    for n in range(5):
        host = story.launch()
        host.run(restored=n * 10 or None)
        story.notice(host)
        leave(story, host, n * 10 + 10)
        story.later(600)
        expect("it survives its interruptions", holds=not story.job(job).terminal)
    for _ in range(4):
        expect("and as many crashes as it may", holds=not story.job(job).terminal)
        host = story.launch()
        host.run(restored=50)
        host.release(Outcome.FAILED, Cause.CRASH, 1)
        story.uses.settle(job)
        story.gone(host)
        story.sweep()
    expect("then it has failed", holds=story.job(job).status is JobStatus.FAILED)


def interruptions_without_progress() -> None:
    """OP-22, four in a row without a new step."""
    story = Story()
    job = story.submit(max_without_progress=4)
    for _ in range(4):
        host = story.launch()
        host.run()
        story.gone(host)
        story.sweep()
        story.later(600)
    parked = story.job(job)
    expect("it is parked", holds=parked.status is JobStatus.PARKED)
    expect("and says that it needs you", holds=parked.needs_you)


def old_attempt_returns() -> None:
    """OP-23."""
    story = Story(pool=a_pool(**LARGE))
    old, new = running(story, 2)
    finish(new)()
    story.uses.settle(job_of(new))
    new.idle()
    job = job_of(old)
    base = old.commit(10)
    story.uses.settle(job, requeued=True)
    old_row = story.memory.lease_rows[old.key] if old.key else None
    new.run(base=base, restored=10)
    story.uses.settle(job)
    refused = 0
    for act in (lambda: old.step(20), lambda: old.commit(500), finish(old)):
        try:
            act()
        except LeaseLostError:
            refused += 1
    expect("what the old one says is refused", holds=refused == 3)
    expect("its lease is as it was", holds=old.key and story.memory.lease_rows[old.key] == old_row)
    story.uses.settle(job)
    expect("the job is the new one's", holds=story.job(job).status is JobStatus.RUNNING)


def finish(host: Host) -> Callable[[], None]:
    return lambda: host.release(Outcome.FINISHED, Cause.DONE, 0)


def ticket_twice() -> None:
    """OP-24."""
    story = Story(pool=a_pool(**LARGE))
    first, second = running(story, 2)
    second.release(Outcome.FINISHED, Cause.DONE, 0)
    story.uses.settle(job_of(second))
    second.idle()
    assert first.key
    copy = Ticket(first.key.job, first.key.attempt, first.key.token)
    expect("a second copy wins nothing", holds=second.claim(copy) is Claim.TAKEN)
    lease = story.lease(job_of(first))
    expect("its holder keeps it", holds=lease.holder == first.holder)
    expect("a copy that its holder gets changes nothing", holds=first.claim(copy) is Claim.WON)


# ---------------------------------------------------------------------- their rules, cut out
Cut = Callable[[], AbstractContextManager[object]]


def all_acknowledged() -> AbstractContextManager[object]:
    none: dict[str, list[object]] = {"batchItemFailures": []}
    return patch.object(handle_notice, "come_back", lambda *_records, **_queue: none)


def strangers_unhandled() -> AbstractContextManager[object]:
    """«Not managed» is no result, so the message comes back for ever."""
    handle = HandleNotice.__call__

    def nothing(self: HandleNotice, notices: Any, **more: Any) -> list[Handled]:
        unknown = UnknownOutcomeError("not managed")
        results = handle(self, notices, **more)
        return [replace(r, failure=unknown) if r.stranger else r for r in results]

    return patch.object(HandleNotice, "__call__", nothing)


def detail_type_unread() -> AbstractContextManager[object]:
    def any_kind(body: str) -> dict[str, Any]:
        return {**read_event(body), "source": "aws.ec2", "detail-type": WARNING}

    return patch(READER, any_kind)


def advice_is_a_verdict() -> AbstractContextManager[object]:
    """Advice takes the host away."""
    handle = HandleNotice.__call__

    def verdict(self: HandleNotice, notices: Any, **more: Any) -> list[Handled]:
        taken = [
            replace(n, kind=NoticeKind.INTERRUPTION, reclaimed_at=n.noticed_at + CLOCK.notice)
            if n.kind is NoticeKind.REBALANCE
            else n
            for n in notices
        ]
        return handle(self, taken, **more)

    return patch.object(HandleNotice, "__call__", verdict)


def advice_is_for_ever() -> AbstractContextManager[object]:
    return patch.object(NoticeClock, "advice", timedelta(days=365))


def once_a_host() -> AbstractContextManager[object]:
    """Whatever comes after the first notice of a host is a duplicate."""
    handle = HandleNotice.__call__
    known: set[str] = set()

    def deduplicated(self: HandleNotice, notices: Any, **more: Any) -> list[Handled]:
        fresh = [n for n in notices if n.instance_id not in known]
        known.update(n.instance_id for n in fresh)
        return handle(self, fresh, **more)

    return patch.object(HandleNotice, "__call__", deduplicated)


def only_terminate_known() -> AbstractContextManager[object]:
    def known(body: str) -> dict[str, Any]:
        read = dict(read_event(body))
        terminates = read["detail"].get("instance-action") == "terminate"
        return read if terminates else {**read, "detail-type": "not known"}

    return patch(READER, known)


def marked_in_progress() -> AbstractContextManager[object]:
    """Guard each message with a mark without an end, as an idempotency table may have it."""
    handle = HandleNotice.__call__
    marks: set[str] = set()

    def guarded(self: HandleNotice, notices: Any, **more: Any) -> list[Handled]:
        ids = [n.request_id for n in notices]
        if marks & set(ids):
            return [Handled(n, failure=UnknownOutcomeError("in progress")) for n in notices]
        marks.update(ids)
        results = handle(self, notices, **more)
        marks.difference_update(ids)
        return results

    return patch.object(HandleNotice, "__call__", guarded)


def ec2s_word_unheard() -> AbstractContextManager[object]:
    return patch.object(settlement, "_gone", lambda *_args, **_more: False)


def silence_at_once() -> AbstractContextManager[object]:
    return patch.object(NoticeClock, "silent_sweeps", 1)


def errors_first() -> AbstractContextManager[object]:
    """Take a reply with errors for a failure, whatever else is in it."""
    launch = InMemoryFleet.launch

    def judged(self: InMemoryFleet, plan: Plan) -> FleetAnswer:
        answer = launch(self, plan)
        return replace(answer, instances=()) if answer.errors else answer

    return patch.object(InMemoryFleet, "launch", judged)


def token_of_the_job() -> AbstractContextManager[object]:
    return patch.object(Plan, "client_token", property(lambda plan: f"{plan.job}#{plan.attempt}"))


@contextmanager
def quota_tried_again() -> Iterator[None]:
    """Answer a limit like a throttle: the same request again."""
    with patch.dict(orders.ERROR_CLASSES, MaxSpotInstanceCountExceeded=ErrorClass.THROTTLE):
        yield


def nobody_cleans_up() -> AbstractContextManager[object]:
    return patch.object(Retire, "__call__", lambda *_args, **_more: False)


def unreachable_is_an_error() -> AbstractContextManager[object]:
    preempt = InMemorySignals.preempt

    def refused(self: InMemorySignals, notices: list[Notice]) -> Any:
        if any(notice.instance_id in self.unreachable for notice in notices):
            message = "InvalidInstanceId"
            raise UnknownOutcomeError(message)
        return preempt(self, notices)

    return patch.object(InMemorySignals, "preempt", refused)


def one_budget() -> AbstractContextManager[object]:
    """Every end of an attempt counts as a crash."""

    def charged(counters: Counters, _lease: Lease, _cause: Cause) -> Counters:
        return replace(counters, crashes=counters.crashes + 1)

    return patch.object(settlement, "_charge", charged)


def progress_uncounted() -> AbstractContextManager[object]:
    return patch.object(settlement, "_progressed", lambda _lease: True)


def lease_without_generation() -> AbstractContextManager[object]:
    """Ownership goes by the job's name: whoever writes is let through."""

    def anybody(self: InMemoryHostLeases, key: LeaseKey, _holder: Holder) -> Lease:
        return self._memory.lease_rows[key]

    return patch.object(InMemoryHostLeases, "_held", anybody)


def claim_takes_over() -> AbstractContextManager[object]:
    """Take the ticket for the right to run, whoever holds the lease."""
    claim = InMemoryHostLeases.claim

    def over(self: InMemoryHostLeases, key: LeaseKey, holder: Holder) -> Claim:
        row = self._memory.lease_rows[key]
        self._memory.lease_rows[key] = replace(row, state=LeaseState.FREE, holder=None)
        return claim(self, key, holder)

    return patch.object(InMemoryHostLeases, "claim", over)


@dataclass(frozen=True, slots=True)
class Case:
    tell: Callable[[], None]
    cut: Cut
    breaks: str
    """The expectation that doesn't hold without the rule."""


CASES = {
    "OP-01": Case(one_batch_two_notices, all_acknowledged, "only the record that failed"),
    "OP-02": Case(not_ours, strangers_unhandled, "strangers are done with at once"),
    "OP-03": Case(every_shutdown_counted, detail_type_unread, "nobody is told to save"),
    "OP-04": Case(advice_that_nothing_follows, advice_is_a_verdict, "the job stays where it is"),
    "OP-04, in the end": Case(
        advice_that_nothing_follows, advice_is_for_ever, "the host takes work again"
    ),
    "OP-05": Case(advice_then_notice_then_duplicates, once_a_host, "the notice stands over"),
    "OP-06": Case(words_of_a_notice, only_terminate_known, "stop: the host drains"),
    "OP-07": Case(dead_function, marked_in_progress, "the redelivery isn't refused"),
    "OP-08": Case(host_vanishes, ec2s_word_unheard, "requeued by one sweep"),
    "OP-08, silent": Case(host_falls_silent, silence_at_once, "no second start within"),
    "OP-09": Case(errors_and_an_instance, errors_first, "the instance is adopted"),
    "OP-10": Case(same_token_other_parameters, token_of_the_job, "on-demand is launched in the"),
    "OP-11": Case(quota_not_capacity, quota_tried_again, "one try of each market"),
    "OP-12": Case(cancelled_while_recovered, nobody_cleans_up, "what was launched for it goes"),
    "OP-14": Case(before_it_is_registered, unreachable_is_an_error, "the function succeeds"),
    "OP-22": Case(interruptions_and_crashes, one_budget, "it survives its interruptions"),
    "OP-22, no progress": Case(interruptions_without_progress, progress_uncounted, "it is parked"),
    "OP-23": Case(old_attempt_returns, lease_without_generation, "what the old one says is"),
    "OP-24": Case(ticket_twice, claim_takes_over, "a second copy wins nothing"),
}
