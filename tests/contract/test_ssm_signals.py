"""Signals through SSM: one command for many hosts, and nobody sinks the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from reprieve.adapters.ssm import TRIES, SsmSignals
from reprieve.domain.notice import NoticeKind
from reprieve.ports.cloud import Signalled
from tests.builders import HOST, OTHER_HOST, a_notice, at
from tests.contract.scripted import DROP, Endpoint, Reply, client, json_error, json_reply, serving

TAKEN = json_reply(Command={"CommandId": "c-1"})
THROTTLED = json_error("ThrottlingException", "Rate exceeded")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def signals(endpoint: Endpoint, pauses: list[float]) -> Iterator[SsmSignals]:
    ssm = client("ssm", endpoint)
    yield SsmSignals(lambda: ssm, "Reprieve-preempt", sleep=pauses.append)
    ssm.close()


def ids(count: int) -> list[str]:
    return [f"i-{n:017x}" for n in range(count)]


def unknown(*named: str) -> Reply:
    words = f"Instances [[{', '.join(named)}]] not in a valid state for account 123456789012"
    return json_error("InvalidInstanceId", words if named else "")


def told(endpoint: Endpoint) -> list[list[str]]:
    return [asked["InstanceIds"] for asked in endpoint.asked]


def test_a_host_is_told_what_was_announced(signals: SsmSignals, endpoint: Endpoint) -> None:
    endpoint.says(TAKEN)

    assert signals.preempt([a_notice()]) == Signalled((HOST,))

    assert endpoint.asked == [
        {
            "DocumentName": "Reprieve-preempt",
            "InstanceIds": [HOST],
            "Parameters": {
                "RequestId": ["interruption"],
                "Kind": ["interruption"],
                "NoticedAt": ["2026-03-04T12:00:00.000+00:00"],
                "Deadline": ["2026-03-04T12:02:00.000+00:00"],
            },
            "TimeoutSeconds": 30,
            "MaxConcurrency": "50",
            "MaxErrors": "50",
        }
    ]


def test_a_notice_without_a_reclaim_time_has_an_empty_deadline(
    signals: SsmSignals, endpoint: Endpoint
) -> None:
    endpoint.says(TAKEN)

    signals.preempt([a_notice(NoticeKind.REBALANCE)])

    assert endpoint.asked[0]["Parameters"]["Deadline"] == [""]


def test_fifty_hosts_are_one_command_and_the_next_another(
    signals: SsmSignals, endpoint: Endpoint
) -> None:
    endpoint.says(TAKEN, TAKEN)

    signalled = signals.preempt([a_notice(instance_id=i) for i in ids(51)])

    assert [len(instances) for instances in told(endpoint)] == [50, 1]
    assert signalled.reached == tuple(ids(51))


def test_hosts_under_other_kinds_and_deadlines_get_commands_of_their_own(
    signals: SsmSignals, endpoint: Endpoint
) -> None:
    endpoint.says(TAKEN, TAKEN, TAKEN)

    signals.preempt(
        [
            a_notice(instance_id="i-1", noticed_at=at(1)),
            a_notice(instance_id="i-2", reclaimed_at=at(60)),
            a_notice(NoticeKind.REBALANCE, "i-3"),
            a_notice(instance_id="i-4"),
            a_notice(instance_id="i-4", noticed_at=at(2)),
        ]
    )

    assert told(endpoint) == [["i-1", "i-4"], ["i-2"], ["i-3"]]
    earliest = endpoint.asked[0]["Parameters"]["NoticedAt"]
    assert earliest == ["2026-03-04T12:00:00.000+00:00"]


def test_no_notices_are_no_command(signals: SsmSignals, endpoint: Endpoint) -> None:
    assert signals.preempt([]) == Signalled()
    assert endpoint.asked == []


def test_a_host_that_ssm_names_as_unknown_does_not_sink_the_others(
    signals: SsmSignals, endpoint: Endpoint
) -> None:
    hosts = ids(5)
    endpoint.says(unknown(hosts[1], hosts[3]), TAKEN)

    signalled = signals.preempt([a_notice(instance_id=i) for i in hosts])

    assert told(endpoint) == [hosts, [hosts[0], hosts[2], hosts[4]]]
    assert signalled.reached == (hosts[0], hosts[2], hosts[4])
    assert signalled.unreachable == dict.fromkeys((hosts[1], hosts[3]), "InvalidInstanceId")


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_an_unknown_host_that_ssm_does_not_name_is_found_by_halving(
    signals: SsmSignals, endpoint: Endpoint, bad: int
) -> None:
    hosts = ids(4)
    endpoint.answers = lambda asked: unknown() if hosts[bad] in asked["InstanceIds"] else TAKEN

    signalled = signals.preempt([a_notice(instance_id=i) for i in hosts])

    assert signalled.unreachable == {hosts[bad]: "InvalidInstanceId"}
    assert signalled.reached == tuple(i for i in hosts if i != hosts[bad])


def test_a_whole_batch_of_unknown_hosts_is_two_calls_a_host_at_most(
    signals: SsmSignals, endpoint: Endpoint
) -> None:
    endpoint.answers = lambda _asked: unknown()

    signalled = signals.preempt([a_notice(instance_id=i) for i in ids(8)])

    assert signalled.reached == ()
    assert set(signalled.unreachable) == set(ids(8))
    assert len(endpoint.asked) == 15


def test_a_throttled_command_is_repeated_after_a_short_pause(
    signals: SsmSignals, endpoint: Endpoint, pauses: list[float]
) -> None:
    endpoint.says(THROTTLED, DROP, TAKEN)

    assert signals.preempt([a_notice()]) == Signalled((HOST,))

    assert len(pauses) == 2
    assert all(0 <= pause <= 0.8 for pause in pauses)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (THROTTLED, "ThrottlingException"),
        (DROP, "ConnectionClosedError"),
        (json_error("InternalServerError", status=500), "InternalServerError"),
    ],
    ids=["throttled", "dropped", "internal"],
)
def test_a_command_that_never_gets_through_is_given_up_without_an_error(
    signals: SsmSignals, endpoint: Endpoint, reply: Reply, reason: str
) -> None:
    endpoint.says(*[reply] * TRIES)

    assert signals.preempt([a_notice()]) == Signalled((), {HOST: reason})

    assert len(endpoint.asked) == TRIES


def test_a_slow_ssm_does_not_keep_the_caller_from_storing_what_it_knows(
    endpoint: Endpoint,
) -> None:
    times = iter([0.0, 1.0, 3.5])
    ssm = client("ssm", endpoint)
    signals = SsmSignals(lambda: ssm, "Reprieve-preempt", monotonic=lambda: next(times))
    endpoint.says(TAKEN)

    signalled = signals.preempt([a_notice(), a_notice(instance_id=OTHER_HOST, reclaimed_at=at(60))])

    assert signalled == Signalled((HOST,), {OTHER_HOST: "TimeoutError"})
    assert len(endpoint.asked) == 1
    ssm.close()


@pytest.mark.parametrize("code", ["AccessDeniedException", "InvalidDocument"])
def test_a_refused_command_is_not_repeated(
    signals: SsmSignals, endpoint: Endpoint, code: str
) -> None:
    endpoint.says(json_error(code), TAKEN)

    signalled = signals.preempt([a_notice(), a_notice(instance_id=OTHER_HOST, reclaimed_at=at(60))])

    assert signalled == Signalled((OTHER_HOST,), {HOST: code})


def test_a_function_without_a_document_reaches_nobody_and_makes_no_client() -> None:
    def no_client() -> Any:
        raise AssertionError

    signalled = SsmSignals(no_client, None).preempt([a_notice()])

    assert set(signalled.unreachable) == {HOST}
