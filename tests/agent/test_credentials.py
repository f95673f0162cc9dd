"""What a job gets by the container-credentials convention, over real HTTP."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.credentials import ContainerProvider

from reprieve_agent.credentials import (
    FILE,
    PATH,
    CallError,
    JobRole,
    RoleSession,
    session_name,
)
from reprieve_agent.places import Places
from tests.agent.harness import wait_until
from tests.agent.role_account import HOST_KEY, HOST_SECRET, ROLE, RoleAccount, role_account
from tests.builders import NOON, a_key

KEY = a_key("bert-base-1a2b3c4d")
FULL_URI, TOKEN = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[RoleAccount]:
    with role_account() as account:
        monkeypatch.setenv("AWS_ENDPOINT_URL", account.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", HOST_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", HOST_SECRET)
        yield account


@pytest.fixture
def places(tmp_path: Path) -> Places:
    places = Places.of(KEY, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    places.make(None)
    return places


def ended(role: JobRole) -> None:
    """Close what the process would have closed by ending."""
    role.close(KEY)
    if role._client:
        role._client.close()


@pytest.fixture
def role(account: RoleAccount) -> Iterator[JobRole]:
    role = JobRole(ROLE, "eu-west-1")
    yield role
    ended(role)


def get(
    environment: dict[str, str], path: str = PATH, *, method: str = "GET", **headers: str
) -> tuple[int, Any]:
    """Ask as a job would, but for what *headers* say."""
    address = urlsplit(environment[FULL_URI])
    assert address.hostname
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    return response.status, json.loads(body) if body.startswith(b"{") else body


def asked_rightly(environment: dict[str, str]) -> tuple[int, Any]:
    return get(environment, Authorization=environment[TOKEN])


# What an SDK sees -------------------------------------------------------------------------


def test_an_sdk_finds_the_roles_credentials_by_the_jobs_environment_alone(
    account: RoleAccount, role: JobRole, places: Places
) -> None:
    environment = role.environment(KEY, places)

    found = ContainerProvider(environ=environment).load()

    assert (found.access_key, found.secret_key, found.token) == (
        "ASIAJOB1",
        "role-secret-1",
        "role-session-1",
    )
    assert found.method == "container-role"
    assert not found.refresh_needed(15 * 60)
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-1"


def test_the_answer_has_the_fields_of_the_convention(role: JobRole, places: Places) -> None:
    status, answer = asked_rightly(role.environment(KEY, places))

    assert status == 200
    assert {*answer} == {"AccessKeyId", "SecretAccessKey", "Token", "Expiration", "RoleArn"}
    assert datetime.fromisoformat(answer["Expiration"]).tzinfo is not None


def test_the_role_is_assumed_with_the_hosts_credentials_in_the_jobs_name(
    account: RoleAccount, role: JobRole, places: Places
) -> None:
    asked_rightly(role.environment(KEY, places))

    (call,) = account.called("AssumeRole")
    assert (call.access_key, call.region) == (HOST_KEY, "eu-west-1")
    assert call.asked["RoleArn"] == ROLE
    assert call.asked["RoleSessionName"] == "bert-base-1a2b3c4d"
    assert call.asked["DurationSeconds"] == "3600"


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("bert-1a2b", "bert-1a2b"),
        ("a job/with §signs", "a-job-with--signs"),
        ("x" * 80, "x" * 64),
        ("x", "x-"),
    ],
)
def test_a_session_is_named_after_its_job_as_far_as_sts_lets(job: str, name: str) -> None:
    assert session_name(job) == name


def test_nobody_has_to_ask_sts_before_a_job_does(
    account: RoleAccount, role: JobRole, places: Places
) -> None:
    role.environment(KEY, places)
    assert account.calls == []


# Who gets nothing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    [None, "", "wrong", "Bearer {token}", "{token}x", "{shorter}", "§"],
)
def test_without_the_very_token_nothing_is_given(
    account: RoleAccount, role: JobRole, places: Places, authorization: str | None
) -> None:
    environment = role.environment(KEY, places)
    token = environment[TOKEN]
    headers = {}
    if authorization is not None:
        headers["Authorization"] = authorization.format(token=token, shorter=token[:-1])

    status, answer = get(environment, **headers)

    assert status == 403
    assert answer == {"code": "AccessDenied", "message": "wrong or no Authorization"}
    assert account.calls == []


@pytest.mark.parametrize("path", ["/", "/credentials/", "/credentials?x=1", "/../credentials"])
def test_nothing_else_is_there(role: JobRole, places: Places, path: str) -> None:
    environment = role.environment(KEY, places)

    assert get(environment, path, Authorization=environment[TOKEN])[0] == 404


def test_only_get_is_served(account: RoleAccount, role: JobRole, places: Places) -> None:
    environment = role.environment(KEY, places)

    status, _answer = get(environment, method="POST", Authorization=environment[TOKEN])

    assert status == 501
    assert account.calls == []


def test_each_attempt_has_a_token_of_its_own(role: JobRole, places: Places, tmp_path: Path) -> None:
    second_key = a_key(KEY.job, attempt=2)
    second = Places.of(second_key, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    second.make(None)
    first, next_one = role.environment(KEY, places), role.environment(second_key, second)

    assert get(next_one, Authorization=first[TOKEN])[0] == 403
    assert asked_rightly(next_one)[0] == 200
    role.close(second_key)


def test_it_listens_on_loopback_alone(role: JobRole, places: Places) -> None:
    listening = role.open(KEY, places)._listening

    assert listening
    assert listening.socket.getsockname()[0] == "127.0.0.1"


def test_after_the_attempt_nobody_answers(role: JobRole, places: Places) -> None:
    environment = role.environment(KEY, places)
    assert asked_rightly(environment)[0] == 200

    role.close(KEY)

    with pytest.raises(ConnectionRefusedError):
        asked_rightly(environment)


def test_a_client_that_says_nothing_or_hangs_up_holds_nobody_up(
    role: JobRole, places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = role.environment(KEY, places)
    address = ("127.0.0.1", urlsplit(environment[FULL_URI]).port or 0)
    with socket.create_connection(address), socket.create_connection(address) as rude:
        rude.sendall(b"GET /credentials HTTP/1.1\r\n")
        rude.close()

        assert asked_rightly(environment)[0] == 200

    assert capfd.readouterr().err == ""


# Renewal and failure ----------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture
def clock(account: RoleAccount) -> Clock:
    account.now = NOON
    return Clock()


@pytest.fixture
def session(account: RoleAccount, role: JobRole, clock: Clock) -> RoleSession:
    return RoleSession(ROLE, "job-1", role._sts, now=clock)


def test_credentials_are_kept_for_half_their_life_and_then_renewed(
    account: RoleAccount, session: RoleSession, clock: Clock
) -> None:
    first = session.credentials()
    clock.forward(minutes=29)
    assert session.credentials() is first

    clock.forward(minutes=1)
    account.now = clock.now
    second = session.credentials()

    assert second.access_key_id == "ASIAJOB2"
    assert second.expires == clock.now + timedelta(hours=1)
    assert len(account.called("AssumeRole")) == 2


def test_a_renewal_that_fails_leaves_the_old_ones_in_use_as_long_as_they_live(
    account: RoleAccount,
    session: RoleSession,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = session.credentials()
    account.refusals["AssumeRole"] = [("AccessDenied", 403)] * 3
    clock.forward(minutes=30)
    assert session.credentials() is first
    clock.forward(minutes=28)
    assert session.credentials() is first
    clock.forward(minutes=1)
    with pytest.raises(CallError, match="AssumeRole: AccessDenied") as refused:
        session.credentials()

    assert not refused.value.passing
    assert [record.message for record in caplog.records] == ["job role not assumed"] * 3


def test_sts_is_not_asked_again_at_once_after_a_failure(
    account: RoleAccount, session: RoleSession, clock: Clock
) -> None:
    account.refusals["AssumeRole"] = [("AccessDenied", 403)]
    for _ in range(3):
        with pytest.raises(CallError):
            session.credentials()
    assert len(account.called("AssumeRole")) == 1

    clock.forward(seconds=5)
    assert session.credentials().access_key_id == "ASIAJOB2"


@pytest.mark.parametrize(
    ("code", "status", "passing"),
    [
        ("AccessDenied", 403, False),
        ("ValidationError", 400, False),
        ("Throttling", 400, True),
        ("InternalFailure", 500, True),
        ("ServiceUnavailable", 503, True),
    ],
)
def test_a_failure_tells_whether_another_try_may_help(
    account: RoleAccount, session: RoleSession, code: str, status: int, *, passing: bool
) -> None:
    account.refusals["AssumeRole"] = [(code, status)] * 2

    with pytest.raises(CallError) as failure:
        session.credentials()

    assert (failure.value.code, failure.value.passing) == (code, passing)


def test_a_refusal_is_a_503_with_its_code_and_one_line_in_the_log(
    account: RoleAccount, role: JobRole, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    account.refusals["AssumeRole"] = [("AccessDenied", 403)]

    status, answer = asked_rightly(role.environment(KEY, places))

    assert status == 503
    assert answer == {
        "code": "AccessDenied",
        "message": f"the job role {ROLE} can't be had: AssumeRole: AccessDenied",
    }
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert HOST_SECRET not in str(vars(record))


def test_a_job_is_told_that_sts_cannot_be_reached(
    role: JobRole, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")

        status, answer = asked_rightly(role.environment(KEY, places))

    assert (status, answer["code"]) == (503, "EndpointConnectionError")


def test_credentials_never_show_in_a_repr(session: RoleSession) -> None:
    shown = repr(session.credentials())

    assert "ASIAJOB1" in shown
    assert "role-secret-1" not in shown
    assert "role-session-1" not in shown


# After a crash of the agent ---------------------------------------------------------------


def test_a_restarted_agent_serves_at_the_same_address_with_the_same_token(
    account: RoleAccount, role: JobRole, places: Places
) -> None:
    environment = role.environment(KEY, places)
    assert asked_rightly(environment)[0] == 200
    role.close(KEY)
    restarted = JobRole(ROLE, "eu-west-1")

    restarted.open(KEY, places)

    assert restarted.environment(KEY, places) == environment
    assert asked_rightly(environment)[1]["AccessKeyId"] == "ASIAJOB2"
    ended(restarted)


def test_what_is_kept_for_that_is_the_agents_alone_and_no_credentials(
    role: JobRole, places: Places
) -> None:
    environment = role.environment(KEY, places)
    asked_rightly(environment)

    kept = places.private / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {
        "v": 1,
        "port": urlsplit(environment[FULL_URI]).port,
        "token": environment[TOKEN],
    }


def test_a_port_that_was_taken_meanwhile_is_waited_for(
    account: RoleAccount, role: JobRole, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve_agent.credentials.REBIND_SECONDS", 0.01)
    environment = role.environment(KEY, places)
    role.close(KEY)
    restarted = JobRole(ROLE, "eu-west-1")

    with socket.create_server(("127.0.0.1", urlsplit(environment[FULL_URI]).port or 0)):
        assert restarted.environment(KEY, places) == environment
        assert restarted.open(KEY, places)._listening is None

    wait_until(lambda: restarted.open(KEY, places)._listening, "listening")
    assert asked_rightly(environment)[0] == 200
    ended(restarted)


def test_an_attempt_that_ends_while_its_port_is_taken_is_forgotten(
    role: JobRole, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve_agent.credentials.REBIND_SECONDS", 0.01)
    environment = role.environment(KEY, places)
    role.close(KEY)
    with socket.create_server(("127.0.0.1", urlsplit(environment[FULL_URI]).port or 0)):
        server = role.open(KEY, places)
        role.close(KEY)

    server._listen_when_free()  # what the waiting thread does

    assert server._listening is None
